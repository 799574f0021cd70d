"""An older tree is restored under a cluster: no counter of it is below what the logs have."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Outcome, Then
from kafkalite.cluster.producer_id_blocks import RAISED_BY
from kafkalite.coordination import znodes
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkalite.server.running import tree_counters
from kafkalite.storage.checkpoints import read_epochs
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_broker import SimulatedBroker
from kafkalite.testing.simulated_cluster import MEMBER_SETTINGS, SimulatedCluster
from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.kit.server import batch, outcomes, produce_request
from tests.story.cluster.foreign_program import ForeignProgram
from tests.story.cluster.saved_tree import SavedTree
from tests.story.cluster.test_invalid_nodes import create_everywhere
from tests.story.cluster.test_three_brokers import Client, led

Scenario = Callable[[SimulatedCluster, Client], Coroutine[Any, Any, None]]
CLEAN = ".kafka_cleanshutdown"


def simulate(directory: Path, scenario: Scenario, brokers: int = 1) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with SimulatedCluster(str(directory), network, brokers) as cluster:
            client = Client(network)
            await client.controller(*cluster.brokers)
            await scenario(cluster, client)

    run_virtually(main)


async def new_producer(client: Client, broker_id: int = 1) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answer = await client.call(broker_id, request, 4)
    assert answer.error_code == 0
    return int(answer.producer_id)


async def send(client: Client, producer_id: int, value: bytes, broker_id: int = 1) -> int:
    """Produce the first record of a producer; its offset."""
    records = batch(value, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    response = await client.call(broker_id, produce_request("t", (0, records)), 9)
    (part,) = outcomes(response)
    assert part.error_code == 0
    return int(part.base_offset)


async def restart(cluster: SimulatedCluster, client: Client, end: str, saved: SavedTree | None = None) -> None:
    """End all brokers, restore a tree, and start them; the first one leads again."""
    for broker in cluster.brokers.values():
        if end == "stop":
            await broker.stop()
        else:
            broker.kill()
    if saved is not None:
        saved.restore()
    for broker in cluster.brokers.values():
        await broker.start()
    await client.controller(*cluster.brokers)
    await led(client, 1, "t", 1)
    await pass_time(1.0)


def older_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "an older copy" in line]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_an_older_tree_assigns_no_producer_id_again(tmp_path: Path, end: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.create(1, "t", 1)
        await led(client, 1, "t", 1)
        saved = SavedTree(cluster.zookeeper)
        await client.create(1, "missing", 1)
        await led(client, 1, "missing", 1)
        earlier = await new_producer(client)
        assert await send(client, earlier, b"earlier") == 0
        await restart(cluster, client, end, saved)
        later = await new_producer(client)
        assert later == earlier + RAISED_BY + 1
        assert await send(client, later, b"new") == 1
        (line,) = older_lines(caplog)
        assert line.startswith("zookeeper:2181: an older copy: ") and "restore the newer tree" in line
        assert f"producer ids up to {earlier} are in logs" in line
        assert ("its last change is" in line) == (end == "stop")
        caplog.clear()
        await restart(cluster, client, end)
        assert not older_lines(caplog)

    with caplog.at_level(logging.WARNING, "kafkalite"):
        simulate(tmp_path, scenario)


def test_a_counter_of_producer_ids_that_stays_below_the_logs_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A planted bug: the test above fails."""

    def unchanged(_session: object, _broker_id: int, _found: int, then: Then, **_options: bool) -> None:
        then(Outcome())

    monkeypatch.setattr(tree_counters, "raise_above", unchanged)
    with pytest.raises(AssertionError, match="assert 0 == "):
        test_an_older_tree_assigns_no_producer_id_again(tmp_path, "kill", caplog)


def test_a_running_broker_keeps_its_producer_ids_when_an_older_tree_is_restored(tmp_path: Path) -> None:
    """It has assigned ids that no log has yet."""

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.create(1, "t", 1)
        await led(client, 1, "t", 1)
        saved = SavedTree(cluster.zookeeper)
        assigned = await new_producer(client, 2)
        saved.restore()
        await pass_time(10.0)
        await client.controller(1, 2)
        assert await new_producer(client, 1) > assigned + RAISED_BY

    simulate(tmp_path, scenario, brokers=2)


