"""confluent-kafka: librdkafka under a thin Python layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import confluent_kafka as ck

from tests.compat.clients.model import DEADLINE_S, EARLIEST, At, Deadline, Record, Refused, Start

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
    """The face of `Client` over librdkafka."""

    name = "confluent-kafka"

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

    @contextmanager
    def assigned(
        self, address: str, topic: str, partition: int, start: Start, **settings: object
    ) -> Iterator[ck.Consumer]:
        """A consumer that reads one partition and never commits (librdkafka insists on a group name, no more)."""
        consumer = ck.Consumer(
            {
                "bootstrap.servers": address,
                "log_level": QUIET,
                "group.id": "never-joined",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": 4 << 20,
                **settings,
            }
        )
        try:
            consumer.assign([ck.TopicPartition(topic, partition, self._offset(consumer, topic, partition, start))])
            yield consumer
        finally:
            consumer.close()

    @staticmethod
    def _offset(consumer: ck.Consumer, topic: str, partition: int, start: Start) -> int:
        if isinstance(start, At):
            wanted = [ck.TopicPartition(topic, partition, start.timestamp_ms)]
            return int(consumer.offsets_for_times(wanted, timeout=DEADLINE_S)[0].offset)
        if isinstance(start, str):
            return ck.OFFSET_BEGINNING if start == EARLIEST else ck.OFFSET_END
        return start

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
        with self.assigned(address, topic, partition, start) as consumer:
            deadline = Deadline(f"{count} records of {topic}-{partition} from {start}", seconds)
            while len(found) < count:
                for message in consumer.consume(count - len(found), timeout=deadline.left(1.0)):
                    if message.error():
                        raise Refused(message.error().code(), message.error().str())
                    found.append(record_of(message))
        return found

    def bounds(self, address: str, topic: str, partition: int = 0) -> tuple[int, int]:
        with self.assigned(address, topic, partition, 0) as consumer:
            low, high = consumer.get_watermark_offsets(ck.TopicPartition(topic, partition), timeout=DEADLINE_S)
            return low, high

    def find(self, address: str, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        with self.assigned(address, topic, partition, 0) as consumer:
            wanted = [ck.TopicPartition(topic, partition, timestamp_ms)]
            offset = int(consumer.offsets_for_times(wanted, timeout=DEADLINE_S)[0].offset)
            return None if offset == ck.OFFSET_END else offset
