"""Partitions move between the log directories of the brokers of a cluster, whose processes and power end meanwhile."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkalite.errors import KafkaConnectionError
from kafkalite.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kafkalite.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkalite.storage.log_move import log_move
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_broker import LoopOffload
from kafkalite.testing.simulated_cluster import SimulatedCluster
from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.kit.seeds import chosen_seed
from tests.story.cluster.test_three_brokers import Client, led, until

TOPIC = "orders"
PARTITIONS, DIRECTORIES, ROUNDS, RUNS = 3, 3, 5, 6
DURABLE = {"log.flush.interval.messages": "1"}  # what is acknowledged survives a power failure

AlterDir = AlterReplicaLogDirsRequest.AlterReplicaLogDir


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_move, "PIECE_BYTES", 400)
    monkeypatch.setattr(log_move, "REST_BYTES", 200)


class SlowJobs(LoopOffload):
    """The jobs of moves: each ends some milliseconds after the one before."""

    def drain(self) -> int:
        if self._killed or not self._ended:
            return 0
        done, outcome = self._ended.popleft()
        done(outcome)
        return 1


class Moves:
    """A topic whose partitions move, and the values that were acknowledged or sent."""

    def __init__(self, cluster: SimulatedCluster, client: Client, data: Path, random: Random) -> None:
        self.cluster = cluster
        self.client = client
        self.data = data
        self.random = random
        self.kept: dict[int, list[bytes]] = defaultdict(list)
        self.sent: dict[int, set[bytes]] = defaultdict(set)
        self.leaders: dict[int, int] = {}
        self.jobs: dict[int, SlowJobs] = {}

    async def create(self) -> None:
        controller = await self.client.controller(1, 2, 3)
        await self.client.create(controller, TOPIC, PARTITIONS)
        self.leaders = await led(self.client, controller, TOPIC, PARTITIONS)

    async def produce(self, partition: int) -> None:
        value = b"%d of %d " % (len(self.sent[partition]), partition) * 10
        self.sent[partition].add(value)
        try:
            error = await self.client.produce(self.leaders[partition], TOPIC, partition, value)
        except (KafkaConnectionError, OSError):
            return
        if not error:
            self.kept[partition].append(value)

    async def describe(self, partition: int) -> dict[str, list[bool]]:
        """By log directory, whether each replica of a partition is a future one."""
        found = await self.client.call(self.leaders[partition], DescribeLogDirsRequest(topics=None), 4)
        held: dict[str, list[bool]] = {}
        for each in found.results:
            replicas = [one for topic in each.topics if topic.name == TOPIC for one in topic.partitions]
            if mine := [one.is_future_key for one in replicas if one.partition_index == partition]:
                held[each.log_dir] = mine
        return held

    async def move(self, partition: int) -> int:
        """Request a move to any log directory; the error code."""
        path = str(self.data / str(self.leaders[partition]) / f"d{self.random.randrange(DIRECTORIES)}")
        topic = AlterDir.AlterReplicaLogDirTopic(name=TOPIC, partitions=[partition])
        request = AlterReplicaLogDirsRequest(dirs=[AlterDir(path=path, topics=[topic])])
        response = await self.client.call(self.leaders[partition], request, 2)
        return int(response.results[0].partitions[0].error_code)

    def slow(self, partition: int) -> None:
        """Let the jobs of moves at the leader of a partition take time."""
        leader = self.leaders[partition]
        ports = self.cluster.brokers[leader].running.logs.mover.ports
        if not isinstance(ports.offload, SlowJobs):
            ports.offload = ports.copies = self.jobs[leader] = SlowJobs(asyncio.get_running_loop())
        self.jobs[leader].late_s = self.random.choice((0.001, 0.004))

    async def interrupt(self, partition: int) -> None:
        """End the process of the leader, or its power, and start it again."""
        leader = self.leaders[partition]
        if leader in self.jobs:
            self.jobs.pop(leader).kill()
        if self.random.random() < 0.5:
            self.cluster.kill(leader)
        else:
            self.cluster.cut_power(leader)
        await self.cluster.start(leader)
        await self.served(partition)

    async def served(self, partition: int) -> None:
        async def look() -> Any:
            try:
                return await self.client.values(self.leaders[partition], TOPIC, partition)
            except (AssertionError, KafkaConnectionError, OSError):
                return None

        found = await until(look)
        missing = [value for value in self.kept[partition] if value not in found]
        assert missing == [], f"partition {partition} lost {missing}"
        assert set(found) <= self.sent[partition] and len(set(found)) == len(found)

    async def finish(self, partition: int) -> None:
        """The partition is in one directory, on the disk, too."""

        async def look() -> bool | None:
            return list((await self.describe(partition)).values()) == [[False]] or None

        await until(look)
        directories = (self.data / str(self.leaders[partition])).glob(f"d*/{TOPIC}-{partition}*")
        assert sorted(each.name for each in directories if "-delete" not in each.name) == [f"{TOPIC}-{partition}"]
        await self.produce(partition)
        await self.served(partition)


def run(directory: Path, seed: int) -> None:
    async def main() -> None:
        random = Random(seed)
        network = MemoryNetwork(random, delay_s=(0.0001, 0.002))
        async with SimulatedCluster(
            str(directory), network, 3, seed=seed, settings=DURABLE, log_dirs=DIRECTORIES
        ) as cluster:
            moves = Moves(cluster, Client(network), directory, random)
            await moves.create()
            for _ in range(ROUNDS):
                partition = random.randrange(PARTITIONS)
                for _ in range(random.randrange(12)):
                    await moves.produce(partition)
                moves.slow(partition)
                await moves.move(partition)
                waiting = [asyncio.create_task(moves.produce(partition)) for _ in range(random.randrange(4))]
                await pass_time(random.random() * 0.03)
                if random.random() < 0.7:
                    await moves.interrupt(partition)
                await asyncio.gather(*waiting)
            for partition in range(PARTITIONS):
                await moves.served(partition)
                await moves.finish(partition)

    run_virtually(main)


def test_acknowledged_records_survive_crashes_during_moves(tmp_path: Path) -> None:
    seed = chosen_seed()
    print(f"KAFKALITE_SEED={seed}")
    for number in range(RUNS):
        try:
            run(tmp_path / str(number), seed * 1_000_003 + number)
        except BaseException:
            print(f"run {number}")
            raise
