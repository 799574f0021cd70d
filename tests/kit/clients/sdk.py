"""kafkalite's own SDK, behind the same face as the foreign clients; and as a member of groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from kafkalite_sdk import Consumer, Producer, TopicPartition

from kafkalite.errors import KafkaError
from tests.kit.clients.members import HEARTBEAT_MS, POLL_S, REFRESH_MS, Crowd, Kind, Member, Seen, Wish
from tests.kit.clients.model import DEADLINE_S, EARLIEST, At, Deadline, Record, Refused, Start


class Sdk:
    """The face of `Client` over the SDK; each call runs its own event loop."""

    name = "sdk"

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
        settings: dict[str, Any] = {
            "compression_type": codec,
            "acks": acks if acks == "all" else int(acks),
            "enable_idempotence": idempotent,
        }
        if request_bytes_max is not None:
            settings["max_request_size"] = request_bytes_max
        return asyncio.run(self._write(address, topic, records, settings))

    @staticmethod
    async def _write(address: str, topic: str, records: Sequence[Record], settings: dict[str, Any]) -> list[Record]:
        async with asyncio.timeout(DEADLINE_S), Producer(address, **settings) as producer:
            waits = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                    headers=record.headers or None,
                )
                for record in records
            ]
            answers = await asyncio.gather(*waits, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise Refused(getattr(answer, "code", -1), str(answer)) from answer
        return [record.at(answer.offset) for record, answer in zip(records, answers, strict=True)]

    @asynccontextmanager
    async def assigned(
        self, address: str, topic: str, partition: int, start: Start, **settings: Any
    ) -> AsyncIterator[Consumer]:
        """A consumer without a group that reads one partition."""
        async with Consumer(address, auto_offset_reset="none", **settings) as consumer:
            topic_partition = TopicPartition(topic, partition)
            consumer.assign([topic_partition])
            if isinstance(start, At):
                consumer.seek_to_time(start.timestamp_ms, topic_partition)
            elif isinstance(start, str):
                seek = consumer.seek_to_beginning if start == EARLIEST else consumer.seek_to_end
                seek(topic_partition)
            else:
                consumer.seek(topic_partition, start)
            yield consumer

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
                try:
                    fetched = await consumer.poll(deadline.left(1.0), max_records=count - len(found))
                except KafkaError as error:
                    raise Refused(error.code, str(error)) from error
                found.extend(record_of(record) for record in fetched)
        return found

    def bounds(self, address: str, topic: str, partition: int = 0) -> tuple[int, int]:
        async def query() -> tuple[int, int]:
            at = TopicPartition(topic, partition)
            async with self.assigned(address, topic, partition, 0) as consumer:
                first, end = await consumer.beginning_offsets([at]), await consumer.end_offsets([at])
                return first[at], end[at]

        return asyncio.run(query())

    def find(self, address: str, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        async def query() -> int | None:
            at = TopicPartition(topic, partition)
            async with self.assigned(address, topic, partition, 0) as consumer:
                found = (await consumer.offsets_for_times({at: timestamp_ms}))[at]
                return None if found is None else found.offset

        return asyncio.run(query())


def read_to_end(address: str, topic: str, isolation_level: str) -> list[Record]:
    """Everything in partition 0 up to its end offset (the last stable offset where only committed records are read)."""

    async def read() -> list[Record]:
        at, found = TopicPartition(topic, 0), list[Record]()
        deadline = Deadline(f"the end of {topic}", DEADLINE_S)
        async with Sdk().assigned(address, topic, 0, EARLIEST, isolation_level=isolation_level) as consumer:
            end = (await consumer.end_offsets([at]))[at]
            while await consumer.position(at) < end:
                found.extend(map(record_of, await consumer.poll(deadline.left(1.0))))
        return found

    return asyncio.run(read())


def record_of(record: Any) -> Record:
    """A consumed record in our words."""
    return Record(
        value=record.value,
        key=record.key,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp_ms,
        partition=record.partition,
        offset=record.offset,
    )


class SdkMember(Member):
    """A consumer of the SDK. Its loop runs in this thread only, so a member that is held is silent."""

    def __init__(self, crowd: Crowd, wish: Wish, **more: Any) -> None:
        super().__init__(crowd, wish)
        self._more = more
        self._owned: frozenset[tuple[str, int]] = frozenset()

    @contextmanager
    def _opened(self) -> Iterator[None]:
        with asyncio.Runner() as runner:
            self._runner = runner
            self._consumer = runner.run(self._start())
            try:
                yield
            finally:
                runner.run(self._consumer.close())

    async def _start(self) -> Consumer:
        consumer = Consumer(
            self.address,
            group=self.wish.group,
            group_instance_id=self.wish.instance,
            session_timeout_ms=self.wish.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=REFRESH_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            **self._more,
        )
        await consumer.start()
        if self.wish.pattern is not None:
            consumer.subscribe(pattern=self.wish.pattern)
        else:
            consumer.subscribe(list(self.wish.topics))
        return consumer

    def _poll(self) -> list[Seen]:
        async def poll() -> list[Seen]:
            records = await self._consumer.poll(POLL_S)
            self._owned = frozenset((each.topic, each.partition) for each in self._consumer.assignment())
            return [Seen(record.topic, record.partition, record.offset) for record in records]

        return self._runner.run(poll())

    def _assignment(self) -> frozenset[tuple[str, int]]:
        return self._owned

    def _commit(self) -> None:
        self._runner.run(self._consumer.commit())

    def _set(self, offsets: Mapping[tuple[str, int], int]) -> str | None:
        try:
            self._runner.run(self._consumer.commit({TopicPartition(*at): offset for at, offset in offsets.items()}))
        except KafkaError as error:
            return str(error)
        return None


def member(**settings: Any) -> Callable[[Crowd, Wish], Member]:
    return partial(SdkMember, **settings)


SDK_RANGE = Kind("sdk-range", member(group_protocol="classic", partition_assignment_strategy=["range"]))
SDK_COOPERATIVE = Kind(
    "sdk-cooperative", member(group_protocol="classic", partition_assignment_strategy=["cooperative-sticky"])
)
SDK_CONSUMER = Kind("sdk-consumer", member(group_protocol="consumer"))
SDK_KINDS = (SDK_RANGE, SDK_COOPERATIVE, SDK_CONSUMER)
