"""The broker goes away under running clients and comes back on the same port: nothing acknowledged is lost.

Idempotent producers go on numbering across the restart, so each record is there exactly once; the reader that ran all
the time sees them in order without a gap.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Protocol

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.compat.conftest import unused_name
from tests.kit.brokers import Broker, broker_under_test
from tests.kit.clients import PYTHON_CLIENTS
from tests.kit.clients.confluent import Delivery, Outgoing, PartitionReader, RecordProducer, create_topics
from tests.kit.clients.model import DEADLINE_S, Deadline
from tests.kit.clients.python import KafkaConsumer, KafkaProducer
from tests.kit.clients.python import TopicPartition as PythonTopicPartition
from tests.kit.isolated import Isolated

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
RECORDS = 3000
# The broker goes when this many are acknowledged, so that others are on their way.
GOES_AFTER = 1000


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that the tests of this module may stop and kill."""
    with broker_under_test(tmp_path_factory.mktemp("mortal")) as running:
        yield running


@pytest.fixture
def topic(mortal: Broker) -> str:
    name = unused_name("restart")
    create_topics(mortal.address, name)
    return name


@pytest.fixture(autouse=True)
def lost_sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """kafka-python leaves the sockets of vain attempts to the collector: collect here, where that is forgiven.

    Its log records would keep them alive beyond the test.
    """
    monkeypatch.setattr(logging.getLogger("kafka"), "disabled", True)
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("kafka.")]:
        monkeypatch.setattr(logging.getLogger(name), "disabled", True)
    yield
    gc.collect()


class Restart(threading.Thread):
    """Stops or kills the broker once `count` acknowledgements were reported, and starts it again."""

    def __init__(self, broker: Broker, how: str) -> None:
        super().__init__(name="restart")
        self._broker, self._how = broker, how
        self._due = threading.Event()
        self.acknowledged = 0
        self.failure: BaseException | None = None
        self.start()

    def count(self) -> None:
        """One more is acknowledged."""
        self.acknowledged += 1
        if self.acknowledged == GOES_AFTER:
            self._due.set()

    def run(self) -> None:
        try:
            assert self._due.wait(DEADLINE_S), f"only {self.acknowledged} acknowledged"
            if self._how == "SIGKILL":
                self._broker.kill()
            else:
                assert self._broker.stop() == self._broker.clean_exit
            self._broker.start()
        except BaseException as failure:
            self.failure = failure
            raise

    def finished(self) -> None:
        """Wait for the restart; raises what went wrong in it."""
        self.join(2 * DEADLINE_S)
        assert not self.is_alive()
        assert self.failure is None, self.failure


class Story(Protocol):
    """Produces 0..RECORDS-1 while a reader follows; returns what the reader saw."""

    def __call__(self, address: str, topic: str, restart: Restart) -> list[int]: ...


def librdkafka_story(address: str, topic: str, restart: Restart) -> list[int]:
    settings = {"bootstrap.servers": address, "reconnect.backoff.max.ms": 500}
    idempotent = {**settings, "enable.idempotence": True, "linger.ms": 1, "batch.num.messages": 20}
    errors: list[str] = []

    def note(delivered: Sequence[Delivery]) -> None:
        for each in delivered:
            if each.error:
                errors.append(each.error)
            restart.count()

    seen: list[int] = []
    deadline = Deadline(f"{RECORDS} records through a restart", 3 * DEADLINE_S)
    with (
        Isolated(RecordProducer, idempotent) as producer,
        Isolated(PartitionReader, settings, {(topic, 0): 0}) as reader,
    ):
        for number in range(RECORDS):
            note(producer.send(topic, [Outgoing(number, str(number).encode(), partition=0)], 0.001))
        while len(seen) < RECORDS:
            deadline.left()
            note(producer.poll(0))
            records, _ = reader.consume(500, 0.1)
            seen += [int(record.value) for record in records]
        left, delivered = producer.flush(DEADLINE_S)
        note(delivered)
    assert left == 0
    assert not errors
    return seen


def aiokafka_story(address: str, topic: str, restart: Restart) -> list[int]:
    async def read_positions() -> list[int]:
        settings = {"bootstrap_servers": address, "retry_backoff_ms": 50, "request_timeout_ms": 120_000}
        producer = AIOKafkaProducer(**settings, enable_idempotence=True, linger_ms=1, max_batch_size=2000)
        consumer = AIOKafkaConsumer(**settings, group_id=None, auto_offset_reset="earliest", enable_auto_commit=False)
        async with asyncio.timeout(3 * DEADLINE_S), producer, consumer:
            consumer.assign([TopicPartition(topic, 0)])
            reading = asyncio.create_task(follow(consumer))
            waits = []
            for number in range(RECORDS):
                wait = await producer.send(topic, str(number).encode(), partition=0)
                wait.add_done_callback(lambda _: restart.count())
                waits.append(wait)
            await asyncio.gather(*waits)
            return await reading

    async def follow(consumer: AIOKafkaConsumer) -> list[int]:
        return [int((await consumer.getone()).value) for _ in range(RECORDS)]

    return asyncio.run(read_positions())


def kafka_python_story(address: str, topic: str, restart: Restart) -> list[int]:
    settings = {"bootstrap_servers": address, "reconnect_backoff_max_ms": 500, "request_timeout_ms": 10_000}
    consumer = KafkaConsumer(**settings, group_id=None, auto_offset_reset="earliest", enable_auto_commit=False)
    deadline = Deadline(f"{RECORDS} records through a restart", 3 * DEADLINE_S)
    seen: list[int] = []
    with closing(KafkaProducer(**settings, batch_size=2000)) as producer, closing(consumer):
        consumer.assign([PythonTopicPartition(topic, 0)])
        waits = []
        for number in range(RECORDS):
            wait = producer.send(topic, str(number).encode(), partition=0)
            wait.add_callback(lambda _: restart.count())
            waits.append(wait)
        while len(seen) < RECORDS:
            for messages in consumer.poll(int(deadline.left(0.5) * 1000)).values():
                seen.extend(int(message.value) for message in messages)
        for wait in waits:
            wait.get(DEADLINE_S)
    return seen


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("story", [librdkafka_story, aiokafka_story, kafka_python_story])
def test_broker_restart_loses_no_record(mortal: Broker, topic: str, story: Story, how: str) -> None:
    restart = Restart(mortal, how)
    try:
        seen = story(mortal.address, topic, restart)
    finally:
        restart.finished()
    assert seen == list(range(RECORDS)), "each once and in order, to the reader that ran through it"
    again = PYTHON_CLIENTS[0].read(mortal.address, topic, RECORDS)
    assert [int(record.value or b"") for record in again] == seen, "and to one that came later"
