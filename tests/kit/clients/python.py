"""kafka-python 3: a schema engine of its own, flexible versions, incremental fetch sessions."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from tests.kit.clients.family import READING, record_of, writing
from tests.kit.clients.model import DEADLINE_S, EARLIEST, At, Deadline, Record, Refused, Start

with warnings.catch_warnings():
    # It loads its schemas with importlib.resources.read_text, deprecated from Python 3.11 to 3.12.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import BrokerResponseError


class KafkaPython:
    """The face of `Client` over kafka-python."""

    name = "kafka-python"

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
        settings = writing(address, codec, acks, idempotent, request_bytes_max)
        with closing(KafkaProducer(**settings)) as producer:
            waits = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(DEADLINE_S)
            try:
                answers = [wait.get(DEADLINE_S) for wait in waits]
            except BrokerResponseError as refusal:
                raise Refused(refusal.errno, str(refusal)) from refusal
        return [record.at(a.offset if acks != "0" else -1) for record, a in zip(records, answers, strict=True)]

    @contextmanager
    def assigned(
        self, address: str, topic: str, partition: int, start: Start, **settings: object
    ) -> Iterator[KafkaConsumer]:
        """A consumer without a group that reads one partition."""
        consumer = KafkaConsumer(bootstrap_servers=address, **READING, **settings)
        with closing(consumer):
            topic_partition = TopicPartition(topic, partition)
            consumer.assign([topic_partition])
            self._seek(consumer, topic_partition, start)
            yield consumer

    @staticmethod
    def _seek(consumer: KafkaConsumer, topic_partition: TopicPartition, start: Start) -> None:
        if isinstance(start, At):
            consumer.seek(
                topic_partition,
                consumer.offsets_for_times({topic_partition: start.timestamp_ms})[topic_partition].offset,
            )
        elif isinstance(start, str):
            (consumer.seek_to_beginning if start == EARLIEST else consumer.seek_to_end)(topic_partition)
        else:
            consumer.seek(topic_partition, start)

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
        deadline = Deadline(f"{count} records of {topic}-{partition} from {start}", seconds)
        with self.assigned(address, topic, partition, start) as consumer:
            while len(found) < count:
                wait_ms = int(deadline.left(1.0) * 1000)
                try:
                    fetched = consumer.poll(wait_ms, max_records=count - len(found))
                except BrokerResponseError as refusal:
                    raise Refused(refusal.errno, str(refusal)) from refusal
                found.extend(record_of(message) for messages in fetched.values() for message in messages)
        return found

    def bounds(self, address: str, topic: str, partition: int = 0) -> tuple[int, int]:
        topic_partition = TopicPartition(topic, partition)
        with self.assigned(address, topic, partition, 0) as consumer:
            return consumer.beginning_offsets([topic_partition])[topic_partition], consumer.end_offsets(
                [topic_partition]
            )[topic_partition]

    def find(self, address: str, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        topic_partition = TopicPartition(topic, partition)
        with self.assigned(address, topic, partition, 0) as consumer:
            found = consumer.offsets_for_times({topic_partition: timestamp_ms})[topic_partition]
            return None if found is None else found.offset
