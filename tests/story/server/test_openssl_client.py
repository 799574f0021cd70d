"""`openssl s_client` against `kafkalite serve`: protocols, ciphers, certificates of both sides, sessions, renegotiation
and handshakes that end early. One broker serves all cases. Each refusal is an alert with its reason.
"""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from perf.process import memory
from perf.wire import api_versions, call
from tests.kit.brokers import Kafkalite
from tests.kit.certificates import Authority, Pem
from tests.kit.ports import free_port

HOST = "127.0.0.1"
WEAK = "ALL:COMPLEMENTOFALL:@SECLEVEL=0"  # of the client: the broker decides
RSA = "-newkey rsa:2048"
BROKEN_SIZE = struct.pack(">i", -1)  # the broker closes the connection at this frame
DEADLINE_S = 60.0
IDLE, IDLE_BYTES_MAX = 200, 32 * 1024
LISTENERS = ("SSL", "RSA", "TLS12", "TLS13", "MUTUAL", "EXPIRED", "NAMED", "SELF", "FOREIGN")
FORWARD_SECRET = ("AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305")


class Secured(NamedTuple):
    """The broker, its listeners, and the authorities of certificates."""

    broker: Kafkalite
    ports: dict[str, int]
    authority: Authority
    foreign: Authority

    def client(self, listener: str, *options: str, stdin: bytes = b"Q\n") -> str:
        """Connect to a listener; return what openssl prints. It trusts the authority and ends at the first error."""
        trust = ("-CAfile", str(self.authority.cert), "-verify_return_error")
        address = f"{HOST}:{self.ports[listener]}"
        command = ["openssl", "s_client", "-connect", address, *trust, *options]
        done = subprocess.run(
            command, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=DEADLINE_S, check=False
        )
        return done.stdout.decode(errors="replace")

    def exchange(self, listener: str, *options: str) -> str:
        """As `client`, with a request: its response comes behind the session tickets, then the broker closes."""
        stdin = api_versions(1) + BROKEN_SIZE
        return self.client(listener, "-nocommands", "-ign_eof", *options, stdin=stdin)

    def serves(self, listener: str = "SSL") -> bool:
        """Whether a new connection is served."""
        return "Verify return code: 0 (ok)" in self.client(listener)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("openssl")
    authority, foreign = Authority(directory / "tls"), Authority(directory / "foreign", "another authority")
    ports = {name: free_port() for name in LISTENERS}
    own = {
        "SSL": authority.issue("broker"),
        "RSA": authority.issue("rsa", key=RSA),
        "EXPIRED": authority.issue("expired", days=-1),
        "NAMED": authority.issue("named", "DNS:elsewhere.example"),
        "SELF": self_signed(directory),
        "FOREIGN": foreign.issue("foreign"),
    }
    broker = Kafkalite(directory / "broker", {})
    broker.settings |= settings_of(broker, ports, own, authority)
    broker.start()
    yield Secured(broker, ports, authority, foreign)
    assert broker.stop() == broker.clean_exit


def self_signed(directory: Path) -> Pem:
    """A certificate that no authority has signed."""
    own = Authority(directory / "self", "self signed")
    return Pem(own.cert, own.cert.with_name("ca.key"))


def settings_of(broker: Kafkalite, ports: dict[str, int], own: dict[str, Pem], authority: Authority) -> dict[str, str]:
    """The settings of the listeners; those without a certificate of their own have that of SSL."""
    addresses = [f"PLAINTEXT://{broker.address}", *(f"{name}://{HOST}:{port}" for name, port in ports.items())]
    protocols = ["PLAINTEXT:PLAINTEXT", *(f"{name}:SSL" for name in ports)]
    found = {
        "listeners": ",".join(addresses),
        "listener.security.protocol.map": ",".join(protocols),
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.cert),
        "listener.name.tls12.ssl.enabled.protocols": "TLSv1.2",
        "listener.name.tls13.ssl.enabled.protocols": "TLSv1.3",
        "listener.name.mutual.ssl.client.auth": "required",
    }
    stores = {name: own.get(name, own["SSL"]).bundle() for name in ports}
    return found | {f"listener.name.{name.lower()}.ssl.keystore.location": str(path) for name, path in stores.items()}


@pytest.mark.parametrize(("listener", "version"), [("SSL", 2), ("SSL", 3), ("TLS12", 2), ("TLS13", 3)])
def test_protocol_of_a_listener_is_accepted(secured: Secured, listener: str, version: int) -> None:
    said = secured.client(listener, f"-tls1_{version}")
    assert f"New, TLSv1.{version}" in said and "Verify return code: 0 (ok)" in said, said


@pytest.mark.parametrize(
    ("listener", "option"),
    [("SSL", "-tls1"), ("SSL", "-tls1_1"), ("TLS12", "-tls1_1"), ("TLS12", "-tls1_3"), ("TLS13", "-tls1_2")],
)
def test_other_protocol_is_refused(secured: Secured, listener: str, option: str) -> None:
    said = secured.client(listener, option, "-cipher", WEAK)
    assert "alert protocol version" in said and "Cipher is (NONE)" in said, said


@pytest.mark.parametrize("cipher", FORWARD_SECRET)
@pytest.mark.parametrize(("listener", "signature"), [("SSL", "ECDSA"), ("RSA", "RSA")])
def test_cipher_of_tls_1_2_is_accepted(secured: Secured, listener: str, signature: str, cipher: str) -> None:
    name = f"ECDHE-{signature}-{cipher}"
    assert f"New, TLSv1.2, Cipher is {name}" in secured.client(listener, "-tls1_2", "-cipher", name)


