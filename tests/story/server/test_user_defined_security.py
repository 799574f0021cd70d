"""The package of `docs/security.md` with a mechanism and a principal builder is installed, and works as documented."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk import Producer

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.extensions import entry_points
from kafkalite.config.extensions.entry_points import MECHANISMS, PRINCIPAL_BUILDERS
from kafkalite.config.keys import ConfigError
from kafkalite.errors import AuthenticationError, AuthorizationError
from kafkalite.model import Principal
from kafkalite.net.distinguished_names import distinguished_name
from kafkalite.net.sasl.steps import ClientSteps
from kafkalite.server.authentication.principals import AuthenticationContext
from kafkalite.server.broker import Broker
from kafkalite.server.process.resources import StartError
from kafkalite.testing.secured import AUTHORIZER
from tests.kit.certificates import Authority
from tests.kit.tls_broker import HOST, key_store
from tests.story.cli.conftest import COMMAND, ENVIRON, TIMEOUT_S
from tests.story.server.test_sasl_login import FAILED, Wire, dialled, only_connections

DOCS = Path(__file__).resolve().parents[3] / "docs" / "security.md"
SECTION = DOCS.read_text().partition("### User-defined mechanisms and principals")[2].partition("\n### ")[0]
LISTENERS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "connection.failed.authentication.delay.ms": "0",
}
KEYS = {"alice@billing": "the key of alice", "bob": "the key of bob"}
# Mistakes of a package, beside the documented one.
MISTAKES = """
class Mistakes:
    name = "X-MISTAKES"

    def __init__(self, configuration):
        pass

    def begin(self, message):
        if message == b"begin":
            raise KeyError("secret text")
        if message == b"step":
            yield "a str"
        if message == b"result":
            return "alice"
        yield b"challenge"
        raise ValueError("secret text")


def misnamed(configuration):
    return Mistakes(configuration)


def broken(configuration):
    def build(context):
        raise KeyError("secret text")
    return build


def untyped(configuration):
    return lambda context: "alice"


def no_function(configuration):
    return None
"""
MORE = {
    MECHANISMS: {"X-MISTAKES": "acme_mistakes:Mistakes", "X-OTHER": "acme_mistakes:misnamed", "X-ABSENT": "absent:m"},
    PRINCIPAL_BUILDERS: {name: f"acme_mistakes:{name}" for name in ("broken", "untyped", "no_function")},
}


def block(language: str) -> str:
    """Return the code block of a language in the section of the documentation."""
    found = re.search(rf"^```{language}\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def properties() -> dict[str, str]:
    return dict(line.split("=", 1) for line in block("properties").splitlines())


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Installs the documented package, and one with mistakes; returns the directory."""
    site = tmp_path / "site"
    (info := site / "acme_kafka-1.0.dist-info").mkdir(parents=True)
    (site / "acme_kafka.py").write_text(block("python"))
    (site / "acme_mistakes.py").write_text(MISTAKES)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-kafka\nVersion: 1.0\n")
    groups = tomllib.loads(block("toml"))["project"]["entry-points"]
    lines: list[str] = []
    for group, more in MORE.items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in {**groups[group], **more}.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (keys := tmp_path / "keys.json").write_text(json.dumps(KEYS))
    monkeypatch.setenv("ACME_KEYS", str(keys))
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    entry_points.entry_points_of.cache_clear()
    yield site
    entry_points.entry_points_of.cache_clear()


def cram(user: str, key: str | None = None) -> Any:
    """The client of the documented mechanism."""
    return importlib.import_module("acme_kafka").CramClient(user, KEYS[user] if key is None else key)


class Says:
    """A client of the mechanism with mistakes."""

    name = "X-MISTAKES"

    def __init__(self, message: bytes) -> None:
        self._message = message

    async def begin(self, host: str) -> ClientSteps:
        return self._steps()

    def _steps(self) -> ClientSteps:
        yield self._message
        yield b"next"


async def test_documented_mechanism_and_builder_authenticate_and_identify(caplog: pytest.LogCaptureFixture) -> None:
    settings = {**LISTENERS, **properties(), "authorizer.class.name": AUTHORIZER, "super.users": "Team:billing"}
    async with Broker(settings=settings) as broker:
        client: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT"}
        async with Producer(broker.address, sasl_mechanism=cram("alice@billing"), **client) as producer:
            assert (await producer.send("orders", b"value")).offset == 0
        async with Producer(broker.address, sasl_mechanism=cram("bob"), **client) as producer:
            with pytest.raises(AuthorizationError):
                await producer.send("orders", b"value")
        with pytest.raises(AuthenticationError):
            async with Producer(broker.address, sasl_mechanism=cram("bob", "another key"), **client):
                pass
    assert "the proof is not that of the key, user 'bob'" in caplog.text
    assert not any(key in caplog.text for key in KEYS.values())


