"""Logins by OAUTHBEARER: the keys of the broker, sessions that end with their token, and one text for all failures."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk import Producer

from kafkalite.clock import Outcome
from kafkalite.config import sasl as sasl_config
from kafkalite.config.broker import BrokerConfig, parse_dynamic_values
from kafkalite.config.definitions import dynamic_key
from kafkalite.config.keys import ConfigError
from kafkalite.errors import AuthenticationError
from kafkalite.net.sasl.oauthbearer import OAuthBearerClient, TokenRejection
from kafkalite.net.sasl.plain import PlainClient
from kafkalite.net.sasl.steps import Authenticated
from kafkalite.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkalite.rate_limited_log import RateLimitedLog
from kafkalite.server.authentication.key_refresh import CHECK_S, EARLY_S, KeyRefresh
from kafkalite.server.authentication.login import LOGGER
from kafkalite.server.broker import Broker
from kafkalite.server.process.resources import StartError
from kafkalite.testing.virtual_clock import VirtualClock
from tests.kit.certificates import Authority
from tests.kit.tokens import AUDIENCE, ISSUER, MODULE, USER, Issuer, oauth_settings
from tests.story.server.test_sasl_login import FAILED, METADATA, Wire, dialled

PREFIX = "listener.name.sasl_plaintext.oauthbearer."
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "connection.failed.authentication.delay.ms": "0",
}
URL = "sasl.oauthbearer.jwks.endpoint.url"
ALLOWED = "kafkalite.sasl.oauthbearer.allowed.urls"


@asynccontextmanager
async def started(settings: dict[str, str]) -> AsyncIterator[Broker]:
    async with Broker(settings={**SETTINGS, **settings}) as broker:
        yield broker


async def log_in(client: Wire, token: str) -> Any:
    async def get_token() -> str:
        return token

    return await client.log_in(OAuthBearerClient(get_token, lambda: 0.0))


def of_sdk(token: str) -> dict[str, Any]:
    async def get_token() -> str:
        return token

    return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "sasl_token": get_token}


async def test_client_of_the_sdk_logs_in_and_the_session_ends_with_the_token(tmp_path: Path) -> None:
    issuer = Issuer()
    jaas = {f"{PREFIX}sasl.jaas.config": f"{MODULE} required;"}
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    java = {f"{PREFIX}sasl.server.callback.handler.class": handler}
    async with started({**issuer.publish(tmp_path / "keys.json"), **jaas, **java}) as broker:
        async with Producer(broker.address, **of_sdk(issuer.token())) as producer:
            assert (await producer.send("orders", b"value")).offset == 0
        async with dialled(broker) as client:
            answer = await log_in(client, issuer.token(exp=int(time.time()) + 60))
            assert answer.error_code == 0 and 50_000 < answer.session_lifetime_ms <= 60_000
            assert (await client.call(*METADATA)).brokers
            assert 50_000 < (await log_in(client, issuer.token())).session_lifetime_ms <= 300_000
            other = await log_in(client, issuer.token(sub="bob"))
            assert other.error_code == FAILED and await client.is_closed()


async def test_shorter_session_of_the_broker_precedes_the_token(tmp_path: Path) -> None:
    issuer = Issuer()
    limit = {f"{PREFIX}connections.max.reauth.ms": "20000"}
    async with started({**issuer.publish(tmp_path / "k"), **limit}) as broker, dialled(broker) as client:
        assert (await log_in(client, issuer.token())).session_lifetime_ms == 20_000


async def test_forged_tokens_are_rejected_with_one_text_cve_2026_33557(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A JWT validator of Kafka 4.1 accepted tokens of any signature, issuer and audience."""
    issuer = Issuer()
    forged = [issuer.unsigned(), Issuer().token(), issuer.token(iss="https://other.example"), issuer.token(aud="x")]
    forged += [issuer.hmac_with_public_key(issuer.document()), issuer.token(exp=int(time.time()) - 60), "opaque"]
    async with started(issuer.publish(tmp_path / "keys.json")) as broker:
        for token in forged:
            async with dialled(broker) as client:
                assert await client.select("OAUTHBEARER") == 0
                first = await client.call(sasl(f"n,,\1auth=Bearer {token}\1\1"), 2)
                assert (first.error_code, json.loads(first.auth_bytes)) == (0, {"status": "invalid_token"})
                last = await client.call(sasl("\1"), 2)
                text = "Authentication failed due to invalid credentials with SASL mechanism OAUTHBEARER"
                assert (last.error_code, last.error_message, last.auth_bytes) == (FAILED, text, b"")
                assert await client.is_closed()
        with pytest.raises(AuthenticationError):
            async with Producer(broker.address, **of_sdk(issuer.token(aud="x"))) as producer:
                await producer.send("orders", b"value")
    assert "claim iss" in caplog.text and "has expired" in caplog.text
    assert not any(token in caplog.text for token in forged[:-1])


