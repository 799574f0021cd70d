"""A cluster of whole brokers, its clients and ZooKeeper's protocol over one network in memory, in virtual time.

The attributes that the applications of `tests.story.sdk` use are those of its `World`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from kafkalite_sdk.client.environment import Environment

from kafkalite._speedups.records.batches import batches
from kafkalite.config.keys import SettingValue
from kafkalite.coordination import znodes
from kafkalite.coordination.errors import NoNodeError
from kafkalite.errors import KafkaErrorCode
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_cluster import PORT, SimulatedCluster, host_of
from kafkalite.testing.virtual_loop import pass_time, run_virtually, virtual_wall_ms
from tests.kit.server import fetch_request, fetched
from tests.story.cluster.foreign_program import FOREIGN_TOPICS
from tests.story.cluster.short_slices import short_slices
from tests.story.cluster.trace import Trace
from tests.story.sdk.virtual import check_nothing_left

T = TypeVar("T")
W = TypeVar("W", bound="ClusterWorld")

BROKERS = (3, 3, 3, 4, 5)
DELAYS_S = ((0.0001, 0.0001), (0.0001, 0.003), (0.001, 0.03))
SETTINGS: dict[str, SettingValue] = {
    "log.flush.interval.messages": 1,  # acknowledged records survive a power failure
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.heartbeat.interval.ms": 1000,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.min.session.timeout.ms": 3000,
    "group.consumer.session.timeout.ms": 6000,
    "group.min.session.timeout.ms": 1000,
}


class ClusterWorld:
    """The brokers, which do not run yet.

    Arguments:
        directory: of the log directories.
        seed: of all random decisions.
        settings: configs of all brokers.

    Attributes:
        cluster: the brokers and the server of ZooKeeper's protocol.
        trace: every change of its tree.
        brokers: by id.
        bootstrap: the bootstrap servers of clients.
        delay_s: the mean delay of the network.
        counts: number of each event.
        values: the values of each producer id in the logs that were read last.
    """

    def __init__(self, directory: Path, seed: int, settings: Mapping[str, SettingValue] = SETTINGS) -> None:
        self.directory = directory
        self.seed = seed
        self.random = Random(seed)
        self.loop = asyncio.get_running_loop()
        delays_s = self.random.choice(DELAYS_S)
        self.delay_s = sum(delays_s) / len(delays_s)
        self.network = MemoryNetwork(Random(seed + 1), delay_s=delays_s)
        count = self.random.choice(BROKERS)
        self.cluster = SimulatedCluster(str(directory), self.network, count, seed=seed, settings=settings)
        self.zookeeper, self.brokers = self.cluster.zookeeper, self.cluster.brokers
        self.trace = Trace(self.zookeeper.tree)
        self.bootstrap = self.cluster.bootstrap_servers
        self.counts: dict[str, int] = {}
        self.values: dict[int, list[bytes]] = {}

    def environment(self) -> Environment:
        """The environment of a client."""
        return Environment(dial=self.network.dial, random=Random(self.random.random()), wall_ms=virtual_wall_ms)

    def count(self, event: str) -> None:
        """Count an event of the simulation."""
        self.counts[event] = self.counts.get(event, 0) + 1

    def name_of(self, topic_id: bytes) -> str:
        """The name of a topic id."""
        return next(name for name, node in self.topics().items() if node.topic_id == topic_id)

    def topics(self) -> dict[str, znodes.TopicNode]:
        """The topics in the tree, without those of the foreign program."""
        tree = self.zookeeper.tree
        try:
            names, _ = tree.children(znodes.TOPICS)
        except NoNodeError:
            return {}
        paths = {name: znodes.topic_path(name) for name in names if name not in FOREIGN_TOPICS}
        return {name: znodes.decode_topic(path, tree.get(path)[0]) for name, path in paths.items()}

    def states(self, topic: str) -> dict[int, tuple[int, int, int]]:
        """Leader, leader epoch and partition epoch of each partition in the tree; each one must have a state."""
        found = {}
        for partition in self.topics()[topic].replicas:
            path = znodes.state_path(topic, partition)
            try:
                data, stat = self.zookeeper.tree.get(path)
            except NoNodeError as error:
                raise AssertionError(f"{path} does not exist") from error
            state = znodes.decode_state(path, data)
            found[partition] = state.leader, state.leader_epoch, stat.version
        return found

    def count_states(self, topic: str) -> int:
        """The number of partitions of a topic that have a state in the tree; 0 if there is no such topic."""
        node = self.topics().get(topic)
        paths = [znodes.state_path(topic, partition) for partition in node.replicas] if node is not None else []
        return sum(self.zookeeper.tree.find(path) is not None for path in paths)

    async def call(self, broker_id: int, request: Any, version: int) -> Any:
        """The response of a broker. Raises KafkaConnectionError, KafkaTimeoutError."""
        connection = ClientConnection(host_of(broker_id), PORT, timeout_s=10.0, dial=self.network.dial)
        async with connection:
            return await connection.call(request, version_max=version)

    async def metadata(self, broker_id: int, *topics: str) -> MetadataResponse:
        """The metadata of topics as a broker has them."""
        names = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        response: MetadataResponse = await self.call(broker_id, request, 12)
        return response

    async def logs(self, topics: list[str]) -> dict[tuple[str, int], list[tuple[int, bytes | None]]]:
        """Offset and value of every record of the topics, by partition; all brokers run and the network works."""
        found: dict[tuple[str, int], list[tuple[int, bytes | None]]] = {}
        self.values = {}
        for topic in topics:
            for partition, (leader, _, _) in self.states(topic).items():
                found[topic, partition] = await self.log(leader, topic, partition)
        return found

    async def log(self, leader: int, topic: str, partition: int) -> list[tuple[int, bytes | None]]:
        """Offset and value of every record of a partition."""
        log: list[tuple[int, bytes | None]] = []
        while new := await self._read(leader, topic, partition, log[-1][0] + 1 if log else 0):
            log += new
        return log

    async def _read(self, leader: int, topic: str, partition: int, offset: int) -> list[tuple[int, bytes | None]]:
        response = await self.call(leader, fetch_request(topic, (partition, offset), max_bytes=1 << 26), 12)
        part = fetched(response)[topic, partition]
        if part.error_code == KafkaErrorCode.OFFSET_OUT_OF_RANGE and offset < part.log_start_offset:
            return await self._read(leader, topic, partition, part.log_start_offset)
        assert part.error_code == 0, part
        for found in batches(part.records):
            self.values.setdefault(found.producer_id, []).extend(record.value or b"" for record in found)
        records = [record for found in batches(part.records) for record in found]
        return [(record.offset, record.value) for record in records if record.offset >= offset]


@asynccontextmanager
async def running(world: W) -> AsyncIterator[W]:
    """A world whose brokers run; after it no task, no timer and no listening address may be left."""
    async with world.cluster:
        yield world
    await pass_time(1.0)  # the ends of the last connections arrive
    check_nothing_left()
    assert not world.network.servers


def run(
    directory: Path,
    seed: int,
    scenario: Callable[[W], Awaitable[T]],
    make: Callable[[Path, int], W] = ClusterWorld,  # type: ignore[assignment]
) -> T:
    """Run a scenario in a world of its own, and remove its log directories unless it fails: they may be in memory."""

    async def main() -> T:
        async with running(make(directory / str(seed), seed)) as world:
            return await scenario(world)

    print(f"KAFKALITE_SEED={seed}")
    with short_slices(seed):
        result = run_virtually(main)[0]
    shutil.rmtree(directory / str(seed), ignore_errors=True)  # a scenario without brokers has none
    return result