@pytest.mark.parametrize("suite", ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"])
def test_cipher_of_tls_1_3_is_accepted(secured: Secured, suite: str) -> None:
    assert f"New, TLSv1.3, Cipher is {suite}" in secured.client("SSL", "-tls1_3", "-ciphersuites", suite)


@pytest.mark.parametrize("cipher", ["AES128-SHA", "AES128-GCM-SHA256", "ECDHE-RSA-AES128-SHA", "NULL", "aNULL"])
def test_weak_cipher_is_refused(secured: Secured, cipher: str) -> None:
    """Without forward secrecy, with SHA-1, without encryption or without authentication."""
    for listener in ("SSL", "RSA"):
        said = secured.client(listener, "-tls1_2", "-cipher", f"{cipher}:@SECLEVEL=0")
        assert "alert handshake failure" in said and "Cipher is (NONE)" in said, said


@pytest.mark.parametrize("group", ["X25519", "P-256", "P-384", "P-521"])
def test_group_of_the_key_exchange(secured: Secured, group: str) -> None:
    said = secured.client("SSL", "-tls1_3", "-groups", group)
    shown = {"P-256": "prime256v1", "P-384": "secp384r1", "P-521": "secp521r1"}.get(group, group)
    assert f"Server Temp Key: {group}" in said or shown in said, said


@pytest.mark.parametrize(
    ("listener", "options", "reason"),
    [
        ("SSL", ("-verify_ip", HOST), "Verify return code: 0 (ok)"),
        ("EXPIRED", (), "verify error:num=10:certificate has expired"),
        ("NAMED", ("-verify_ip", HOST), "verify error:num=64:IP address mismatch"),
        ("NAMED", ("-verify_hostname", "localhost"), "verify error:num=62:hostname mismatch"),
        ("SELF", (), "verify error:num=18:self-signed certificate"),
        ("FOREIGN", (), "verify error:num=20:unable to get local issuer certificate"),
    ],
)
def test_client_verifies_the_broker(secured: Secured, listener: str, options: tuple[str, ...], reason: str) -> None:
    assert reason in secured.client(listener, *options)


@pytest.mark.parametrize("version", [2, 3])
def test_broker_verifies_clients(secured: Secured, version: int, tmp_path: Path) -> None:
    """The alert of a refused client names the reason; with TLS 1.3 it comes behind the client's handshake."""
    own, expired = secured.authority.issue("client"), secured.authority.issue("late", days=-1)
    refused = {
        "alert certificate expired": expired,
        "alert unknown ca": secured.foreign.issue("client"),
        "alert unknown ca ": self_signed(tmp_path),
        "alert certificate required" if version == 3 else "alert handshake failure": None,
    }
    options = (f"-tls1_{version}",)
    accepted = secured.exchange("MUTUAL", *options, "-cert", str(own.cert), "-key", str(own.key))
    assert " alert " not in accepted and "Verify return code: 0 (ok)" in accepted, accepted
    for reason, pem in refused.items():
        certificate = () if pem is None else ("-cert", str(pem.cert), "-key", str(pem.key))
        said = secured.client("MUTUAL", "-ign_eof", *options, *certificate, stdin=b"")  # until the broker closes
        assert reason.strip() in said, (reason, said)


@pytest.mark.parametrize("version", [2, 3])
def test_session_is_resumed(secured: Secured, version: int, tmp_path: Path) -> None:
    """By a ticket; a session of one listener is no session of another one, which may demand a certificate."""
    session, protocol = tmp_path / "session.pem", f"-tls1_{version}"
    assert f"New, TLSv1.{version}" in secured.exchange("SSL", protocol, "-sess_out", str(session))
    assert f"Reused, TLSv1.{version}" in secured.exchange("SSL", protocol, "-sess_in", str(session))
    assert f"Reused, TLSv1.{version}" not in secured.exchange("RSA", protocol, "-sess_in", str(session))


def test_renegotiation_is_refused(secured: Secured) -> None:
    said = secured.client("SSL", "-tls1_2", stdin=b"R\n")
    assert "no renegotiation" in said, said
    assert secured.serves()


def test_truncated_handshake(secured: Secured) -> None:
    """The first flight of openssl, ended in and behind each of its headers, and in between."""
    hello = first_flight()
    for length in (0, 1, 4, 5, 6, 9, 40, len(hello) // 2, len(hello) - 1, len(hello)):
        with closing(socket.create_connection((HOST, secured.ports["SSL"]), timeout=DEADLINE_S)) as truncated:
            truncated.sendall(hello[:length])
            truncated.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):  # the broker has read nothing of a part of a record
                while truncated.recv(1 << 16):
                    pass
    assert secured.serves()


def first_flight() -> bytes:
    """The bytes that openssl sends first."""
    with closing(socket.create_server((HOST, 0))) as server:
        address = f"{HOST}:{server.getsockname()[1]}"
        client = subprocess.Popen(
            ["openssl", "s_client", "-connect", address], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        connected, _ = server.accept()
        with closing(connected):
            header = connected.recv(5, socket.MSG_WAITALL)
            hello = header + connected.recv(int.from_bytes(header[3:], "big"), socket.MSG_WAITALL)
        client.wait(DEADLINE_S)
    return hello


def test_memory_of_an_idle_connection_is_bounded(secured: Secured) -> None:
    """The receive buffer of a connection uses only the pages of its records."""
    context = ssl.create_default_context(cafile=str(secured.authority.cert))
    with ExitStack() as stack:

        def connect(count: int) -> int:
            for _ in range(count):
                plain = socket.create_connection((HOST, secured.ports["SSL"]), timeout=DEADLINE_S)
                connection = stack.enter_context(context.wrap_socket(plain, server_hostname=HOST))
                call(connection, api_versions(1))
            return memory(secured.broker.pid).resident

        before = connect(50)
        assert (connect(IDLE) - before) / IDLE <= IDLE_BYTES_MAX
