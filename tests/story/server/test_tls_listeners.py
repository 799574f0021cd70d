"""Listeners with TLS: protocols, client certificates, reload, half-open handshakes, clients with a wrong protocol."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk import Consumer, Producer

from kafkalite.config.keys import ConfigError
from kafkalite.errors import AuthenticationError
from kafkalite.model import ANONYMOUS, Principal
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkalite.server.broker import Broker
from tests.kit.certificates import Authority, Pem
from tests.kit.tls_broker import HOST, key_store

PROTOCOLS = "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL"
BASE = {"listener.security.protocol.map": PROTOCOLS}
PASSWORD = "hunter2"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pem(authority: Authority) -> Pem:
    return authority.issue("broker")


@asynccontextmanager
async def broker_with(settings: dict[str, str], *names: str) -> AsyncIterator[tuple[Broker, dict[str, str]]]:
    """A broker with a listener for each name, and their addresses."""
    listeners = ",".join(f"{name}://{HOST}:0" for name in ("PLAINTEXT", *names))
    async with Broker(None, {**BASE, "listeners": listeners, **settings}) as broker:
        yield broker, {each.listener: f"{each.host}:{each.port}" for each in broker.addresses}


def client_context(authority: Authority, own: Pem | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.cert))
    if own is not None:
        context.load_cert_chain(own.cert, own.key)
    return context


async def connect(address: str, context: ssl.SSLContext | None) -> ClientConnection:
    host, port = address.split(":")
    connection = ClientConnection(host, int(port), ssl=context)
    await connection.connect()
    return connection


def principals(broker: Broker, listener: str) -> list[Any]:
    """The principals of the open connections of a listener."""
    running = broker.running
    assert running is not None
    drivers = set(running.listening._drivers.values())
    return [each.principal for driver in drivers for each in driver.reactor.connections() if each.listener == listener]


async def test_four_protocols_in_one_broker(authority: Authority, pem: Pem) -> None:
    """A client of each listener writes; the principal is that of the login, where the listener has SASL."""
    users = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice='secret';"
    settings = {
        **key_store(pem),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,LOGIN:SASL_PLAINTEXT,BOTH:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": users,
        "listener.name.both.plain.sasl.jaas.config": users,
    }
    login = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "secret"}
    options: dict[str, dict[str, Any]] = {
        "PLAINTEXT": {},
        "SSL": {"security_protocol": "SSL", "ssl_cafile": authority.cert},
        "LOGIN": {"security_protocol": "SASL_PLAINTEXT", **login},
        "BOTH": {"security_protocol": "SASL_SSL", "ssl_cafile": authority.cert, **login},
    }
    async with broker_with(settings, "SSL", "LOGIN", "BOTH") as (broker, addresses):
        for offset, (name, client) in enumerate(options.items()):
            async with Producer(addresses[name], **client) as producer:
                assert (await producer.send("t", name.encode())).offset == offset
                expected = Principal("User", "alice") if "sasl_mechanism" in client else ANONYMOUS
                assert {each or ANONYMOUS for each in principals(broker, name)} == {expected}
        wrong = {**options["BOTH"], "sasl_password": "wrong"}
        with pytest.raises(AuthenticationError):
            async with Producer(addresses["BOTH"], **wrong):
                pass


async def test_plaintext_and_tls_in_one_broker(authority: Authority, pem: Pem) -> None:
    async with broker_with(key_store(pem), "SSL") as (broker, addresses):
        options = {"security_protocol": "SSL", "ssl_cafile": authority.cert}
        async with Producer(addresses["SSL"], **options) as producer:
            await producer.send("orders", b"value")
        for name, security in (("SSL", options), ("PLAINTEXT", {})):
            async with Consumer(addresses[name], auto_offset_reset="earliest", **security) as consumer:
                consumer.assign([("orders", 0)])
                assert [each.value for each in await consumer.poll(timeout=30.0)] == [b"value"]
        protocols = {each.listener: each.security_protocol for each in broker.addresses}
        assert protocols == {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL"}


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_certificate_of_a_client_is_its_principal(authority: Authority, pem: Pem, version: str) -> None:
    own = authority.issue("duke")
    settings = {
        **key_store(pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.cert.read_text(),
        "ssl.enabled.protocols": version,
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/U",
        "listener.name.ssl.ssl.client.auth": "requested",
    }
    async with broker_with(settings, "SSL", "MUTUAL") as (broker, addresses):
        mutual = await connect(addresses["MUTUAL"], client_context(authority, own))
        assert principals(broker, "MUTUAL") == [Principal("User", "DUKE")]
        anonymous = await connect(addresses["SSL"], client_context(authority))
        assert principals(broker, "SSL") == [ANONYMOUS]
        named = await connect(addresses["SSL"], client_context(authority, own))
        assert principals(broker, "SSL")[-1] == Principal("User", "CN=duke")
        for each in (mutual, anonymous, named):
            await each.close()
        with pytest.raises(Exception, match=r"certificate|rejected the TLS handshake|closed|reset"):
            await connect(addresses["MUTUAL"], client_context(authority))
        foreign = Authority(authority.folder / f"foreign-{version}", "somebody else").issue("foreign")
        with pytest.raises(Exception, match=r"unknown.ca|closed|reset"):
            await connect(addresses["MUTUAL"], client_context(authority, foreign))


async def test_sessions_are_resumed(authority: Authority, pem: Pem) -> None:
    async with broker_with(key_store(pem), "SSL") as (_, addresses):
        context = client_context(authority)
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # whose session is known at the end of the handshake

        def handshake(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool | None]:
            host, port = addresses["SSL"].split(":")
            plain = socket.create_connection((host, int(port)))
            with context.wrap_socket(plain, server_hostname=host, session=session) as secured:
                return secured.session, secured.session_reused

        session, _ = await asyncio.to_thread(handshake, None)
        assert (await asyncio.to_thread(handshake, session))[1] is True


async def test_a_changed_certificate_is_used_by_new_connections(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A producer has no error meanwhile; a file that cannot be used is reported once, and changes nothing."""
    store = tmp_path / "broker.pem"
    shutil.copy(authority.issue("one").bundle(), store)
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    async with broker_with(settings, "SSL") as (broker, addresses):
        options = {"security_protocol": "SSL", "ssl_cafile": authority.cert}
        async with Producer(addresses["SSL"], **options) as producer:
            sending = asyncio.create_task(send_until_cancelled(producer))
            assert await subject(addresses["SSL"], authority) == "one"
            shutil.copy(authority.issue("two").bundle(), store)
            await reloaded(broker)
            assert await subject(addresses["SSL"], authority) == "two"
            for content in ("not a key", authority.issue("old", days=-1).bundle().read_text()):
                store.write_text(content)
                with caplog.at_level(logging.ERROR, "kafkalite.net"):
                    caplog.clear()
                    await reloaded(broker)
                    await reloaded(broker)
                said = [each.getMessage() for each in caplog.records]
                assert len(said) == 1 and "previous certificate of the listener stays in use" in said[0], said
                assert await subject(addresses["SSL"], authority) == "two"
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await producer.flush()


