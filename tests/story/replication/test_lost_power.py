"""Power failures of brokers with replicas, beside kills and pauses of the others."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.administrator import Administrator
from tests.story.replication.final_checks import check_replicas
from tests.story.replication.observer import Observer
from tests.story.replication.test_three_replicas import (
    FLUSHED,
    ORDERS,
    in_a_cluster,
    leader_of,
    send,
    send_to,
    until_in_sync,
    values,
)
from tests.story.replication.world import ReplicatedWorld

LAST_MEMBER = ("pause", "pause", "power")  # the others leave the ISR before the lossy broker has registered again
RECORDS = [b"%d" % number for number in range(20)]
LATE_S = 0.2


def test_record_is_acknowledged_when_all_in_sync_replicas_have_flushed_it(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        assert await Administrator(world).create(FLUSHED[0], 1, 3, flush_messages="1")
        await until_in_sync(world)
        for broker in world.brokers.values():
            broker.slow_jobs(LATE_S)
        for number in range(3):
            (offset,) = await send_to(world, FLUSHED[0], b"%d" % number)
            logs = [world.open_log(each, FLUSHED) for each in world.replicas()[FLUSHED]]
            flushed = [log.recovery_point for log in logs if log is not None]
            assert len(flushed) == 3 and min(flushed) > offset, f"record {offset}: flushed up to {flushed}"

    in_a_cluster(tmp_path, scenario)


def test_broker_that_lost_power_does_not_lead_while_members_that_were_killed_are_away(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, observer: Observer) -> None:
        await send(world, *RECORDS)
        lossy = next(each for each in world.replicas()[ORDERS] if each != leader_of(world))
        for each in world.brokers:
            if each != lossy:
                world.cluster.kill(each)
        observer.lost_power(lossy)
        world.cluster.cut_power(lossy)
        await pass_time(5.0)  # the sessions of all brokers end
        await world.cluster.start(lossy)
        assert world.end_offset(lossy, ORDERS) < len(RECORDS), "the power failure has lost records"
        await pass_time(10.0)
        state = world.observed_state(ORDERS)
        assert state is not None and state.leader == -1 and lossy not in state.isr, state
        for each in world.brokers:
            if each != lossy:
                await world.cluster.start(each)
        await until_in_sync(world)
        assert await values(world) == RECORDS
        await pass_time(1.0)
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)


@pytest.mark.parametrize("order", sorted(set(permutations(("power", "pause", "pause")))), ids="-".join)
def test_power_failure_of_one_and_pauses_of_two_replicas_leave_one_history(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    """As nats-server#7567: the leader is the first of each order.

    Nothing is lost but where power fails at a broker that becomes the last member of the ISR (docs/durability.md).
    """

    async def scenario(world: ReplicatedWorld, observer: Observer) -> None:
        await send(world, *RECORDS)
        leader = leader_of(world)
        replicas = sorted(world.replicas()[ORDERS], key=lambda each: each != leader)
        for fault, broker_id in zip(order, replicas, strict=True):
            if fault == "power":
                observer.lost_power(broker_id)
                world.cluster.cut_power(broker_id)
                await world.cluster.start(broker_id)
            else:
                world.brokers[broker_id].pause()
            await pass_time(0.3)
        await pass_time(4.0)
        for broker_id in reversed(replicas):
            world.brokers[broker_id].resume()
            await pass_time(1.0)
        await until_in_sync(world)
        await send(world, b"after")
        found = await values(world)
        assert found[-1] == b"after" and (order == LAST_MEMBER or found == [*RECORDS, b"after"]), found
        await pass_time(1.0)
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)
