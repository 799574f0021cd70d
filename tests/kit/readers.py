"""Foreign clients that read partitions to their end into a `History`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing

import confluent_kafka as ck
from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.compat.clients.model import Deadline
from tests.kit.checker import History, Partition
from tests.kit.load import number_of

READ_S = 120.0
Reader = Callable[[str, str, Sequence[Partition], History], None]


def read_by_librdkafka(name: str, address: str, partitions: Sequence[Partition], history: History) -> None:
    """Read all partitions from the beginning to the end, checking CRCs, as reader `name`."""
    settings = {
        "bootstrap.servers": address,
        "group.id": "never-joined",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "check.crcs": True,
        "log_level": 2,
    }
    history.reading(name, partitions)
    left = set(partitions)
    deadline = Deadline(f"{name}: all of {partitions}", READ_S)
    with closing(ck.Consumer(settings)) as consumer:
        consumer.assign([ck.TopicPartition(topic, index, 0) for topic, index in partitions])
        while left:
            for message in consumer.consume(1000, deadline.left(1.0)):
                place = (message.topic(), message.partition())
                error = message.error()
                if error is None:
                    history.read(name, place, message.offset(), number_of(message.value()))
                elif error.code() == ck.KafkaError._PARTITION_EOF:
                    left.discard(place)
                else:
                    raise ck.KafkaException(error)


def read_by_aiokafka(name: str, address: str, partitions: Sequence[Partition], history: History) -> None:
    """The same by aiokafka, in an event loop of its own."""
    history.reading(name, partitions)
    asyncio.run(_read(name, address, [TopicPartition(*place) for place in partitions], history))


async def _read(name: str, address: str, places: list[TopicPartition], history: History) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address, group_id=None, auto_offset_reset="earliest", enable_auto_commit=False
    )
    async with asyncio.timeout(READ_S), consumer:
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        left = await consumer.end_offsets(places)
        while left := {place: end for place, end in left.items() if await consumer.position(place) < end}:
            for place, messages in (await consumer.getmany(*left, timeout_ms=1000)).items():
                for message in messages:
                    number = number_of(message.value)
                    history.read(name, (place.topic, place.partition), message.offset, number)


READERS: tuple[Reader, ...] = (read_by_librdkafka, read_by_aiokafka)