async def test_dynamic_configs_of_a_listener_are_in_force_at_once(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stores = [tmp_path / name for name in ("first.pem", "other.pem")]
    for store in stores:
        shutil.copy(authority.issue(store.stem).bundle(), store)
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(stores[0])}
    async with broker_with(settings, "SSL") as (broker, addresses):
        assert await subject(addresses["SSL"], authority) == "first"
        broker.running.apply_configs({}, {"listener.name.ssl.ssl.keystore.location": str(stores[1])})
        await reloaded(broker)
        assert await subject(addresses["SSL"], authority) == "other"
        broker.running.apply_configs({}, {"listener.name.ssl.ssl.keystore.location": str(tmp_path / "none")})
        await reloaded(broker)
        assert "previous certificate" in caplog.text
        assert await subject(addresses["SSL"], authority) == "other"
        broker.running.apply_configs({}, {"listeners": f"PLAINTEXT://{HOST}:0"})  # from the next start on
        await reloaded(broker)
        assert await subject(addresses["SSL"], authority) == "other"


async def send_until_cancelled(producer: Producer) -> None:
    while True:
        await producer.send("orders", b"value")


async def reloaded(broker: Broker) -> None:
    """Check the files of the listeners now, and wait for the result."""
    assert broker.running is not None
    reload = broker.running.listening._reload
    assert reload is not None
    reload.check()
    async with asyncio.timeout(60):
        while reload._running:
            await asyncio.sleep(0)


