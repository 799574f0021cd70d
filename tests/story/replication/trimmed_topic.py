"""A topic whose first records are deleted during the faults: replicas return below the log start of their leader."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from random import Random

from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.producer.producer import Producer

from kafkalite.errors import KafkaError
from kafkalite.protocol.messages.delete_records import DeleteRecordsRequest
from kafkalite.testing.virtual_loop import pass_time, virtual_wall_ms
from tests.story.cluster.administrator import Administrator
from tests.story.replication.world import ReplicatedWorld

TOPIC = "trimmed"
PARTITIONS = 2
CONFIGS = {"segment_ms": "500", "file_delete_delay_ms": "0"}
SETTINGS = {"delivery_timeout_ms": 60_000, "request_timeout_ms": 3_000, "default_api_timeout_ms": 5_000}
RECORD_PAUSE_S = 0.05
DELETION_PAUSE_S = 0.7
TIMEOUT_MS = 2_000


class TrimmedTopic:
    """A producer and an administrator who deletes what it has written. They have random numbers of their own.

    Arguments:
        world: the cluster.
    """

    def __init__(self, world: ReplicatedWorld) -> None:
        self._world = world
        self._random = Random(world.seed + 3)
        self._sent = 0
        self._acknowledged: defaultdict[int, dict[int, bytes]] = defaultdict(dict)  # values by partition and offset
        self._deleted: defaultdict[int, int] = defaultdict(int)  # the highest offset that was requested, by partition

    async def create(self, administrator: Administrator) -> None:
        """Create the topic."""
        while not await administrator.create(TOPIC, PARTITIONS, 3, **CONFIGS):
            await pass_time(0.1)

    async def run(self, until: float) -> None:
        """Write and delete until a time of the loop."""
        await asyncio.gather(self._write(until), self._delete(until))

    async def _write(self, until: float) -> None:
        environment = Environment(self._world.network.dial, Random(self._random.random()), virtual_wall_ms)
        waits: list[asyncio.Future[None]] = []
        async with Producer(self._world.bootstrap, environment=environment, **SETTINGS) as producer:
            while self._world.loop.time() < until:
                await pass_time(self._random.expovariate(1 / RECORD_PAUSE_S))
                self._sent += 1
                waits.append(asyncio.ensure_future(self._send(producer, b"%d" % self._sent)))
            await asyncio.gather(*waits)

    async def _send(self, producer: Producer[bytes, bytes], value: bytes) -> None:
        try:
            metadata = await producer.send(TOPIC, value, partition=self._random.randrange(PARTITIONS))
        except KafkaError:
            self._world.count("records of the trimmed topic fail")
        else:
            self._acknowledged[metadata.partition][metadata.offset] = value

    async def _delete(self, until: float) -> None:
        while self._world.loop.time() < until:
            await pass_time(self._random.expovariate(1 / DELETION_PAUSE_S))
            partition = self._random.randrange(PARTITIONS)
            if self._acknowledged[partition]:
                last = max(self._acknowledged[partition])
                await self._delete_before(partition, self._random.randint(last // 2, last + 1))

    async def _delete_before(self, partition: int, offset: int) -> None:
        self._deleted[partition] = max(offset, self._deleted[partition])
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        part = topic.DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(topics=[topic(name=TOPIC, partitions=[part])], timeout_ms=TIMEOUT_MS)
        state = self._world.observed_state((TOPIC, partition))
        if state is None or state.leader not in self._world.brokers:
            return
        try:
            response = await self._world.call(state.leader, request, 2)
        except KafkaError:
            self._world.count("a deletion of records has no response")
            return
        if not response.topics[0].partitions[0].error_code:
            self._world.count("deletions of records")

    async def check(self) -> None:
        """Acknowledged records are at their offsets unless their deletion was requested; log starts follow the leader.

        A leader that is killed loses log starts that are in no checkpoint yet, so a follower may begin behind it.
        """
        for partition, (leader, _, _) in self._world.states(TOPIC).items():
            starts, deleted = self._log_starts(partition), self._deleted[partition]
            text = f"{TOPIC}-{partition}: log starts {starts}, leader {leader}, requested was {deleted}"
            assert starts[leader] == min(starts.values()) and max(starts.values()) <= deleted, text
            found = dict(await self._world.log(leader, TOPIC, partition))
            lost = list(self._lost(partition, deleted, found))
            assert not lost, "\n".join(lost)

    def _log_starts(self, partition: int) -> dict[int, int]:
        """The log start of each replica."""
        logs = {each: self._world.open_log(each, (TOPIC, partition)) for each in self._replicas(partition)}
        return {each: -1 if log is None else log.log_start_offset for each, log in logs.items()}

    def _replicas(self, partition: int) -> tuple[int, ...]:
        return self._world.replicas()[TOPIC, partition]

    def _lost(self, partition: int, deleted: int, found: dict[int, bytes | None]) -> Iterable[str]:
        for offset, value in self._acknowledged[partition].items():
            if offset >= deleted and found.get(offset) != value:
                yield f"{TOPIC}-{partition}: {value!r} was acknowledged at {offset}, where {found.get(offset)!r} is"