async def test_tokens_do_not_choose_the_number_of_log_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Names of keys and algorithms come from clients: each of them would be a line, and memory of the broker."""
    issuer = Issuer()
    keys = [issuer.token(header={"kid": f"key {letter}"}) for letter in "abcd"]
    algorithms = [issuer.unsigned(f"other {letter}") for letter in "abcd"]
    async with started(issuer.publish(tmp_path / "keys.json")) as broker:
        for token in keys + algorithms:
            async with dialled(broker) as client:
                assert (await log_in_raw(client, token)).error_code == FAILED
    lines = [each.getMessage() for each in caplog.records if each.name == LOGGER.name]
    assert len(lines) == 2 and "there is no key 'key a'" in lines[0] and "other a" in lines[1]


async def log_in_raw(client: Wire, token: str) -> Any:
    """Present a token that a client of the SDK would not send, or that the broker rejects."""
    assert await client.select("OAUTHBEARER") == 0
    await client.call(sasl(f"n,,\1auth=Bearer {token}\1\1"), 2)
    return await client.call(sasl("\1"), 2)


def sasl(message: str) -> Any:
    return SaslAuthenticateRequest(auth_bytes=message.encode())


@pytest.mark.parametrize("content", [None, b"", b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}'])
async def test_broker_does_not_start_without_keys_cve_2026_33557(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "keys.json"
    settings = Issuer().publish(path)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(StartError, match=r"sasl.oauthbearer.jwks.endpoint.url: file:///"):
        async with started(settings):
            pass


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (URL, "OAUTHBEARER needs an https or file URL"),
        ("sasl.oauthbearer.expected.audience", "needs the audience"),
        ("sasl.oauthbearer.expected.issuer", "needs the issuer"),
    ],
)
def test_keys_audience_and_issuer_are_required(missing: str, words: str) -> None:
    settings = {ALLOWED: "https://a/b", **oauth_settings("https://a/b")}
    with pytest.raises(ConfigError, match=words):
        BrokerConfig({**SETTINGS, **{name: text for name, text in settings.items() if name != missing}})


@pytest.mark.parametrize(
    "url",
    [
        "https://issuer.example/other",
        "https://issuer.example/keys/../other",
        "http://issuer.example/keys",
        "https://user:secret@issuer.example/keys",
        "https://issuer.example:x/keys",
        "file:///etc/passwd",
        "file://host/etc/passwd",
        "ftp://issuer.example/keys",
        "jar:file:///a.jar",
        "/etc/passwd",
        "https://[",
    ],
)
def test_only_allowed_urls_are_read_cve_2025_27817(url: str) -> None:
    """Kafka's client read any file and sent requests to any URL of its configuration."""
    allowed = {ALLOWED: "https://issuer.example/keys", "kafkalite.sasl.oauthbearer.allowed.files": "/etc/keys.json"}
    with pytest.raises(ConfigError, match=r"is not allowed|is no URL"):
        BrokerConfig({**SETTINGS, **oauth_settings(url), **allowed})


def test_references_of_requests_are_not_resolved_cve_2024_31141() -> None:
    """Kafka's config providers resolved `${file:...}` and `${env:...}` of clients, which showed them files."""
    text = "${env:HOME}${file:/etc/passwd:root}${dir:/etc:passwd}"
    location, jaas = "listener.name.a.ssl.keystore.location", f"{PREFIX}sasl.jaas.config"
    assert parse_dynamic_values({location: text}) == {location: text}
    passwords = BrokerConfig({"password.encoder.secret": "the secret of the encoder"}).passwords
    assert passwords is not None
    assert parse_dynamic_values({jaas: passwords.encode(jaas, text)}, passwords) == {jaas: text}


