"""Power failures of brokers with replicas, beside kills and pauses of the others."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.server import batch, outcomes, produce_request
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

RECORDS = [b"%d" % number for number in range(20)]
LATE_S = 0.2
TOPIC, SET = 2, 0  # ConfigResource.Type and AlterConfigOp.OpType


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

    In the order pause, pause, power the others leave the ISR before the broker without power has registered again: it
    is the last member, and the one that left last is eligible.
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
        assert found == [*RECORDS, b"after"], found
        await pass_time(1.0)
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)


async def lose_the_others(world: ReplicatedWorld) -> int:
    """Pause the followers until the leader is the last member of the ISR, which it is; returns it."""
    last = leader_of(world)
    for each in world.replicas()[ORDERS]:
        if each != last:
            world.brokers[each].pause()
    await pass_time(4.0)
    state = world.observed_state(ORDERS)
    assert state is not None and state.isr == (last,)
    return last


async def lose_power(world: ReplicatedWorld, observer: Observer, broker_id: int) -> None:
    """Cut the power of a broker, start it, and let the others go on."""
    observer.lost_power(broker_id)
    world.cluster.cut_power(broker_id)
    await world.cluster.start(broker_id)
    for each in world.brokers.values():
        each.resume()
    await until_in_sync(world)


def test_eligible_replica_leads_after_a_power_failure_of_the_last_member(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, observer: Observer) -> None:
        await send(world, *RECORDS)
        last = await lose_the_others(world)
        state = world.observed_state(ORDERS)
        assert state is not None and state.eligible
        await lose_power(world, observer, last)
        assert leader_of(world) in state.eligible
        assert await values(world) == RECORDS
        await pass_time(1.0)
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)


def test_lower_minimum_counts_once_there_are_no_eligible_replicas(tmp_path: Path) -> None:
    """The controller does not learn of the lower minimum before the power of the last member fails."""

    async def scenario(world: ReplicatedWorld, observer: Observer) -> None:
        await send(world, *RECORDS)
        last = await lose_the_others(world)
        (partition,) = [
            each.partitions[ORDERS[1]] for each in world.brokers[last].running.replicas if each.name == ORDERS[0]
        ]
        partition.configure(replace(partition.config, min_insync_replicas=1))
        request = produce_request(ORDERS[0], (ORDERS[1], batch(b"alone")))
        (outcome,) = outcomes(await world.call(last, request, 9))
        await lose_power(world, observer, last)
        acknowledged = RECORDS if outcome.error_code else [*RECORDS, b"alone"]
        assert await values(world) == acknowledged
        assert outcome.error_code == KafkaErrorCode.NOT_ENOUGH_REPLICAS

    in_a_cluster(tmp_path, scenario)


def test_minimum_that_is_lowered_ends_the_wait_for_eligible_replicas(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, *RECORDS)
        await lose_the_others(world)
        change = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name=ORDERS[0],
            configs=[
                IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig(
                    name="min.insync.replicas", config_operation=SET, value="1"
                )
            ],
        )
        await world.call(leader_of(world), IncrementalAlterConfigsRequest(resources=[change], validate_only=False), 1)
        await send(world, b"alone")
        state = world.observed_state(ORDERS)
        assert state is not None and state.eligible == ()
        for each in world.brokers.values():
            each.resume()
        await until_in_sync(world)
        assert await values(world) == [*RECORDS, b"alone"]

    in_a_cluster(tmp_path, scenario)


def test_broker_that_is_complete_again_after_a_power_failure_keeps_its_records_with_later_registrations(
    tmp_path: Path,
) -> None:
    """Its session ends while another member loses power: only that one has lost records."""

    async def scenario(world: ReplicatedWorld, observer: Observer) -> None:
        leader = leader_of(world)
        complete, away = (each for each in world.replicas()[ORDERS] if each != leader)
        observer.lost_power(complete)
        world.cluster.cut_power(complete)
        await world.cluster.start(complete)
        await until_in_sync(world)
        world.cluster.kill(away)
        await pass_time(5.0)  # it leaves the ISR
        await send(world, *RECORDS)
        world.cluster.expire(complete)
        observer.lost_power(leader)
        world.cluster.cut_power(leader)
        await world.cluster.start(leader)
        await pass_time(5.0)
        await world.cluster.start(away)
        await until_in_sync(world)
        assert await values(world) == RECORDS
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)
