"""Foreign clients that read partitions to their end into a `History`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import confluent_kafka as ck
from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.kit.checker import History, Partition
from tests.kit.clients.model import Deadline
from tests.kit.isolated import Isolated
from tests.kit.load import number_of

READ_S = 120.0
READ_RECORDS = 10_000
Reader = Callable[[str, str, Sequence[Partition], History], None]


def read_by_librdkafka(name: str, address: str, partitions: Sequence[Partition], history: History) -> None:
    """Read all partitions from the beginning to the end, checking CRCs, as reader `name`; in a process of its own.

    The end is that of ListOffsets: a new leader answers it once its high watermark includes all acknowledged records
    (KIP-207). Until then consumers reach the end of its partition earlier.
    """
    settings = {"bootstrap.servers": address, "enable.partition.eof": True, "check.crcs": True}
    history.reading(name, partitions)
    left = set(partitions)
    deadline = Deadline(f"{name}: all of {partitions}", READ_S)
    with Isolated(NumberReader, settings, dict.fromkeys(partitions, 0)) as reader:
        while left:
            found, ended = reader.read(READ_RECORDS, deadline.left(1.0))
            for topic_partition, offset, number in found:
                history.read(name, topic_partition, offset, number)
            left -= ended


class NumberReader:
    """librdkafka's consumer of numbered records, for `Isolated`."""

    def __init__(self, settings: dict[str, object], offsets: dict[Partition, int]) -> None:
        never = {"group.id": "never-joined", "enable.auto.commit": False, "log_level": 2}
        self._consumer = ck.Consumer({**never, **settings})
        self._consumer.assign(
            [ck.TopicPartition(*topic_partition, offset) for topic_partition, offset in offsets.items()]
        )
        self._ends = {each: self._end_of(each) for each in offsets}

    def _end_of(self, partition: Partition) -> int:
        deadline = Deadline(f"the end offset of {partition}", READ_S)
        while True:
            try:
                answer = self._consumer.get_watermark_offsets(ck.TopicPartition(*partition), deadline.left())
            except ck.KafkaException as error:
                if error.args[0].code() != ck.KafkaError.NOT_LEADER_FOR_PARTITION:  # which librdkafka does not repeat
                    raise
            else:
                assert answer is not None, f"{partition}: no end offset"
                return int(answer[1])

    def read(self, count: int, timeout_s: float) -> tuple[list[tuple[Partition, int, int]], set[Partition]]:
        """Place, offset and number of at most `count` records, and the partitions that ended. Raises KafkaException."""
        found, ended = [], set()
        for message in self._consumer.consume(count, timeout_s):
            topic_partition = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                found.append((topic_partition, message.offset(), number_of(message.value())))
            elif error.code() == ck.KafkaError._PARTITION_EOF:
                if message.offset() >= self._ends[topic_partition]:
                    ended.add(topic_partition)
            else:
                raise ck.KafkaException(error)
        return found, ended

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def read_by_aiokafka(name: str, address: str, partitions: Sequence[Partition], history: History) -> None:
    """The same by aiokafka, in an event loop of its own."""
    history.reading(name, partitions)
    asyncio.run(_read(name, address, [TopicPartition(*topic_partition) for topic_partition in partitions], history))


async def _read(name: str, address: str, topic_partitions: list[TopicPartition], history: History) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address, group_id=None, auto_offset_reset="earliest", enable_auto_commit=False
    )
    async with asyncio.timeout(READ_S), consumer:
        consumer.assign(topic_partitions)
        await consumer.seek_to_beginning(*topic_partitions)
        left = await consumer.end_offsets(topic_partitions)
        while left := {
            topic_partition: end
            for topic_partition, end in left.items()
            if await consumer.position(topic_partition) < end
        }:
            for topic_partition, messages in (await consumer.getmany(*left, timeout_ms=1000)).items():
                for message in messages:
                    number = number_of(message.value)
                    history.read(name, (topic_partition.topic, topic_partition.partition), message.offset, number)


READERS: tuple[Reader, ...] = (read_by_librdkafka, read_by_aiokafka)
