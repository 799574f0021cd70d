"""The last in-sync replica, and all replicas, are killed or lose their power: what is kept, and who leads again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.administrator import Administrator
from tests.story.cluster.world import run
from tests.story.replication.final_checks import check_replicas
from tests.story.replication.test_three_replicas import ORDERS, SEED, leader_of, send, until_in_sync, values
from tests.story.replication.world import ReplicatedWorld

FLUSHED = {"flush_messages": "1"}


async def created(world: ReplicatedWorld, flush: dict[str, str]) -> None:
    assert await Administrator(world).create("orders", 1, 3, **flush)
    await until_in_sync(world)
    await send(world, b"one")


def end(world: ReplicatedWorld, broker_id: int, how: str) -> None:
    (world.cluster.kill if how == "kill" else world.cluster.cut_power)(broker_id)


@pytest.mark.parametrize(
    ("how", "flush"),
    [("kill", {}), ("power cut", FLUSHED), ("power cut", {})],
    ids=["kill", "power cut, flushed", "power cut, not flushed"],
)
def test_partition_waits_for_its_last_in_sync_replica(tmp_path: Path, how: str, flush: dict[str, str]) -> None:
    """The others have left the ISR and do not lead, until it is back. If its power failed, an eligible one leads."""

    async def scenario(world: ReplicatedWorld) -> None:
        await created(world, flush)
        last = leader_of(world)
        others = [each for each in world.replicas()[ORDERS] if each != last]
        for each in others:
            world.cluster.kill(each)
        await pass_time(5.0)
        end(world, last, how)
        for each in others:
            await world.cluster.start(each)
        await pass_time(5.0)
        state = world.observed_state(ORDERS)
        assert state is not None and (state.leader, tuple(state.isr)) == (-1, (last,)) and state.eligible
        eligible = state.eligible
        await world.cluster.start(last)
        await until_in_sync(world)
        assert (leader_of(world) == last) == (how == "kill") and (leader_of(world) in eligible) == (how != "kill")
        assert await values(world) == [b"one"]
        await check_replicas(world)

    run(tmp_path, SEED, scenario, ReplicatedWorld)


@pytest.mark.parametrize(
    ("flush", "kept"),
    [(FLUSHED, [[b"one", b"two"]]), ({}, [[b"one", b"two"], [b"two"]])],
    ids=["flushed", "not flushed"],
)
def test_power_cut_of_all_replicas(tmp_path: Path, flush: dict[str, str], kept: list[list[bytes]]) -> None:
    async def scenario(world: ReplicatedWorld) -> None:
        await created(world, flush)
        for each in world.brokers:
            end(world, each, "power cut")
        for each in world.brokers:
            await world.cluster.start(each)
        await send(world, b"two")
        await until_in_sync(world)
        assert await values(world) in kept
        await check_replicas(world)

    run(tmp_path, SEED, scenario, ReplicatedWorld)


def test_broker_that_has_lost_the_directories_of_all_its_partitions_does_not_lead(tmp_path: Path) -> None:
    """The power fails soon after the creation of the first topic: its directories were not flushed either."""

    async def scenario(world: ReplicatedWorld) -> None:
        await created(world, {})
        lost = leader_of(world)
        members = world.replicas()[ORDERS]
        for each in world.brokers:
            end(world, each, "power cut" if each == lost else "kill")
        for directory in (world.directory / str(lost)).glob("*-*/"):
            shutil.rmtree(directory)
        await pass_time(5.0)
        await world.cluster.start(lost)
        await pass_time(5.0)
        state = world.observed_state(ORDERS)
        assert state is not None and (state.leader, set(state.isr)) == (-1, set(members) - {lost})
        for each in world.brokers:
            if each != lost:
                await world.cluster.start(each)
        await until_in_sync(world)
        assert await values(world) == [b"one"]
        await check_replicas(world)

    run(tmp_path, SEED, scenario, ReplicatedWorld)
