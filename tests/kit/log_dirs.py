"""A broker with several log directories, and moves between them that advance job by job."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kafkalite.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkalite.server.broker import Broker
from kafkalite.server.process.ports import Ports
from kafkalite.storage.log.log import Log
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.virtual_clock import InlineOffload
from tests.kit.server import Client, batch

WAIT_S = 60.0
VALUE = bytes(100_000)  # ten to a segment
SMALL = {"segment_bytes": str(1 << 20)}
NOT_AVAILABLE = KafkaErrorCode.REPLICA_NOT_AVAILABLE
STORAGE_ERROR = KafkaErrorCode.KAFKA_STORAGE_ERROR

AlterDir = AlterReplicaLogDirsRequest.AlterReplicaLogDir


class Jbod:
    """A broker with the log directories a, b and c, whose partitions begin in a."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.disk = FaultyDisk()

    def path(self, name: str) -> str:
        return str(self.data / name)

    def start(self) -> Broker:
        settings = {"log.dirs": ",".join(map(self.path, "abc"))}
        return Broker(self.path("a"), settings, ports=Ports(disk=self.disk))


async def fill(client: Client, topic: str = "t", count: int = 30, **configs: str) -> list[bytes | None]:
    """Create a topic in directory a, with records in several segments; returns their values."""
    client.broker.logs.prefer(TopicPartition(topic, 0), client.broker.logs.directories()[0])
    await client.create(topic, **(SMALL | configs))
    values = [b"%d %s" % (number, VALUE) for number in range(count)]
    for value in values:
        assert (await client.produce(topic, batch(value))).error_code == 0
    return list(values)


async def move(client: Client, path: str, topic: str = "t", *more: tuple[str, str]) -> dict[str, int]:
    """Request moves of partition 0 of topics to log directories; the error codes by topic."""
    dirs = [
        AlterDir(path=where, topics=[AlterDir.AlterReplicaLogDirTopic(name=name, partitions=[0])])
        for name, where in ((topic, path), *more)
    ]
    answer = await client.call(AlterReplicaLogDirsRequest(dirs=dirs))
    return {each.topic_name: each.partitions[0].error_code for each in answer.results}


async def replicas(client: Client, topic: str = "t") -> dict[tuple[str, bool], Any]:
    """The replicas of partition 0 by the name of their directory, and whether they are future ones."""
    answer = await client.call(DescribeLogDirsRequest(topics=None))
    return {
        (Path(each.log_dir).name, replica.is_future_key): replica
        for each in answer.results
        for one in each.topics
        for replica in one.partitions
        if (one.name, replica.partition_index) == (topic, 0)
    }


async def until_in(client: Client, name: str, topic: str = "t") -> None:
    """Wait until the partition is in this directory alone."""
    async with asyncio.timeout(WAIT_S):
        while set(await replicas(client, topic)) != {(name, False)}:
            await asyncio.sleep(0)


async def all_values(client: Client, topic: str = "t", offset: int = 0) -> list[bytes | None]:
    found: list[bytes | None] = []
    while more := await client.read(topic, offset=offset):
        found += more
        offset += len(more)
    return found


def log_of(client: Client, topic: str = "t") -> Log:
    found = client.broker.replicas.partition(topic, b"", 0, by_id=False)
    assert isinstance(found, Partition) and found.log is not None
    return found.log


class HeldCopies:
    """Lets the copies of a broker advance job by job."""

    def __init__(self, client: Client) -> None:
        self.jobs = client.broker.logs.mover.ports.copies = InlineOffload()
        self.jobs.held = True

    def advance(self, jobs: int = 1) -> None:
        for _ in range(jobs):
            self.jobs.release()
            self.jobs.held = True
            self.jobs.drain()

    async def requested(self, client: Client, path: str, topic: str = "t") -> None:
        """Request a move, whose future directory is created; nothing is copied yet."""
        asked = asyncio.create_task(move(client, path, topic))
        async with asyncio.timeout(WAIT_S):
            while (begun := client.broker.logs.moves.get(TopicPartition(topic, 0))) is None or begun.target != path:  # type: ignore[call-overload]
                await asyncio.sleep(0)
        self.advance()
        assert await asked == {topic: 0}

    async def finish(self, client: Client, name: str) -> None:
        while self.jobs.waiting:
            self.advance()
        await until_in(client, name)


class HeldSwap:
    """Lets the swap of the first move advance job by job, after its copy."""

    def __init__(self, client: Client) -> None:
        self.copies = HeldCopies(client)
        self.jobs = client.broker.logs.mover.ports.offload = InlineOffload()
        self.jobs.held = True

    async def begun(self, client: Client, path: str) -> None:
        """The copy is there, and the first job of the swap waits."""
        await self.copies.requested(client, path)
        while self.copies.jobs.waiting:
            self.copies.advance()
        async with asyncio.timeout(WAIT_S):
            while not self.jobs.waiting:  # a flush of the log ends first
                await asyncio.sleep(0)
        assert log_of(client).moving

    def advance(self) -> None:
        self.jobs.release()
        self.jobs.held = True
        self.jobs.drain()

    async def end(self, client: Client) -> None:
        """Every job, those of the checkpoints in between."""
        async with asyncio.timeout(WAIT_S):
            while client.broker.logs.moves:
                self.advance()
                await asyncio.sleep(0)
