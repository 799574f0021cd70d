"""A year of flights through two kills: every acknowledged flight is kept, once, in order, at its offset.

The producer is librdkafka (lz4, acks=all, idempotent), the readers are aiokafka and kafka-python; the files are judged
by `kafkalite log dump` and by Apache Kafka's DumpLogSegments. `AGAINST=kafka` runs it against Apache Kafka: the judge
itself must find nothing wrong there. The short form has four months of the year.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.compat.disk import batches_on_disk
from tests.fix_torture import is_long
from tests.kit import jvm
from tests.kit.brokers import IS_KAFKALITE, Broker, broker_under_test
from tests.kit.clients.confluent import Delivery, Outgoing, RecordProducer, create_topics
from tests.kit.clients.model import Deadline
from tests.kit.clients.python import KafkaConsumer
from tests.kit.clients.python import TopicPartition as PythonTopicPartition
from tests.kit.flights import FLIGHTS, SHORT_FLIGHTS, Acknowledged, Flight, Landed, flights, judge, today
from tests.kit.foreign_warnings import FOREIGN_WARNINGS
from tests.kit.isolated import Isolated

TOPIC = "flights"
PARTITIONS = 12
IN_FLIGHT_MIN = 1_000
# So many may be unacknowledged: enough for the kill to hit many requests, few enough to stay in the client's buffer.
IN_FLIGHT_MAX = 20_000
STORY_S = 300.0
FLUSH_S = 200.0  # less than a call of an isolated client may take
DUMPED_TOGETHER = 4  # partitions: more paths do not fit into an argument
AT_ONCE = 200  # flights that are handed to the producer together

pytestmark = [
    *map(pytest.mark.filterwarnings, FOREIGN_WARNINGS),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


class Tower:
    """Sends flights and notes what is acknowledged; its producer runs in a process that can be killed."""

    def __init__(self, address: str, count: int) -> None:
        self.acknowledged = Acknowledged(count)
        self.sent = 0
        self.errors: list[str] = []
        self._waiting: list[Outgoing] = []
        settings = {
            "bootstrap.servers": address,
            "compression.type": "lz4",
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "partitioner": "murmur2_random",
            "reconnect.backoff.max.ms": 200,
        }
        self._producer = Isolated(RecordProducer, settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()

    @property
    def in_flight(self) -> int:
        return self.sent - self.acknowledged.count

    def send(self, flight: Flight) -> None:
        """Hand it to the producer, with others; waits for acknowledgements while too many are in flight."""
        self._waiting.append(Outgoing(flight.row, flight.value, flight.key, timestamp_ms=flight.timestamp_ms))
        if len(self._waiting) == AT_ONCE:
            self._hand_over()

    def _hand_over(self) -> None:
        self._note(self._producer.send(TOPIC, self._waiting))
        self.sent += len(self._waiting)
        self._waiting.clear()
        deadline = Deadline("acknowledgements of flights", STORY_S)
        while self.in_flight >= IN_FLIGHT_MAX:
            self._note(self._producer.poll(deadline.left(0.1)))

    def _note(self, delivered: Sequence[Delivery]) -> None:
        for each in delivered:
            if each.error:
                self.errors.append(f"flight {each.number}: {each.error}")
            else:
                self.acknowledged.note(each.number, each.partition, each.offset)

    def note_arrived(self) -> None:
        """Note every acknowledgement that has arrived."""
        while delivered := self._producer.poll(0):
            self._note(delivered)

    def land_all(self) -> None:
        """Wait until all are acknowledged."""
        self._hand_over()
        left, delivered = self._producer.flush(FLUSH_S)
        self._note(delivered)
        assert left == 0, "flights in the air"
        assert self.errors == []


def kill_in_full_flight(broker: Broker, tower: Tower) -> None:
    """SIGKILL while many are on their way; those that the broker acknowledged before it died are counted first."""
    broker.kill()
    tower.note_arrived()
    assert tower.in_flight >= IN_FLIGHT_MIN, "nothing to lose: the kill proves nothing"
    broker.start()


@pytest.mark.torture
def test_flights_are_produced_and_consumed_completely(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    count = FLIGHTS if is_long(pytestconfig) else SHORT_FLIGHTS
    schedule = flights(count) if IS_KAFKALITE else today(flights(count))
    with broker_under_test(tmp_path / "broker") as broker:
        make_topic(broker)
        kills = [count // 3, 2 * count // 3]
        with Tower(broker.address, count) as tower:
            for flight in schedule:
                tower.send(flight)
                if kills and tower.acknowledged.count >= kills[0]:
                    broker.freeze()  # wherever it is; flights pile up, however fast it was
                    if tower.in_flight > IN_FLIGHT_MAX // 2:
                        kills.pop(0)
                        kill_in_full_flight(broker, tower)
            tower.land_all()
        assert kills == []
        assert tower.acknowledged.count == count
        ends = ends_of(tower.acknowledged)
        for reader in (read_by_aiokafka, read_by_kafka_python):
            assert judge(schedule, tower.acknowledged, reader(broker.address, ends))[:10] == [], reader.__name__
        assert broker.stop() == broker.clean_exit
        dumped_by_kafkalite(broker)
        dumped_by_kafka(broker)


def make_topic(broker: Broker) -> None:
    create_topics(broker.address, TOPIC, partitions=PARTITIONS, configs={"retention.ms": "-1"})


def ends_of(acknowledged: Acknowledged) -> dict[int, int]:
    """Partition -> the offset after its last acknowledged flight."""
    ends = dict.fromkeys(range(PARTITIONS), 0)
    for partition, offset in zip(acknowledged.partitions, acknowledged.offsets, strict=True):
        ends[partition] = max(ends[partition], offset + 1)
    return ends


def read_by_aiokafka(address: str, ends: dict[int, int]) -> list[Landed]:
    async def read() -> list[Landed]:
        landed: list[Landed] = []
        consumer = AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest", enable_auto_commit=False)
        async with asyncio.timeout(STORY_S), consumer:
            consumer.assign([TopicPartition(TOPIC, partition) for partition in ends])
            while len(landed) < sum(ends.values()):
                for messages in (await consumer.getmany(timeout_ms=1000)).values():
                    landed.extend(Landed(m.partition, m.offset, m.key, m.value, m.timestamp) for m in messages)
        return landed

    return asyncio.run(read())


def read_by_kafka_python(address: str, ends: dict[int, int]) -> Iterator[Landed]:
    consumer = KafkaConsumer(
        bootstrap_servers=address, group_id=None, auto_offset_reset="earliest", enable_auto_commit=False
    )
    deadline = Deadline("all flights", STORY_S)
    left = sum(ends.values())
    with closing(consumer):
        consumer.assign([PythonTopicPartition(TOPIC, partition) for partition in ends])
        while left:
            for messages in consumer.poll(int(deadline.left(1.0) * 1000), max_records=5000).values():
                left -= len(messages)
                for m in messages:
                    yield Landed(m.partition, m.offset, m.key, m.value, m.timestamp)


def dumped_by_kafkalite(broker: Broker) -> None:
    """`kafkalite log dump` reads every partition and finds nothing wrong."""
    command = [sys.executable, "-m", "kafkalite", "log", "dump", str(broker.data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STORY_S)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert all(f"{TOPIC}-{partition}" in done.stdout for partition in range(PARTITIONS))


def dumped_by_kafka(broker: Broker) -> None:
    """Apache Kafka's DumpLogSegments sees as many batches as we do, and nothing wrong."""
    from tests.kit import dump_log

    if (reason := jvm.java_missing()) is not None:
        pytest.skip(f"DumpLogSegments: {reason}")
    for first in range(0, PARTITIONS, DUMPED_TOGETHER):
        partitions = range(first, first + DUMPED_TOGETHER)
        paths = [path for number in partitions for path in sorted((broker.data / f"{TOPIC}-{number}").iterdir())]
        report = dump_log.dump_files(path for path in paths if path.suffix in dump_log.SUFFIXES)
        assert report.problems == []
        assert report.batches == sum(len(batches_on_disk(broker.data, TOPIC, number)) for number in partitions)


