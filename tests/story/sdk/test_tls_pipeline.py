"""The SDK over TLS on kafkalite's own pipeline, on asyncio and uvloop: records, wrong settings, renewed files."""

import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk import Consumer, Producer

from kafkalite.errors import KafkaConnectionError, KafkaError, SslAuthenticationError
from tests.kit import aiokafka_examples
from tests.kit.certificates import Authority
from tests.kit.ports import free_port
from tests.kit.tls_broker import HOST, tls_broker
from tests.story.sdk.client_rig import outcome
from tests.story.sdk.test_client_sockets import on_both_loops

RECORDS = 2_000
LARGE_BYTES = 3 << 20


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def options(authority: Authority, **more: Any) -> dict[str, Any]:
    return {"security_protocol": "SSL", "ssl_cafile": authority.cert, **more}


@asynccontextmanager
async def served(authority: Authority, name: str = "broker", **issued: Any) -> AsyncIterator[tuple[str, str]]:
    """The addresses of a broker, plaintext and TLS."""
    ports = free_port(), free_port()
    async with tls_broker(None, authority.issue(name, **issued), ports, {"message.max.bytes": str(2 * LARGE_BYTES)}):
        yield f"{HOST}:{ports[0]}", f"{HOST}:{ports[1]}"


@on_both_loops
async def test_records_over_tls(authority: Authority) -> None:
    """Small ones and large ones, in several fetches, and beside a client without TLS."""
    async with served(authority) as (plaintext, address):
        async with Producer(address, max_request_size=LARGE_BYTES + 1000, **options(authority)) as producer:
            for each in range(RECORDS):
                producer.send("orders", b"%d" % each)
            await producer.send("large", bytes(LARGE_BYTES), partition=0)
            await producer.flush()
        for bootstrap, security in ((address, options(authority)), (plaintext, {})):
            async with Consumer(bootstrap, auto_offset_reset="earliest", **security) as consumer:
                consumer.assign([("orders", 0), ("large", 0)])
                values: list[bytes | None] = []
                while len(values) < RECORDS + 1:
                    values += [each.value for each in await consumer.poll(timeout=10.0)]
            assert bytes(LARGE_BYTES) in values
            assert [each for each in values if len(each or b"") < 10] == [b"%d" % each for each in range(RECORDS)]


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@on_both_loops
async def test_versions_of_tls(authority: Authority, version: str) -> None:
    ports, versions = (free_port(), free_port()), {"ssl.enabled.protocols": version}
    pem = authority.issue("versioned")
    async with tls_broker(None, pem, ports, versions), Producer(f"{HOST}:{ports[1]}", **options(authority)) as producer:
        assert (await producer.send("orders", b"value")).offset == 0


@on_both_loops
async def test_wrong_settings_are_one_clear_error_each(authority: Authority) -> None:
    async with served(authority) as (plaintext, address):
        for bootstrap, security, error, text in (
            (address, {}, KafkaError, "TLS"),
            (plaintext, options(authority), KafkaConnectionError, 'set security_protocol to "PLAINTEXT"'),
            (address, {"security_protocol": "SSL"}, SslAuthenticationError, "set ssl_cafile"),
        ):
            found = await outcome(Producer(bootstrap, **security).start())
            assert isinstance(found, error) and text in str(found) and bootstrap in str(found), found


@on_both_loops
async def test_certificates_of_the_broker_that_are_not_valid(authority: Authority) -> None:
    for name, issued, text in (
        ("named", {"names": "DNS:broker.example"}, "is not for 127.0.0.1"),
        ("expired", {"days": -1}, "has expired"),
    ):
        async with served(authority, name, **issued) as (_, address):
            found = await outcome(Producer(address, **options(authority)).start())
            assert isinstance(found, SslAuthenticationError) and text in str(found), found


@on_both_loops
async def test_issuers_that_have_changed_are_used_for_the_next_connection(authority: Authority, tmp_path: Path) -> None:
    cafile = tmp_path / "ca.pem"
    shutil.copy(Authority(tmp_path / "other").cert, cafile)
    async with served(authority) as (_, address):
        producer = Producer(address, security_protocol="SSL", ssl_cafile=cafile)
        assert isinstance(await outcome(producer.start()), SslAuthenticationError)
        shutil.copy(authority.cert, cafile)
        async with producer:
            assert (await producer.send("orders", b"value")).offset == 0


async def test_listener_that_accepts_and_does_not_speak_tls(authority: Authority) -> None:
    """A port that never answers ends at the deadline."""
    with socket.create_server((HOST, 0)) as silent:
        port = silent.getsockname()[1]
        found = await outcome(Producer(f"{HOST}:{port}", connect_timeout_ms=200, **options(authority)).start())
    assert isinstance(found, KafkaError) and "did not answer in 0.2 s" in str(found)


async def test_programs_for_aiokafka(authority: Authority) -> None:
    """They run on aiokafka, and unedited on the compatibility module."""
    async with served(authority) as (_, address):
        for module in ("aiokafka", "kafkalite_sdk.compat.aiokafka"):
            arguments = (address, module.replace(".", "-"), str(authority.cert))
            assert await aiokafka_examples.found_by(module, *arguments) == aiokafka_examples.EXPECTED_WITH_TLS
