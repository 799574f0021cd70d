"""aiokafka: asyncio, no flexible versions on the hot path, so it walks the older encodings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import BrokerResponseError

from tests.kit.clients.family import READING, record_of, writing
from tests.kit.clients.model import DEADLINE_S, EARLIEST, At, Deadline, Record, Refused, Start


class AioKafka:
    """The face of `Client` over aiokafka; each call runs its own event loop."""

    name = "aiokafka"

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
        return asyncio.run(self._write(topic, records, settings))

    @staticmethod
    async def _write(topic: str, records: Sequence[Record], settings: dict[str, object]) -> list[Record]:
        async with asyncio.timeout(DEADLINE_S), AIOKafkaProducer(**settings) as producer:
            waits = [
                await producer.send(
                    topic,
                    record.value,
                    record.key,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                    headers=list(record.headers),
                )
                for record in records
            ]
            try:
                answers = await asyncio.gather(*waits)
            except BrokerResponseError as refusal:
                raise Refused(refusal.errno, str(refusal)) from refusal
            known = settings["acks"] != 0
            return [record.at(a.offset if known else -1) for record, a in zip(records, answers, strict=True)]

    @asynccontextmanager
    async def assigned(
        self, address: str, topic: str, partition: int, start: Start, **settings: object
    ) -> AsyncIterator[AIOKafkaConsumer]:
        """A consumer without a group that reads one partition."""
        consumer = AIOKafkaConsumer(bootstrap_servers=address, **READING, **settings)
        async with consumer:
            topic_partition = TopicPartition(topic, partition)
            consumer.assign([topic_partition])
            await self._seek(consumer, topic_partition, start)
            yield consumer

    @staticmethod
    async def _seek(consumer: AIOKafkaConsumer, topic_partition: TopicPartition, start: Start) -> None:
        if isinstance(start, At):
            found = await consumer.offsets_for_times({topic_partition: start.timestamp_ms})
            consumer.seek(topic_partition, found[topic_partition].offset)
        elif isinstance(start, str):
            await (
                consumer.seek_to_beginning(topic_partition)
                if start == EARLIEST
                else consumer.seek_to_end(topic_partition)
            )
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
        return asyncio.run(self._read(address, topic, count, partition, start, seconds))

    async def _read(
        self, address: str, topic: str, count: int, partition: int, start: Start, seconds: float
    ) -> list[Record]:
        found: list[Record] = []
        deadline = Deadline(f"{count} records of {topic}-{partition} from {start}", seconds)
        async with self.assigned(address, topic, partition, start) as consumer:
            while len(found) < count:
                wait_ms = int(deadline.left(1.0) * 1000)
                try:
                    fetched = await consumer.getmany(timeout_ms=wait_ms, max_records=count - len(found))
                except BrokerResponseError as refusal:
                    raise Refused(refusal.errno, str(refusal)) from refusal
                found.extend(record_of(message) for messages in fetched.values() for message in messages)
        return found

    def bounds(self, address: str, topic: str, partition: int = 0) -> tuple[int, int]:
        async def ask() -> tuple[int, int]:
            topic_partition = TopicPartition(topic, partition)
            async with self.assigned(address, topic, partition, 0) as consumer:
                low, high = (
                    await consumer.beginning_offsets([topic_partition]),
                    await consumer.end_offsets([topic_partition]),
                )
                return low[topic_partition], high[topic_partition]

        return asyncio.run(ask())

    def find(self, address: str, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        async def ask() -> int | None:
            topic_partition = TopicPartition(topic, partition)
            async with self.assigned(address, topic, partition, 0) as consumer:
                found = (await consumer.offsets_for_times({topic_partition: timestamp_ms}))[topic_partition]
                return None if found is None else found.offset

        return asyncio.run(ask())
