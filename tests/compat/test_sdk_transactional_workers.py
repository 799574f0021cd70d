"""The example of docs/transactions.md: two workers process flights, are killed, and each flight is once in the output.

Then the same loop with the blocking clients, and transactions through aiokafka's interface.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from kafkalite_sdk import Consumer, Producer, TopicPartition, blocking
from kafkalite_sdk.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafkalite_sdk.compat.aiokafka.errors import ProducerFenced

from kafkalite.errors import ProducerFencedError, TransactionAbortedError
from tests.compat.conftest import topic_maker, unused_name
from tests.compat.test_sdk_transactions import SETTINGS, read, run
from tests.kit import jvm
from tests.kit.brokers import Broker, broker_under_test, wait_until
from tests.kit.clients.confluent import create_topics
from tests.kit.flights import flights
from tests.kit.seeds import chosen_seed

MakeTopic = Callable[..., str]
PARTITIONS = 4
FLIGHTS = 6_000
KILLS = 4
SEED = chosen_seed()


@pytest.fixture(scope="module")
def transaction_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {**SETTINGS, "group.min.session.timeout.ms": "500"}
    with broker_under_test(tmp_path_factory.mktemp("workers"), settings) as running:
        yield running


@pytest.fixture
def address(transaction_broker: Broker) -> str:
    return transaction_broker.address


@pytest.fixture
def new_topic(address: str, request: pytest.FixtureRequest) -> MakeTopic:
    return topic_maker(address, request.node.originalname)


def documented_worker(directory: Path) -> Path:
    """The program of docs/transactions.md as a file."""
    page = (Path(jvm.ROOT) / "docs/transactions.md").read_text()
    (program,) = re.findall(r"```python\n(# worker\.py\n.*?)```", page, re.DOTALL)
    path = directory / "worker.py"
    path.write_text(program)
    return path


class Workers:
    """Two processes that run the documented program."""

    def __init__(self, program: Path, address: str) -> None:
        self._program = program
        self._address = address
        self._log = program.with_suffix(".log")
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, number: str) -> None:
        with self._log.open("ab") as log:
            command = [sys.executable, str(self._program), self._address, number]
            self._running[number] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, number: str) -> None:
        process = self._running.pop(number)
        process.kill()
        process.wait()

    def check(self) -> None:
        assert all(each.poll() is None for each in self._running.values()), self._log.read_text()

    def close(self) -> None:
        for number in list(self._running):
            self.kill(number)


async def committed(address: str) -> int:
    """The sum of the committed offsets of the group."""
    parts = [TopicPartition("flights", number) for number in range(PARTITIONS)]
    async with Consumer(address, group="delays") as consumer:
        return sum(each.offset for each in (await consumer.committed(parts)).values() if each is not None)


@pytest.mark.torture
@pytest.mark.long_form
def test_each_flight_is_once_in_the_output_of_two_workers_that_are_killed(address: str, tmp_path: Path) -> None:
    create_topics(address, "flights", partitions=PARTITIONS, configs={})
    create_topics(address, "delays", partitions=2, configs={})
    chance = Random(SEED)
    rows = []

    async def fill() -> None:
        async with Producer(address) as producer:
            for each in flights(FLIGHTS):
                rows.append(each.row)
                producer.send("flights", each.value, key=each.key)
                await producer.drain()

    asyncio.run(fill())
    workers = Workers(documented_worker(tmp_path), address)
    try:
        for number in ("1", "2"):
            workers.start(number)
        for kill in range(KILLS):
            wanted = (kill + 1) * FLIGHTS // (KILLS + 2) + chance.randrange(FLIGHTS // 20)
            wait_until(lambda wanted=wanted: asyncio.run(committed(address)) >= wanted, f"{wanted} flights", every=0.05)
            number = chance.choice("12")
            workers.kill(number)
            workers.start(number)

        def complete() -> bool:
            workers.check()
            return asyncio.run(committed(address)) == FLIGHTS

        wait_until(complete, "all flights", every=0.1)
    finally:
        workers.close()
    found = Counter(json.loads(value)["row"] for value in asyncio.run(read(address, "delays", partitions=2)))
    assert found == Counter(rows), f"seed {SEED}"


def test_blocking_clients(address: str, new_topic: MakeTopic) -> None:
    source, target, group = new_topic(), new_topic(), unused_name("group")
    with blocking.Producer(address) as producer:
        for number in range(10):
            producer.send(source, b"%d" % number)
    settings = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 20}
    with (
        blocking.Consumer(address, group=group, **settings) as consumer,
        blocking.Producer(address, transactional_id=unused_name("writer")) as producer,
    ):
        consumer.subscribe(source)
        left, attempts = 10, 0
        while left:
            if not (records := consumer.poll(1.0, max_records=3)):
                continue
            attempts += 1
            try:
                with producer.transaction(consumer):
                    for each in records:
                        producer.send(target, each.value)
                    producer.send_offsets(consumer)
                    if attempts % 2:
                        raise RuntimeError
                left -= len(records)
            except RuntimeError:
                continue
        assert consumer.committed([TopicPartition(source, 0)])[TopicPartition(source, 0)].offset == 10  # type: ignore[union-attr]
        producer.begin_transaction(consumer)
        future = producer.send(target, b"aborted")
        producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            future.result()
        producer.begin_transaction()
        producer.send(target, b"last")
        producer.commit_transaction()
    assert asyncio.run(read(address, target)) == [*(b"%d" % number for number in range(10)), b"last"]


def test_aiokafka_interface(address: str, new_topic: MakeTopic) -> None:
    source, target, group, name = new_topic(), new_topic(), unused_name("group"), unused_name("writer")

    async def story() -> None:
        async with AIOKafkaProducer(bootstrap_servers=address, transactional_id=name) as producer:
            async with producer.transaction():
                await producer.send_and_wait(source, b"in")
            await producer.begin_transaction()
            await producer.send(source, b"aborted")
            await producer.abort_transaction()
            with pytest.raises(ValueError):
                async with producer.transaction():
                    await producer.send(source, b"aborted")
                    raise ValueError
            consumer = AIOKafkaConsumer(
                source,
                bootstrap_servers=address,
                group_id=group,
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
            )
            async with consumer:
                record = await consumer.getone()
                async with producer.transaction():
                    await producer.send(target, record.value)
                    part = TopicPartition(source, record.partition)
                    await producer.send_offsets_to_transaction({part: record.offset + 1}, group)
                assert await consumer.committed(part) == record.offset + 1
            async with AIOKafkaProducer(bootstrap_servers=address, transactional_id=name):
                with pytest.raises(ProducerFenced):
                    async with producer.transaction():
                        await producer.send(target, b"zombie")
        assert ProducerFenced is ProducerFencedError
        assert await read(address, target) == [b"in"]

    run(story())