def test_urls_cannot_be_set_by_requests_cve_2025_27817() -> None:
    """Neither URLs nor their lists are dynamic configs."""
    for name in (URL, ALLOWED, "kafkalite.sasl.oauthbearer.allowed.files", f"{PREFIX}{URL}"):
        assert dynamic_key(name) is None, name


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({f"{PREFIX}sasl.jaas.config": f'{MODULE} required unsecuredLoginStringClaim_sub="a";'}, "without a signature"),
        ({f"{PREFIX}sasl.jaas.config": "com.sun.security.auth.module.JndiLoginModule required;"}, "login module is"),
        ({f"{PREFIX}sasl.server.callback.handler.class": "os.system"}, "is not supported, there is no such entry"),
        ({"listener.name.sasl_plaintext.sasl.server.callback.handler.class": "x"}, "is of no mechanism"),
        ({"sasl.server.callback.handler.class": "x"}, "write listener.name.NAME.MECHANISM"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://a/b"}, "is not supported"),
    ],
)
def test_nothing_of_a_configuration_is_loaded_cve_2025_27818(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BrokerConfig({**SETTINGS, ALLOWED: "https://a/b", **oauth_settings("https://a/b"), **settings})


class KeyServer:
    """Serves keys by https; `answer` is status, headers and body."""

    def __init__(self, authority: Authority) -> None:
        self.answer: tuple[int, dict[str, str], bytes] = (404, {}, b"")
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, headers, body = server.answer
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = authority.server_context(authority.issue("issuer"))
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self.url = f"https://localhost:{self._http.server_address[1]}/keys"

    @contextmanager
    def run(self) -> Iterator[KeyServer]:
        thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            thread.join()
            self._http.server_close()


async def test_keys_of_a_url_that_redirects_fails_and_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    issuer, authority = Issuer(), Authority(tmp_path)
    with KeyServer(authority).run() as server:
        settings = {ALLOWED: server.url, **oauth_settings(server.url)}
        with pytest.raises(StartError, match=r"certificate verify failed"):
            async with started(settings):
                pass
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))
        for answer, words in (
            ((404, {}, b""), "the server answered 404"),
            ((302, {"Location": server.url}, b""), "the server answered 302"),
            ((200, {}, b"no keys"), "no JSON"),
        ):
            server.answer = answer
            with pytest.raises(StartError, match=words):
                async with started(settings):
                    pass
        server.answer = (200, {}, issuer.document())
        async with started(settings) as broker, dialled(broker) as client:
            assert (await log_in(client, issuer.token())).error_code == 0


class Reads:
    """Runs the reads of keys when the test says so; each returns keys or fails."""

    def __init__(self) -> None:
        self.done: Any = None
        self.count = 0

    def run(self, job: Any, *args: Any, done: Any) -> None:
        self.count += 1
        self.done = done

    def answer(self, value: object = None, error: BaseException | None = None) -> None:
        done, self.done = self.done, None
        done(Outcome(value, error))


def refresh_of(settings: dict[str, str]) -> tuple[KeyRefresh, Reads, VirtualClock]:
    found = BrokerConfig({**SETTINGS, ALLOWED: "https://a/b", **oauth_settings("https://a/b"), **settings})
    oauthbearer, clock, reads = found.listener_security("SASL_PLAINTEXT").oauthbearer, VirtualClock(), Reads()
    assert oauthbearer is not None
    return KeyRefresh(oauthbearer, clock, reads, RateLimitedLog(LOGGER, clock)), reads, clock


