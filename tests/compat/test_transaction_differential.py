"""Random requests of transactional producers of both versions: this broker answers as Apache Kafka 4.4 does.

Each sequence prints its seed; `KAFKALITE_SEED=n` repeats it alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from kafkalite.net.client import ClientConnection
from kafkalite.server.broker import Broker
from tests.kit import jvm
from tests.kit.brokers import ApacheKafka
from tests.kit.seeds import seeds_of
from tests.kit.transactions.differential import Sequence, Side

pytestmark = [
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}"),
    pytest.mark.xdist_group("transaction-differential"),
]
STEPS = 12
SEQUENCES, MANY = 50, 2_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running Apache Kafka."""
    running = ApacheKafka(tmp_path_factory.mktemp("kafka"), {})
    running.start()
    try:
        yield running.address
    finally:
        running.kill()


async def run_sequences(kafka: str, version: int, count: int) -> None:
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(Broker())
        sides = []
        for address in (broker.address, kafka):
            host, port = address.rsplit(":", 1)
            side = Side(await stack.enter_async_context(ClientConnection(host, int(port))), version)
            await side.prepare()
            sides.append(side)
        for seed in seeds_of(count):
            try:
                await Sequence(seed, version, *sides).run(STEPS)
            except BaseException:
                print(f"KAFKALITE_SEED={seed}")
                raise


@pytest.mark.parametrize("version", [1, 2])
def test_requests_are_answered_as_by_apache_kafka(kafka: str, version: int, record_property) -> None:
    began = time.monotonic()
    asyncio.run(run_sequences(kafka, version, SEQUENCES))
    took_s = time.monotonic() - began
    record_property("summary", f"transactions: {SEQUENCES} sequences of version {version} in {took_s:.1f} s")


@pytest.mark.torture
@pytest.mark.long_form
@pytest.mark.parametrize("version", [1, 2])
def test_many_requests_are_answered_as_by_apache_kafka(kafka: str, version: int) -> None:
    asyncio.run(run_sequences(kafka, version, MANY))
