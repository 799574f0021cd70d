"""Three brokers in virtual time under random kills, power failures, lost sessions and broken connections.

A seed repeats its run. The checks read the tree, the responses, and the images of the brokers:

1. Each controller epoch was won by one broker, once.
2. Acknowledged records are kept, also by a power failure (`log.flush.interval.messages=1`), and none is twice.
3. After healing every image equals the tree, and every partition is served by the leader in the tree.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkalite.coordination import znodes
from kafkalite.coordination.tree import Set
from kafkalite.coordination.znodes.controller import CONTROLLER_EPOCH
from kafkalite.errors import KafkaError
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_cluster import SimulatedCluster
from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.story.cluster.test_three_brokers import Client, led

SEEDS = 8
FAULTS = 12
PARTITIONS = 6
HEAL_S = 10.0
TOPIC = "orders"
SETTINGS = {"log.flush.interval.messages": 1}


class Faults:
    """The faults of one run, drawn by a seed; each seed has its own subset of the kinds."""

    def __init__(self, cluster: SimulatedCluster, network: MemoryNetwork, chance: Random) -> None:
        self._cluster = cluster
        self._network = network
        self._chance = chance
        self._down: set[int] = set()
        kinds = [self._kill, self._cut_power, self._expire, self._reset, self._stall]
        self._kinds = chance.sample(kinds, chance.randint(2, len(kinds)))

    async def one(self) -> None:
        """Let one fault happen, or end one."""
        broker_id = self._chance.choice(sorted(self._cluster.brokers))
        if broker_id in self._down:
            await self._start(broker_id)
        else:
            self._chance.choice(self._kinds)(broker_id)

    async def heal(self) -> None:
        """End all faults."""
        for broker_id in sorted(self._down):
            await self._start(broker_id)

    async def _start(self, broker_id: int) -> None:
        self._down.discard(broker_id)
        await self._cluster.start(broker_id)

    def _kill(self, broker_id: int) -> None:
        self._down.add(broker_id)
        self._cluster.kill(broker_id)

    def _cut_power(self, broker_id: int) -> None:
        self._down.add(broker_id)
        self._cluster.cut_power(broker_id)

    def _expire(self, broker_id: int) -> None:
        self._cluster.expire(broker_id)

    def _reset(self, broker_id: int) -> None:
        self._network.reset(f"broker{broker_id}", 9092)

    def _stall(self, broker_id: int) -> None:
        self._network.stall(f"broker{broker_id}", 9092, self._chance.uniform(0.1, 3.0))


async def produce_each(
    client: Client, leaders: dict[int, int], number: int, acknowledged: dict[int, list[bytes]]
) -> None:
    """Produce one record to each partition; those that are acknowledged are noted."""
    for partition, leader in leaders.items():
        value = b"%d" % number
        try:
            error = await client.produce(leader, TOPIC, partition, value)
        except KafkaError:
            continue  # the broker is down: the record may have been written or not
        if not error:
            acknowledged[partition].append(value)


def elections(cluster: SimulatedCluster) -> list[bytes]:
    """Note the epochs that controllers write from now on."""
    tree, epochs = cluster.service.tree, list[bytes]()
    multi = tree.multi

    def noting(operations: Any, *arguments: Any) -> Any:
        results = multi(operations, *arguments)
        epochs.extend(each.data for each in operations if isinstance(each, Set) and each.path == CONTROLLER_EPOCH)
        return results

    tree.multi = noting  # type: ignore[method-assign]
    return epochs


def stored(cluster: SimulatedCluster) -> dict[int, tuple[int, int, int]]:
    """Leader, leader epoch and partition epoch of each partition in the tree."""
    found = {}
    for partition in range(PARTITIONS):
        data, stat = cluster.service.tree.get(znodes.state_path(TOPIC, partition))
        state = znodes.decode_state("", data)
        found[partition] = state.leader, state.leader_epoch, stat.version
    return found


async def scenario(directory: Path, seed: int) -> list[object]:
    chance = Random(seed)
    network = MemoryNetwork(Random(seed), delay_s=(0.0001, 0.005))
    async with SimulatedCluster(str(directory), network, 3, seed=seed, settings=SETTINGS) as cluster:
        epochs = elections(cluster)
        client = Client(network)
        controller = await client.controller(1, 2, 3)
        assert (await client.create(controller, TOPIC, PARTITIONS)).error_code == 0
        leaders = await client.leaders(controller, TOPIC)
        acknowledged: dict[int, list[bytes]] = {partition: [] for partition in leaders}
        faults = Faults(cluster, network, chance)
        for number in range(FAULTS):
            await produce_each(client, leaders, number, acknowledged)
            await faults.one()
            await pass_time(chance.uniform(0.0, 3.0))
        await faults.heal()
        await pass_time(HEAL_S)
        assert epochs == sorted(set(epochs), key=int), f"seed {seed}: an epoch was won twice: {epochs}"
        tree = stored(cluster)
        for broker_id, broker in cluster.brokers.items():
            image = broker.running.image.topics[TOPIC].partitions
            states = {at: (one.leader, one.leader_epoch, one.partition_epoch) for at, one in enumerate(image)}
            assert states == tree, f"seed {seed}: the image of broker {broker_id}"
            assert await led(client, broker_id, TOPIC, PARTITIONS) == leaders, f"seed {seed}"
        for partition, leader in leaders.items():
            assert await client.produce(leader, TOPIC, partition, b"last") == 0, f"seed {seed}"
            values = await client.values(leader, TOPIC, partition)
            kept = [value for value in values if value in acknowledged[partition]]
            assert kept == acknowledged[partition], f"seed {seed}, partition {partition}"
        return [epochs, tree, acknowledged, len(list(cluster.service.tree.walk()))]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_records_epochs_and_images_under_random_faults(tmp_path: Path, seed: int) -> None:
    run_virtually(lambda: scenario(tmp_path, seed))


def test_a_seed_with_faults_repeats_its_run(tmp_path: Path) -> None:
    first, _ = run_virtually(lambda: scenario(tmp_path / "first", 3))
    second, _ = run_virtually(lambda: scenario(tmp_path / "second", 3))
    assert first == second