async def subject(address: str, authority: Authority) -> str:
    """The common name of the broker's certificate."""
    host, port = address.split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=client_context(authority))
    found = dict(part[0] for part in writer.get_extra_info("peercert")["subject"])
    writer.close()
    return str(found["commonName"])


async def test_clients_that_never_finish_a_handshake_keep_no_one_out(authority: Authority, pem: Pem) -> None:
    """300 connections each: without a byte, with half of the first record, and with all of it: more than may run."""
    hello = ssl.MemoryBIO()
    stopped = client_context(authority).wrap_bio(ssl.MemoryBIO(), hello, server_hostname=HOST)
    with pytest.raises(ssl.SSLWantReadError):
        stopped.do_handshake()
    first = hello.read()
    async with broker_with(key_store(pem), "SSL") as (_, addresses):
        host, port = addresses["SSL"].split(":")
        with closing_all([socket.create_connection((host, int(port))) for _ in range(900)]) as silent:
            for half, whole in zip(silent[::3], silent[1::3], strict=True):
                half.sendall(first[:40])
                whole.sendall(first)
            async with asyncio.timeout(60):
                await (await connect(addresses["SSL"], client_context(authority))).close()


@contextmanager
def closing_all(sockets: list[socket.socket]) -> Iterator[list[socket.socket]]:
    """Close sockets at the end."""
    try:
        yield sockets
    finally:
        for each in sockets:
            each.close()


async def test_a_client_with_the_wrong_protocol_is_reported_once_a_minute(
    authority: Authority, pem: Pem, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker_with(key_store(pem), "SSL") as (_, addresses):
        with caplog.at_level(logging.WARNING, "kafkalite.net"):
            for _ in range(3):
                for name, context in (("SSL", None), ("PLAINTEXT", client_context(authority))):
                    with pytest.raises(Exception, match=r"closed|TLS|reset|EOF|eof|version"):
                        await connect(addresses[name], context)
        said = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        assert len(said) == 2, said
        assert "a client without TLS on a port with TLS: set security.protocol=SSL" in said[0]
        assert "TLS handshake on a plaintext port, connect without TLS" in said[1]


async def test_limits_of_connections_count_all_listeners(authority: Authority, pem: Pem) -> None:
    settings = {**key_store(pem), "max.connections.per.ip": "2", "listener.name.ssl.max.connections": "1"}
    async with broker_with(settings, "SSL") as (_, addresses):
        plain = await connect(addresses["PLAINTEXT"], None)
        secured = await connect(addresses["SSL"], client_context(authority))
        with pytest.raises(Exception, match=r"closed|reset"):
            await connect(addresses["PLAINTEXT"], None)
        await secured.close()
        async with asyncio.timeout(60):
            while True:  # the broker has seen the end of the other one
                try:
                    secured = await connect(addresses["SSL"], client_context(authority))
                    break
                except OSError:
                    await asyncio.sleep(0)
        for each in (plain, secured):
            await each.close()


def wrong_stores(authority: Authority, tmp_path: Path) -> Iterator[tuple[dict[str, str], str]]:
    """Settings that cannot be used, with the words that say why."""
    one, two = authority.issue("first"), authority.issue("second")
    encrypted = authority.issue("encrypted", password=PASSWORD)
    yield {}, "ssl.keystore.location is not set"
    yield {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tmp_path / "none")}, "No such file"
    yield {**key_store(one), "ssl.keystore.key": two.key.read_text()}, "does not belong to the first certificate"
    yield key_store(encrypted), "the key is encrypted; set .*ssl.key.password"
    yield {**key_store(encrypted), "ssl.key.password": "wrong"}, "cannot be decrypted with"
    yield {**key_store(one), "ssl.keystore.key": "no key"}, "0 private keys"
    yield {**key_store(one), "ssl.principal.mapping.rules": "RULE:x"}, "invalid rule: `RULE:x`"
    yield {**key_store(one), "ssl.cipher.suites": "TLS_NONE"}, "not a supported cipher suite"
    (tmp_path / "k.p12").write_bytes(b"\xfe\xed\xfe\xed....")
    p12 = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(tmp_path / "k.p12")}
    yield {**p12, "ssl.keystore.password": PASSWORD}, "format JKS: convert it by keytool"