def landed_well(count: int = 6) -> tuple[list[Flight], Acknowledged, list[Landed]]:
    """A small log without a fault: two keys, one partition."""
    sent = [Flight(row, b"N%d" % (row % 2), b'{"row":%d,}' % row, 1000 + row) for row in range(count)]
    acknowledged = Acknowledged(count)
    for flight in sent:
        acknowledged.note(flight.row, 0, flight.row)
    return sent, acknowledged, [Landed(0, f.row, f.key, f.value, f.timestamp_ms) for f in sent]


def test_checker_accepts_a_correct_history() -> None:
    assert judge(*landed_well()) == []


@pytest.mark.parametrize(
    ("damage", "verdict"),
    [
        (lambda log: log.pop(), "1 acknowledged flights are lost, the first is 5"),
        (lambda log: log.append(replace(log[0], offset=6)), "flight 0 is there twice, again at 0:6"),
        (lambda log: log.__setitem__(2, replace(log[2], timestamp_ms=0)), "flight 2 was changed"),
        (lambda log: log.__setitem__(2, replace(log[2], key=b"N9")), "flight 2 was changed"),
        (lambda log: log.append(Landed(0, 6, None, b'{"row":99,}', 0)), "row 99 was never sent"),
        (
            lambda log: log.__setitem__(slice(0, 3, 2), [replace(log[2], offset=0), replace(log[0], offset=2)]),
            "flight 0 of b'N0' lies behind a later one",
        ),
        (lambda log: log.pop(3), "a gap before 0:4"),
        (
            lambda log: log.__setitem__(5, replace(log[5], partition=1, offset=0)),
            "flight 5 lies at 1:0, acknowledged at (0, 5)",
        ),
    ],
)
def test_checker_finds_every_planted_violation(damage: object, verdict: str) -> None:
    sent, acknowledged, log = landed_well()
    damage(log)  # type: ignore[operator]
    assert verdict in judge(sent, acknowledged, log)