async def test_keys_are_read_again_with_backoff_and_early_for_an_unknown_key(caplog: pytest.LogCaptureFixture) -> None:
    """Failures leave the previous keys in use; an unknown key of a token causes one read a minute at most."""
    hour = {"sasl.oauthbearer.jwks.endpoint.refresh.ms": "3600000"}
    refresh, reads, clock = refresh_of(hour)
    loading = asyncio.ensure_future(refresh.load())
    await asyncio.sleep(0)
    first, second = object(), object()
    reads.answer(first)
    await loading
    clock.advance(3_599_000)
    assert (reads.count, refresh.validator.keys) == (1, first)
    clock.advance(CHECK_S * 1000)
    assert reads.count == 2
    reads.answer(error=ValueError("https://a/b: the server answered 500"))
    assert refresh.validator.keys is first and "previous ones stay in use: https://a/b" in caplog.text
    for wait_s in (0.1, 0.2, 0.4):
        before = reads.count
        clock.advance(wait_s * 900)
        assert reads.count == before
        clock.advance(wait_s * 200)
        assert reads.count == before + 1
        reads.answer(error=ValueError("again"))
    clock.advance(10_000)
    reads.answer(second)
    assert refresh.validator.keys is second
    count = reads.count
    refresh.validator.lacks_key = True
    clock.advance((EARLY_S - CHECK_S) * 1000)
    assert reads.count == count
    clock.advance(2 * CHECK_S * 1000)
    assert reads.count == count + 1
    reads.answer(first)
    clock.advance(EARLY_S * 2000)
    assert reads.count == count + 1


async def test_changed_file_is_used(tmp_path: Path) -> None:
    issuer, path = Issuer(), tmp_path / "keys.json"
    async with started(issuer.publish(path)) as broker:
        (keys,) = broker.running.token_keys.values()
        issuer.add_key("second")
        path.write_bytes(issuer.document())
        token = issuer.token()
        async with dialled(broker) as client:
            assert (await log_in(client, token)).error_code == FAILED
        read, plan = asyncio.Event(), keys._plan
        keys._plan = lambda: (plan(), read.set())
        keys._due_at = 0.0
        keys._check()
        async with asyncio.timeout(60):
            await read.wait()
        assert len(keys.validator.keys) == 2
        async with dialled(broker) as client:
            assert (await log_in(client, token)).error_code == 0


class Callback:
    """An entry point whose callback knows one user and one token."""

    def __init__(self, name: str) -> None:
        self.name = name

    def load(self) -> Any:
        assert self.name != "broken"
        return {"plain": self.plain, "token": self.token, "broken": None}[self.name]

    @staticmethod
    def plain(texts: dict[str, str]) -> Any:
        assert texts["listeners"] == SETTINGS["listeners"]
        return lambda user, password: (user, password) == (USER, "secret")

    @staticmethod
    def token(texts: dict[str, str]) -> Any:
        return lambda token, extensions: Authenticated(USER) if token == "opaque" else TokenRejection("unknown")


async def test_callbacks_of_entry_points_verify_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: Callback(name) for name in ("plain", "token", "broken")}
    monkeypatch.setattr(sasl_config, "installed_callbacks", lambda: known)
    monkeypatch.setattr("kafkalite.server.authentication.mechanisms.installed_callbacks", lambda: known)
    plain = "listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class"
    token = f"{PREFIX}sasl.server.callback.handler.class"
    settings = {"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER", plain: "plain", token: "token"}
    async with started(settings) as broker:
        for password, code in (("secret", 0), ("wrong", FAILED)):
            async with dialled(broker) as client:
                assert (await client.log_in(PlainClient(USER, password))).error_code == code
        for text, code in (("opaque", 0), ("other", FAILED)):
            async with dialled(broker) as client:
                assert (await log_in(client, text)).error_code == code
    with pytest.raises(StartError, match=r"kafkalite.sasl_callbacks: broken cannot be created"):
        async with started({**settings, token: "broken"}):
            pass


def test_audience_and_issuer_of_a_listener() -> None:
    settings = {ALLOWED: "https://a/b", **oauth_settings("https://a/b")}
    settings[f"{PREFIX}sasl.oauthbearer.expected.issuer"] = "x"
    found = BrokerConfig({**SETTINGS, **settings}).listener_security("SASL_PLAINTEXT").oauthbearer
    assert found is not None and (found.issuer, found.audiences) == ("x", (AUDIENCE,)) and ISSUER != "x"
