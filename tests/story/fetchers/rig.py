"""A follower with real logs on a faulty disk, in virtual time, and scripted leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from kafkalite.clock import Clock, Offload
from kafkalite.cluster.fetchers.replica_fetchers import ReplicaFetchers
from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.partition.verification import TransactionChecks
from kafkalite.cluster.replicas import Replicas
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.topic import TopicConfig
from kafkalite.model import Endpoint
from kafkalite.net.peer_dial import PeerDial
from kafkalite.slicing import Slicer
from kafkalite.state.follower.partition_fetch import FetchState
from kafkalite.storage.flush.flusher import Flusher
from kafkalite.storage.log.log import Log
from kafkalite.storage.manager import LogManager
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.virtual_clock import InlineOffload, SeededRandom
from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.kit.logs import read_log
from tests.kit.scripted_broker import ScriptedBroker
from tests.kit.virtual_time import LoopTime
from tests.story.fetchers.scripted_leader import LeaderLog, ScriptedLeader, serve_leaders
from tests.unit.storage.damage import make

TOPIC, OTHER = bytes(15) + b"\x01", bytes(15) + b"\x02"
OWN, EPOCH = 1, 41
DEADLINE_S = 120.0
STEP_S = 0.001


class FollowerRig:
    """A follower of the scripted leaders 2 and 3; it is the host of its partitions, too.

    Attributes:
        leaders: by broker id.
        jobs: of the log directories; a test holds them.
        raised: unexpected exceptions.
    """

    isr_requests = None
    replica_lag_max_ms = 30_000

    def __init__(self, path: Path, broker: ScriptedBroker, network: MemoryNetwork, settings: Mapping[str, str]) -> None:
        loop = asyncio.get_running_loop()
        self.broker = broker
        self.network = network
        self.clock: Clock = LoopTime(loop)
        self.slicer = Slicer(self.clock, self.report)
        self.random = SeededRandom(1)
        self.disk = FaultyDisk()
        self.jobs = InlineOffload(loop.call_soon)
        self.offload: Offload = self.jobs
        path.mkdir(exist_ok=True)
        self.path = str(path)
        self.logs = LogManager(self.disk, [self.path], self.clock, self.jobs, self.random)
        self.replicas = Replicas()
        self.loop_budget, self.mark_dirty = self.replicas.loop_budget, self.replicas.mark_dirty
        self.broker_id = OWN
        self.config = BrokerConfig(static={"replica.fetch.backoff.ms": "160", **settings})
        self.dial = PeerDial(network.dial)
        self.raised: list[tuple[object, BaseException]] = []
        self.live = {2, 3}
        self.leaders = {node: ScriptedLeader(broker, node) for node in (2, 3)}
        serve_leaders(broker, self.leaders)
        self.fetchers = ReplicaFetchers(self)

    # What partitions and fetchers use.

    @property
    def flusher(self) -> Flusher:
        return self.logs.flusher

    def report(self, site: object, error: BaseException) -> None:
        self.raised.append((site, error))

    @property
    def transaction_checks(self) -> TransactionChecks:
        raise AssertionError("no batch waits for a coordinator")

    def is_live(self, _broker_id: int, _broker_epoch: int) -> bool:
        return True

    def open_log(self, _partition: Partition, _opened: Callable[[Log | int], None]) -> None:
        raise AssertionError("every partition has a log")

    def broker_epoch(self) -> int:
        return EPOCH

    def endpoints(self) -> dict[int, Endpoint]:
        nodes = self.broker.nodes
        return {node: Endpoint("PLAINTEXT", nodes[node].host, nodes[node].port) for node in self.live}

    # Steps of a story.

    async def partition(
        self, index: int = 0, topic: str = "t", topic_id: bytes = TOPIC, config: TopicConfig | None = None
    ) -> Partition:
        """A partition with an empty log, and the logs of its leaders."""
        settings = config or TopicConfig()
        made: list[Any] = []
        make(self.logs, self.path, topic, index, topic_id, settings, made.append)
        await self.until(lambda: bool(made))
        log = made[0].result()
        log.epochs.clear()  # a follower's: the batches of its leader bring the epochs
        log.set_epoch(-1)
        partition = Partition(topic, topic_id, index, settings, self, -1, (2,), 3)
        partition.close(6)
        partition.adopt(log)
        for leader in self.leaders.values():
            leader.names[topic] = topic_id
            leader.logs[topic_id, index] = LeaderLog()
        return partition

    def log_of(self, partition: Partition, leader: int = 2) -> LeaderLog:
        return self.leaders[leader].logs[partition.topic_id, partition.index]

    def follow(self, partition: Partition, epoch: int = 1, leader: int = 2) -> None:
        """The controller assigns the partition."""
        partition.follow(PartitionImage((1, 2, 3), (1, 2, 3), leader, epoch))
        self.fetchers.follow(partition)

    def stop(self, partition: Partition) -> None:
        self.fetchers.stop(partition)

    def moved(self, leader: int = 2) -> None:
        self.leaders[leader].moved()

    async def until(self, condition: Callable[[], bool], seconds: float = DEADLINE_S) -> None:
        """Wait in virtual time until a condition holds."""
        end = asyncio.get_running_loop().time() + seconds
        while not condition():
            assert asyncio.get_running_loop().time() < end, "the condition does not become true"
            await pass_time(STEP_S)

    async def caught_up(self, partition: Partition, leader: int = 2) -> None:
        """Wait until the follower has all records of the leader, and its high watermark."""
        theirs = self.log_of(partition, leader)
        high = theirs.log_end_offset if theirs.high_watermark is None else theirs.high_watermark
        log = cast(Log, partition.log)
        await self.until(
            lambda: (
                (log.log_end_offset, log.log_start_offset, partition.high_watermark)
                == (theirs.log_end_offset, theirs.start_offset, high)
            )
        )
        assert content(log) == b"".join(each.data for each in theirs.batches)
        written = [entry for entry in log.epochs.entries if entry[1] < log.log_end_offset]
        start = log.log_start_offset
        assert [each for each in written if each[1] > start] == [
            each for each in theirs.entries if start < each[1] < theirs.log_end_offset
        ]

    def state(self, partition: Partition) -> FetchState | None:
        return self.fetchers.states().get(partition)


def content(log: Log) -> bytes:
    """All batches of a log, as bytes."""
    if log.log_end_offset == log.log_start_offset:
        return b""
    regions = read_log(log, log.log_start_offset, 1 << 40, log.log_end_offset)
    assert isinstance(regions, list), regions
    return b"".join(region.read() for region in regions)


Story = Callable[[FollowerRig], Coroutine[Any, Any, None]]


def run(path: Path, story: Story, *, expects_errors: bool = False, **settings: str) -> None:
    """Run a story; `settings`: configs of the follower, with underscores.

    `expects_errors`: an unexpected exception is part of it.
    """

    async def main() -> None:
        network = MemoryNetwork()
        async with ScriptedBroker(3, network) as broker:
            named = {key.replace("_", "."): value for key, value in settings.items()}
            rig = FollowerRig(path / "follower", broker, network, named)
            await story(rig)
            rig.fetchers.close()
            await pass_time(1.0)
            assert expects_errors or not rig.raised, rig.raised

    run_virtually(main)


FLUSHED = replace(TopicConfig(), flush_messages=1)
