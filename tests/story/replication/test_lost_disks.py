"""Brokers whose disks are replaced: replicas are fetched again, and the only in-sync replica is never led empty."""

from __future__ import annotations

from pathlib import Path

from kafkalite.protocol.messages.elect_leaders import ElectLeadersRequest
from kafkalite.testing.power_loss import UnsyncedState
from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.test_missing_logs import unmounted
from tests.story.replication.final_checks import check_replicas
from tests.story.replication.observer import Observer
from tests.story.replication.test_three_replicas import ORDERS, in_a_cluster, leader_of, send, until_in_sync, values
from tests.story.replication.world import ReplicatedWorld

UNCLEAN = 1  # ElectionType


def data_of(world: ReplicatedWorld, broker_id: int) -> Path:
    (path,) = world.brokers[broker_id].running.logs.directories()
    return Path(path)


def replace_disk(world: ReplicatedWorld, broker_id: int, data: Path) -> None:
    unmounted(data)
    world.brokers[broker_id].disk.shadow = UnsyncedState()


def test_replaced_broker_restores_its_replicas(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, b"one")
        lost = leader_of(world)
        data = data_of(world, lost)
        await world.brokers[lost].stop()
        replace_disk(world, lost, data)
        await world.cluster.start(lost)
        await send(world, b"two")
        await until_in_sync(world)
        assert await values(world) == [b"one", b"two"]
        await pass_time(1.0)
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)


async def elect_uncleanly(world: ReplicatedWorld) -> None:
    """Ask each broker, of which one is the controller, for an unclean election."""
    wanted = ElectLeadersRequest.TopicPartitions(topic=ORDERS[0], partitions=[ORDERS[1]])
    for each in world.brokers:
        request = ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=[wanted], timeout_ms=2_000)
        await world.call(each, request, 2)


async def last_member(world: ReplicatedWorld) -> tuple[int, int, Path]:
    """Stop the followers one after another; returns the leader, the eligible replica, and the data of that."""
    last = leader_of(world)
    eligible = [each for each in world.replicas()[ORDERS] if each != last][1]
    data = data_of(world, eligible)
    for each in world.replicas()[ORDERS]:
        if each not in (last, eligible):
            await world.brokers[each].stop()
    await world.brokers[eligible].stop()
    await pass_time(1.0)
    state = world.observed_state(ORDERS)
    assert state is not None and (state.isr, state.eligible) == ((last,), (eligible,))
    return last, eligible, data


def test_lost_disk_of_the_only_in_sync_replica_is_not_led_empty(tmp_path: Path) -> None:
    """The partition waits for its disk, and an unclean election takes the eligible replica, which has all records."""

    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, b"one")
        data = data_of(world, leader_of(world))
        last, eligible, _ = await last_member(world)
        await world.brokers[last].stop()
        replace_disk(world, last, data)
        for each in world.brokers:
            await world.cluster.start(each)
        await pass_time(10.0)
        state = world.observed_state(ORDERS)
        assert state is not None and (state.leader, state.isr) == (-1, (last,))
        await elect_uncleanly(world)
        await until_in_sync(world)
        assert leader_of(world) == eligible
        assert await values(world) == [b"one"]
        await pass_time(1.0)
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)


def test_lost_disks_of_the_only_in_sync_replica_and_of_the_eligible_one_are_not_led_empty(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, b"one")
        path = data_of(world, leader_of(world))
        last, eligible, data = await last_member(world)
        await world.brokers[last].stop()
        replace_disk(world, last, path)
        replace_disk(world, eligible, data)
        for each in world.brokers:
            await world.cluster.start(each)
        await pass_time(10.0)
        state = world.observed_state(ORDERS)
        assert state is not None and state.leader == -1, state
        (other,) = set(world.replicas()[ORDERS]) - {last, eligible}
        assert world.end_offset(other, ORDERS) == 1, "it keeps the record"
        await elect_uncleanly(world)
        await until_in_sync(world)
        assert await values(world) == [b"one"]

    in_a_cluster(tmp_path, scenario)


def test_eligible_replica_whose_disk_is_replaced_does_not_lead_empty(tmp_path: Path) -> None:
    """The last member is killed meanwhile, and leads again."""

    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, b"one")
        last, eligible, data = await last_member(world)
        world.cluster.kill(last)
        replace_disk(world, eligible, data)
        await pass_time(5.0)
        await world.cluster.start(eligible)
        await pass_time(5.0)
        state = world.observed_state(ORDERS)
        assert state is not None and (state.leader, state.isr) == (-1, (last,))
        await world.cluster.start(last)
        for each in world.brokers:
            if not world.runs(each):
                await world.cluster.start(each)
        await until_in_sync(world)
        assert await values(world) == [b"one"]
        await pass_time(1.0)
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)