def test_running_brokers_follow_the_controllers_of_an_older_tree(tmp_path: Path) -> None:
    """Their epochs are lower than those that the brokers know from before the restore."""

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        foreign = ForeignProgram(cluster)
        saved = SavedTree(cluster.zookeeper)
        for _ in range(5):
            foreign.depose()
            await pass_time(1.0)
        saved.restore()
        await pass_time(10.0)
        await create_everywhere(client, "after")

    simulate(tmp_path, scenario, brokers=3)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_leader_epochs_do_not_fall_with_an_older_tree(
    tmp_path: Path, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The history of the epochs is kept, and the first batch has an epoch above all of them."""

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.create(1, "t", 1)
        await led(client, 1, "t", 1)
        saved = SavedTree(cluster.zookeeper)
        for number in range(4):
            assert await client.produce(1, "t", 0, b"%d" % number) == 0
            await restart(cluster, client, end)
        caplog.clear()
        epochs = read_epochs(Disk(), str(tmp_path / "1/t-0/leader-epoch-checkpoint"))
        await restart(cluster, client, end, saved)
        assert len(older_lines(caplog)) == 1
        assert await client.produce(1, "t", 0, b"new") == 0
        found = read_epochs(Disk(), str(tmp_path / "1/t-0/leader-epoch-checkpoint"))
        assert found[: len(epochs) - 1] == epochs[:-1] and found[-1][0] > epochs[-1][0]
        state = znodes.decode_state("", cluster.zookeeper.tree.get(znodes.state_path("t", 0))[0])
        assert state.leader_epoch == found[-1][0]
        kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        asked = kind.OffsetForLeaderPartition(partition=0, leader_epoch=epochs[1][0], current_leader_epoch=-1)
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[kind(topic="t", partitions=[asked])])
        answer = (await client.call(1, request, 3)).topics[0].partitions[0]
        assert (answer.leader_epoch, answer.end_offset) == (epochs[1][0], epochs[2][1])

    with caplog.at_level(logging.WARNING, "kafkalite"):
        simulate(tmp_path, scenario)


def test_a_log_without_its_end_is_not_led_in_its_last_epoch(tmp_path: Path) -> None:
    """An older tree whose next epoch is the last one of the log: clients must notice that records are lost."""

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.create(1, "t", 1)
        await led(client, 1, "t", 1)
        await restart(cluster, client, "stop")
        saved = SavedTree(cluster.zookeeper)
        await restart(cluster, client, "stop")
        assert await client.produce(1, "t", 0, b"record") == 0
        last = read_epochs(Disk(), str(tmp_path / "1/t-0/leader-epoch-checkpoint"))[-1][0]
        await restart(cluster, client, "kill", saved)
        assert await client.produce(1, "t", 0, b"new") == 0
        assert read_epochs(Disk(), str(tmp_path / "1/t-0/leader-epoch-checkpoint"))[-1][0] > last

    simulate(tmp_path, scenario)


def test_generated_broker_ids_are_not_given_out_twice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An older tree has generated none; a broker that runs, one that starts and a new one keep their own."""
    settings = {**MEMBER_SETTINGS, "broker.id": -1}

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        def broker(name: str) -> SimulatedBroker:
            return SimulatedBroker(str(tmp_path / name), client.network, settings=settings, host=name)

        saved = SavedTree(cluster.zookeeper)
        first, second = broker("first"), broker("second")
        await first.start()
        await second.start()
        ids = [first.running.broker_id, second.running.broker_id]
        assert ids == [1001, 1002]
        await first.stop()
        saved.restore()
        await pass_time(10.0)
        third = broker("third")
        await third.start()
        assert third.running.broker_id == 1003
        saved.restore()
        await asyncio.gather(second.stop(), third.stop())
        await first.start()
        await second.start()
        assert [first.running.broker_id, second.running.broker_id] == ids
        for each in (first, second):
            await each.stop()

    with caplog.at_level(logging.WARNING, "kafkalite"):
        simulate(tmp_path, scenario)
    assert any("the generated broker id 1002 was not generated by it" in line for line in caplog.messages)


def test_an_id_that_a_replica_has_is_not_generated(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.create(1, "t", 1)
        await led(client, 1, "t", 1)
        path = znodes.topic_path("t")
        tree = cluster.zookeeper.tree
        node = znodes.decode_topic(path, tree.get(path)[0])
        tree.node(path).data = znodes.encode_topic(node._replace(replicas={0: (1, 1001)}))
        new = SimulatedBroker(
            str(tmp_path / "new"), client.network, settings={**MEMBER_SETTINGS, "broker.id": -1}, host="new"
        )
        await new.start()
        assert new.running.broker_id == 1002
        await new.stop()

    simulate(tmp_path, scenario)
