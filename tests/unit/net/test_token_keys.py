"""The read of the keys at a URL ends in time, whatever the server sends."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kafkalite.config.oauthbearer import OAuthBearerSettings
from kafkalite.net.sasl import token_keys
from tests.kit.certificates import Authority

HEAD, BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 80\r\n\r\n", b" " * 80
BYTE_S = 0.02
REQUEST_BYTES_MAX = 4096


class SlowServer:
    """Serves one connection over TLS: what is given at once, then the rest of an answer a byte at a time."""

    def __init__(self, context: ssl.SSLContext, at_once: bytes) -> None:
        self._context = context
        self._at_once = at_once
        self._ended = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()
        self.url = f"https://localhost:{self.address[1]}/keys"

    @contextmanager
    def run(self) -> Iterator[None]:
        thread = threading.Thread(target=self._serve)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            self._listening.close()

    def _serve(self) -> None:
        raw, _ = self._listening.accept()
        with self._context.wrap_socket(raw, server_side=True) as connection:
            connection.recv(REQUEST_BYTES_MAX)  # a close with unread bytes resets the connection
            connection.sendall(self._at_once)
            for byte in (HEAD + BODY)[len(self._at_once) :]:
                if self._ended.wait(BYTE_S):
                    return
                connection.sendall(bytes((byte,)))


@contextmanager
def full_listener() -> Iterator[tuple[str, int]]:
    """The address of a listener whose queue is full: further connections wait for an answer that never comes."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening, ExitStack() as clients:
        for _ in range(3):
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listening.getsockname())
        yield listening.getsockname()


def settings_of(url: str) -> OAuthBearerSettings:
    return OAuthBearerSettings("", url, None, 1.0, 1.0, 1.0, ("kafka",), "issuer", 0, "scope", "sub")


def test_second_address_of_a_host_is_tried_for_the_whole_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one answers nothing, so its connection uses up a whole timeout."""
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))
    monkeypatch.setattr(token_keys, "TIMEOUT_S", 2.0)
    server = SlowServer(authority.server_context(authority.issue("issuer")), HEAD + BODY)
    with full_listener() as silent, server.run():
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in (silent, server.address)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: found)
        with pytest.raises(ValueError, match="no JSON Web Key Set: no JSON"):  # so the body was read
            token_keys.read_keys(settings_of(server.url))


@pytest.mark.parametrize("at_once", [b"", HEAD], ids=["slow head", "slow body"])
def test_keys_that_arrive_byte_by_byte_are_read_in_time_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bytes
) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))
    monkeypatch.setattr(token_keys, "TIMEOUT_S", 0.2)
    server = SlowServer(authority.server_context(authority.issue("issuer")), at_once)
    with server.run(), pytest.raises(ValueError, match=rf"{server.url}: .*(timed out|not read within 0.2 s)"):
        token_keys.read_keys(settings_of(server.url))