async def test_principal_stays_when_a_session_is_renewed() -> None:
    async with Broker(settings={**LISTENERS, **properties()}) as broker, dialled(broker) as client:
        for _ in range(2):
            assert (await client.log_in(cram("alice@billing"))).error_code == 0
        (connection,) = only_connections(broker)
        assert connection.principal == Principal("Team", "billing")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"begin", "mechanism X-MISTAKES has raised KeyError at "),
        (b"later", "mechanism X-MISTAKES has raised ValueError at "),
        (b"step", "mechanism X-MISTAKES yields a str, not bytes or a Job"),
        (b"result", "mechanism X-MISTAKES returns no Authenticated with the name of a user"),
    ],
)
async def test_mistake_of_a_mechanism_rejects_the_login(
    message: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**LISTENERS, "sasl.enabled.mechanisms": "X-MISTAKES"}
    async with Broker(settings=settings) as broker, dialled(broker) as client:
        assert (await client.log_in(Says(message))).error_code == FAILED
        assert await client.is_closed()
    assert reason in caplog.text and "secret text" not in caplog.text


@pytest.mark.parametrize(
    ("builder", "reason"),
    [
        ("broken", "the principal builder broken has raised KeyError at "),
        ("untyped", "the principal builder untyped has returned no Principal with type and name"),
    ],
)
async def test_mistake_of_a_principal_builder_rejects_the_connection(
    builder: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**LISTENERS, "sasl.enabled.mechanisms": "X-CRAM", "principal.builder.class": builder}
    async with Broker(settings=settings) as broker:
        async with dialled(broker) as client:
            assert (await client.log_in(cram("bob"))).error_code == FAILED
        (port,) = (each.port for each in broker.addresses if each.listener == "PLAINTEXT")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await Wire(reader, writer).is_closed()
        writer.transport.abort()
    assert sum(reason in each.getMessage() for each in caplog.records) == 2 and "secret text" not in caplog.text


class Recorded:
    """A principal builder that keeps what it is asked."""

    def __init__(self) -> None:
        self.contexts: list[AuthenticationContext] = []

    def load(self) -> Any:
        return lambda configuration: self.build

    def build(self, context: AuthenticationContext) -> Principal:
        self.contexts.append(context)
        return context.principal


async def test_builder_of_a_listener_knows_the_certificate_of_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder, authority = Recorded(), Authority(tmp_path)
    monkeypatch.setitem(entry_points.entry_points_of(PRINCIPAL_BUILDERS), "recorded", builder)  # type: ignore[arg-type]
    of_client = authority.issue("client")
    settings = {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.name.ssl.principal.builder.class": "recorded",
        "ssl.client.auth": "required",
        **key_store(authority.issue("broker")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.cert),
    }
    async with Broker(settings=settings) as broker:
        files = {"ssl_cafile": authority.cert, "ssl_certfile": of_client.cert, "ssl_keyfile": of_client.key}
        async with Producer(f"{HOST}:{broker.addresses[0].port}", security_protocol="SSL", **files) as producer:
            await producer.send("orders", b"value")
    (context, *_) = builder.contexts
    assert context[1:5] == ("SSL", "SSL", "127.0.0.1", None) and "client" in context.principal.name
    assert context.certificate is not None and "client" in distinguished_name(context.certificate)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"sasl.enabled.mechanisms": "X-UNKNOWN"},
            r"'X-UNKNOWN' is no SASL mechanism of this broker; use PLAIN, .* or an entry point of "
            r"kafkalite.sasl_mechanisms \(X-ABSENT, X-CRAM, X-MISTAKES, X-OTHER\)",
        ),
        (
            {"principal.builder.class": "os.system"},
            r"'os.system' is no principal builder of this broker; use org.apache.*DefaultKafkaPrincipalBuilder, or an "
            r"entry point of kafkalite.principal_builders \(broken, no_function, teams, untyped\)",
        ),
        (
            {
                "sasl.enabled.mechanisms": "X-CRAM",
                "listener.name.sasl_plaintext.x-cram.sasl.jaas.config": "X required;",
            },
            "X-CRAM is a user-defined mechanism, which has no login module",
        ),
        ({"super.users": "Team:billing"}, "no principal has the type 'Team'"),
    ],
)
def test_unknown_names_are_refused_with_the_group_and_what_is_installed(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig({**LISTENERS, "sasl.enabled.mechanisms": "X-CRAM", **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sasl.enabled.mechanisms": "X-ABSENT"}, r"kafkalite.sasl_mechanisms: X-ABSENT cannot be created: ModuleNot"),
        ({"sasl.enabled.mechanisms": "X-OTHER"}, r"X-OTHER: .* has no name 'X-OTHER' and begin\(message\)"),
        (
            {"principal.builder.class": "no_function"},
            "principal_builders: no_function: None cannot be called",
        ),
    ],
)
async def test_package_that_cannot_be_used_ends_the_start(settings: dict[str, str], message: str) -> None:
    with pytest.raises(StartError, match=message):
        async with Broker(settings={**LISTENERS, "sasl.enabled.mechanisms": "X-CRAM", **settings}):
            pytest.fail("started")


def test_unknown_name_ends_the_command_with_one_line(tmp_path: Path) -> None:
    args = ("serve", "--data", str(tmp_path / "data"), "--set", "principal.builder.class=unknown")
    done = subprocess.run([*COMMAND, *args], capture_output=True, text=True, env=ENVIRON, timeout=TIMEOUT_S)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "kafkalite.principal_builders (none is installed)" in done.stderr
    assert not (tmp_path / "data").exists()
