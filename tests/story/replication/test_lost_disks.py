"""Brokers whose disks are replaced: replicas are fetched again, and the only in-sync replica is never led empty."""

from __future__ import annotations

from pathlib import Path

from kafkalite.testing.power_loss import UnsyncedState
from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.test_missing_logs import unmounted
from tests.story.replication.final_checks import check_replicas
from tests.story.replication.observer import Observer
from tests.story.replication.test_three_replicas import ORDERS, in_a_cluster, leader_of, send, until_in_sync, values
from tests.story.replication.world import ReplicatedWorld


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


def test_lost_disk_of_the_only_in_sync_replica_is_not_led_empty(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, b"one")
        last = leader_of(world)
        others = [each for each in world.replicas()[ORDERS] if each != last]
        for each in others:
            await world.brokers[each].stop()
        await pass_time(1.0)
        state = world.observed_state(ORDERS)
        assert state is not None and tuple(state.isr) == (last,)
        data = data_of(world, last)
        await world.brokers[last].stop()
        replace_disk(world, last, data)
        for each in (last, *others):
            await world.cluster.start(each)
        await pass_time(10.0)
        state = world.observed_state(ORDERS)
        assert state is not None and (state.leader, tuple(state.isr)) == (-1, (last,))
        for each in others:
            assert world.end_offset(each, ORDERS) == 1, "the other replicas keep the record"

    in_a_cluster(tmp_path, scenario)
