"""confluent-kafka: librdkafka under a thin Python layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kit.clients.model import DEADLINE_S, EARLIEST, At, Deadline, Record, Refused, Start
from tests.kit.isolated import closed_later, dropped_later, killable

QUIET = 2  # librdkafka logs each lost connection to standard error otherwise


def record_of(message: ck.Message) -> Record:
    """A consumed message in our words."""
    return Record(
        value=message.value(),
        key=message.key(),
        headers=tuple(message.headers() or ()),
        timestamp_ms=message.timestamp()[1],
        partition=message.partition(),
        offset=message.offset(),
    )


class Confluent:
    """The face of `Client` over librdkafka; each call runs in a process that can be killed."""

    name = "confluent-kafka"

    @killable
    def write(
        self,
        address: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        request_bytes_max: int | None = None,
    ) -> list[Record]:
        settings = {
            "bootstrap.servers": address,
            "log_level": QUIET,
            "compression.type": codec,
            "acks": acks,
            "enable.idempotence": idempotent,
            "linger.ms": 5,
        }
        if request_bytes_max is not None:
            settings["message.max.bytes"] = request_bytes_max
        producer = ck.Producer(settings)
        dropped_later(producer)
        offsets: dict[int, int] = {}
        errors: list[ck.KafkaError] = []
        for index, record in enumerate(records):
            self._send(producer, topic, record, index, offsets, errors)
        left = producer.flush(DEADLINE_S)
        if errors:
            raise Refused(errors[0].code(), errors[0].str())
        assert left == 0, f"{left} records unacknowledged"
        return [record.at(offsets[index] if acks != "0" else -1) for index, record in enumerate(records)]

    @staticmethod
    def _send(
        producer: ck.Producer,
        topic: str,
        record: Record,
        index: int,
        offsets: dict[int, int],
        errors: list[ck.KafkaError],
    ) -> None:
        def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
            if error is not None:
                errors.append(error)
            else:
                offsets[index] = message.offset()

        try:
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=delivered,
                timestamp=record.timestamp_ms or 0,
                headers=list(record.headers),
            )
        except ck.KafkaException as refusal:
            raise Refused(refusal.args[0].code(), refusal.args[0].str()) from refusal

    def opened(self, address: str) -> ck.Consumer:
        """A consumer that never joins a group or commits (librdkafka insists on a group name, no more)."""
        consumer = ck.Consumer(
            {
                "bootstrap.servers": address,
                "log_level": QUIET,
                "group.id": "never-joined",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": 4 << 20,
            }
        )
        closed_later(consumer.close)
        return consumer

    @staticmethod
    def _offset(consumer: ck.Consumer, topic: str, partition: int, start: Start) -> int:
        if isinstance(start, At):
            wanted = [ck.TopicPartition(topic, partition, start.timestamp_ms)]
            return int(consumer.offsets_for_times(wanted, timeout=DEADLINE_S)[0].offset)
        if isinstance(start, str):
            return ck.OFFSET_BEGINNING if start == EARLIEST else ck.OFFSET_END
        return start

    @killable
    def read(
        self,
        address: str,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        start: Start = EARLIEST,
        seconds: float = DEADLINE_S,
    ) -> list[Record]:
        found: list[Record] = []
        consumer = self.opened(address)
        consumer.assign([ck.TopicPartition(topic, partition, self._offset(consumer, topic, partition, start))])
        deadline = Deadline(f"{count} records of {topic}-{partition} from {start}", seconds)
        while len(found) < count:
            for message in consumer.consume(count - len(found), timeout=deadline.left(1.0)):
                if message.error():
                    raise Refused(message.error().code(), message.error().str())
                found.append(record_of(message))
        return found

    @killable
    def bounds(self, address: str, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = self.opened(address)
        low, high = consumer.get_watermark_offsets(ck.TopicPartition(topic, partition), timeout=DEADLINE_S)
        return low, high

    @killable
    def find(self, address: str, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        consumer = self.opened(address)
        wanted = [ck.TopicPartition(topic, partition, timestamp_ms)]
        offset = int(consumer.offsets_for_times(wanted, timeout=DEADLINE_S)[0].offset)
        return None if offset == ck.OFFSET_END else offset


class GroupConsumer:
    """A consumer of a group, for `Isolated`: what it answers can be pickled."""

    def __init__(self, settings: dict[str, object], topics: Sequence[str]) -> None:
        self.assignments = 0  # how often it was given partitions
        self._consumer = ck.Consumer(settings)
        self._consumer.subscribe(list(topics), on_assign=self._assigned)

    def _assigned(self, *_: object) -> None:
        self.assignments += 1

    def consume(self, count: int, timeout_s: float) -> tuple[list[tuple[str, int, int]], list[ck.KafkaError]]:
        """At most `count` records as (topic, partition, offset), and errors."""
        messages = self._consumer.consume(count, timeout_s)
        errors = [message.error() for message in messages if message.error() is not None]
        return [(m.topic(), m.partition(), m.offset()) for m in messages if m.error() is None], errors

    def assignment(self) -> tuple[frozenset[tuple[str, int]], int]:
        """The partitions it has, and how often it was given some."""
        return frozenset((each.topic, each.partition) for each in self._consumer.assignment()), self.assignments

    def commit(self, offsets: dict[tuple[str, int], int] | None = None) -> None:
        """Commit these offsets, or the positions. Raises KafkaException."""
        if offsets is None:
            self._consumer.commit(asynchronous=False)
        else:
            wanted = [ck.TopicPartition(*topic_partition, offset) for topic_partition, offset in offsets.items()]
            self._consumer.commit(offsets=wanted, asynchronous=False)

    def commit_positions(self) -> dict[tuple[str, int], int]:
        """Commit the position of each partition that has one; the offsets that the broker accepted."""
        read = [each for each in self._consumer.position(self._consumer.assignment()) if each.offset >= 0]
        taken = self._consumer.commit(offsets=read, asynchronous=False) if read else []
        return {(each.topic, each.partition): each.offset for each in taken if each.error is None}

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


class Outgoing(NamedTuple):
    """A record on its way to a broker; `number` names it in its `Delivery`."""

    number: int
    value: bytes
    key: bytes | None = None
    partition: int = -1  # chosen by the partitioner
    timestamp_ms: int = 0


class Delivery(NamedTuple):
    """What became of a record; `error` is "" for an acknowledged one, `offset` is None where librdkafka has none."""

    number: int
    partition: int
    offset: int | None
    error: str


class RecordProducer:
    """A producer for `Isolated`: each call returns what was delivered since the one before."""

    def __init__(self, settings: dict[str, object]) -> None:
        self._producer = ck.Producer({"log_level": QUIET, **settings})
        self._delivered: list[Delivery] = []

    def _note(self, number: int, error: ck.KafkaError | None, message: ck.Message) -> None:
        text = "" if error is None else str(error)
        self._delivered.append(Delivery(number, message.partition(), -1 if error else message.offset(), text))

    def _new(self) -> list[Delivery]:
        found, self._delivered = self._delivered, []
        return found

    def send(self, topic: str, records: Sequence[Outgoing], wait_s: float = 0.0) -> list[Delivery]:
        """Queue records, then wait up to `wait_s` seconds for deliveries. Raises BufferError, KafkaException."""
        for each in records:
            noted = partial(self._note, each.number)
            self._producer.produce(
                topic, each.value, each.key, each.partition, on_delivery=noted, timestamp=each.timestamp_ms
            )
            self._producer.poll(0)
        self._producer.poll(wait_s)
        return self._new()

    def poll(self, wait_s: float) -> list[Delivery]:
        """Wait up to `wait_s` seconds for deliveries."""
        self._producer.poll(wait_s)
        return self._new()

    def flush(self, timeout_s: float) -> tuple[int, list[Delivery]]:
        """Wait until all are delivered; how many are not."""
        left = self._producer.flush(timeout_s)
        return left, self._new()

    def purge(self) -> None:
        """Give up what is not delivered."""
        self._producer.purge()

    def partitions(self, topic: str) -> int:
        """The number of partitions of the topic, from a broker."""
        return len(self._producer.list_topics(topic, DEADLINE_S).topics[topic].partitions)

    def close(self) -> None:
        """The producer ends with its process."""


class PartitionReader:
    """A consumer of partitions that it is given, without a group, for `Isolated`."""

    def __init__(self, settings: dict[str, object], offsets: dict[tuple[str, int], int]) -> None:
        never = {"group.id": "never-joined", "enable.auto.commit": False, "log_level": QUIET}
        self._consumer = ck.Consumer({**never, **settings})
        self._consumer.assign(
            [ck.TopicPartition(*topic_partition, offset) for topic_partition, offset in offsets.items()]
        )

    def add(self, topic: str, partition: int, offset: int) -> None:
        """Read one more partition from an offset on."""
        self._consumer.incremental_assign([ck.TopicPartition(topic, partition, offset)])

    def consume(self, count: int, timeout_s: float) -> tuple[list[Record], list[ck.KafkaError]]:
        """At most `count` records, and errors."""
        messages = self._consumer.consume(count, timeout_s)
        errors = [message.error() for message in messages if message.error() is not None]
        return [record_of(message) for message in messages if message.error() is None], errors

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


@killable
def create_topics(address: str, *names: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
    """Create topics by librdkafka's AdminClient."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": QUIET})
    dropped_later(admin)
    new = [NewTopic(name, partitions, 1, config=configs or {}) for name in names]
    for created in admin.create_topics(new).values():
        created.result(DEADLINE_S)