async def test_stores_that_cannot_be_used_are_one_line_before_the_ports_open(
    authority: Authority, tmp_path: Path
) -> None:
    for settings, words in wrong_stores(authority, tmp_path):
        with pytest.raises(ConfigError, match=words) as caught:
            async with broker_with(settings, "SSL"):
                pass
        assert PASSWORD not in str(caught.value) and "\n" not in str(caught.value)
        assert "PRIVATE KEY" not in str(caught.value).replace("private keys", "")


async def test_a_wrong_store_ends_serve_with_exit_code_2(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        f"listeners=PLAINTEXT://{HOST}:0,SSL://{HOST}:0\nlog.dirs={tmp_path / 'data'}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={tmp_path / 'none.pem'}\nssl.key.password={PASSWORD}\n"
    )
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "kafkalite", "serve", "--config", str(config), "--log-level", "error")
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    _, errors = await process.communicate()
    said = errors.decode()
    assert process.returncode == 2 and said.count("\n") == 1, said
    assert "ssl.keystore.location" in said and "No such file" in said and PASSWORD not in said


async def test_stores_of_format_pkcs12(authority: Authority, tmp_path: Path) -> None:
    """As Java's keytool and openssl write them."""
    own, store = authority.issue("packed"), tmp_path / "broker.p12"
    await openssl(
        *("pkcs12", "-export", "-in", str(own.cert), "-inkey", str(own.key), "-out", str(store)),
        *("-passout", f"pass:{PASSWORD}", "-certfile", str(authority.cert)),
    )
    settings = {"ssl.keystore.location": str(store), "ssl.keystore.password": PASSWORD}
    async with broker_with(settings, "SSL") as (_, addresses):  # Java's default type JKS reads PKCS12 files
        assert await subject(addresses["SSL"], authority) == "packed"
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.password is not its password"):
        async with broker_with({**settings, "ssl.keystore.type": "PKCS12", "ssl.keystore.password": "x"}, "SSL"):
            pass


async def openssl(*arguments: str, stdin: bytes = b"") -> str:
    """Run openssl; return its output."""
    pipe = asyncio.subprocess.PIPE
    command = await asyncio.create_subprocess_exec(
        "openssl", *arguments, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await command.communicate(stdin)
    return output.decode(errors="replace")


async def test_cve_2019_12399_config_answers_have_no_password(authority: Authority) -> None:
    own = authority.issue("described", password=PASSWORD)
    settings = {**key_store(own, "listener.name.ssl."), "listener.name.ssl.ssl.key.password": PASSWORD}
    async with broker_with(settings, "SSL") as (broker, addresses):
        connection = await connect(addresses["PLAINTEXT"], None)
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=4, resource_name=str(broker.running.broker_id if broker.running else 0)
        )
        answer = await connection.call(DescribeConfigsRequest(resources=[resource], include_synonyms=True))
        (result,) = answer.results
        assert result.error_code == 0
        assert PASSWORD not in repr(answer) and "PRIVATE" not in repr(answer)
        named = {each.name: each for each in result.configs}
        assert named["listener.name.ssl.ssl.key.password"].is_sensitive
        assert named["listener.name.ssl.ssl.key.password"].value is None
        await connection.close()
