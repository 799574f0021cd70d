"""Leader epochs and versions of states: what is of an earlier leader is refused, and logs agree by epochs."""

from __future__ import annotations

from pathlib import Path

from kafkalite_sdk.producer.producer import Producer

from kafkalite.coordination import znodes
from kafkalite.coordination.tree import Set
from kafkalite.coordination.znodes.brokers import registration_path
from kafkalite.coordination.znodes.controller import CONTROLLER, decode_controller
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.alter_partition import AlterPartitionRequest
from kafkalite.testing.simulated_cluster import host_of
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.replica_invariants import ObservedState
from tests.kit.server import fetch_request, fetched
from tests.story.replication.final_checks import check_replicas
from tests.story.replication.observer import Observer
from tests.story.replication.test_three_replicas import ORDERS, in_a_cluster, leader_of, send, until_in_sync, values
from tests.story.replication.world import ReplicatedWorld

LAG_MAX_S = 4.0  # at most, of the settings of a world


def state_of(world: ReplicatedWorld) -> ObservedState:
    state = world.observed_state(ORDERS)
    assert state is not None
    return state


def controller_of(world: ReplicatedWorld) -> int:
    return decode_controller(world.zookeeper.tree.get(CONTROLLER)[0]).broker_id


async def alter_isr(world: ReplicatedWorld, isr: list[int], leader_epoch: int, partition_epoch: int) -> int:
    """Request an ISR as the leader of the partition; returns the error code."""
    leader = leader_of(world)
    requested = AlterPartitionRequest.TopicData.PartitionData(
        partition_index=ORDERS[1], leader_epoch=leader_epoch, new_isr=isr, partition_epoch=partition_epoch
    )
    topic = AlterPartitionRequest.TopicData(topic_id=world.topics()[ORDERS[0]].topic_id, partitions=[requested])
    broker_epoch = world.zookeeper.tree.get(registration_path(leader))[1].czxid
    request = AlterPartitionRequest(broker_id=leader, broker_epoch=broker_epoch, topics=[topic])
    response = await world.call(controller_of(world), request, 2)
    assert not response.error_code, response
    error: int = response.topics[0].partitions[0].error_code
    return error


def write_state(world: ReplicatedWorld, path: str, state: znodes.PartitionState) -> None:
    """Write the state of a partition as another program does, which compares no version."""
    tree = world.zookeeper.tree
    tree.multi([Set(path, znodes.encode_state(state), -1)], tree.open_session(), 0)
    world.zookeeper.fire()


def test_fetch_of_an_earlier_leader_epoch_is_fenced(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, b"one")
        world.cluster.kill(leader_of(world))
        await send(world, b"two")
        errors = []
        for epoch in (state_of(world).leader_epoch - 1, state_of(world).leader_epoch):
            request = fetch_request(ORDERS[0], (ORDERS[1], 0), current_leader_epoch=epoch)
            response = await world.call(leader_of(world), request, 12)
            errors.append(fetched(response)[ORDERS].error_code)
        assert errors == [KafkaErrorCode.FENCED_LEADER_EPOCH, 0]

    in_a_cluster(tmp_path, scenario)


def test_isr_of_an_earlier_leader_epoch_is_not_written(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, b"one")
        killed = leader_of(world)
        world.cluster.kill(killed)
        await send(world, b"two")
        await world.cluster.start(killed)
        await until_in_sync(world)
        state = state_of(world)
        error = await alter_isr(world, [state.leader], state.leader_epoch - 1, state.version)
        assert error == KafkaErrorCode.FENCED_LEADER_EPOCH
        assert state_of(world) == state

    in_a_cluster(tmp_path, scenario)


def test_isr_of_an_earlier_version_is_not_written(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await world.brokers[next(each for each in state_of(world).isr if each != leader_of(world))].stop()
        await pass_time(1.0)
        state = state_of(world)
        assert len(state.isr) == 2
        error = await alter_isr(world, [state.leader], state.leader_epoch, state.version - 1)
        assert error == KafkaErrorCode.INVALID_UPDATE_VERSION
        assert state_of(world) == state

    in_a_cluster(tmp_path, scenario)


def test_state_that_another_program_has_written_is_not_overwritten(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, b"one")
        path = znodes.state_path(*ORDERS)
        written = znodes.decode_state(path, world.zookeeper.tree.get(path)[0])
        later = written._replace(leader_epoch=written.leader_epoch + 5)
        write_state(world, path, later)
        follower = next(each for each in written.isr if each != written.leader)
        world.cluster.kill(follower)
        await pass_time(5.0)
        state = state_of(world)
        assert follower not in state.isr and state.leader_epoch >= later.leader_epoch, state
        await world.cluster.start(follower)
        await until_in_sync(world)

    in_a_cluster(tmp_path, scenario)


def test_leader_uses_a_newer_state_of_its_leader_epoch(tmp_path: Path) -> None:
    """Another program has removed a follower from the ISR. The version of the leader's next change is too old: the
    controller sends the state, and the leader continues with it in the same leader epoch.
    """

    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, b"one")
        path = znodes.state_path(*ORDERS)
        before = znodes.decode_state(path, world.zookeeper.tree.get(path)[0])
        followers = [each for each in before.isr if each != before.leader]
        removed, lagging = sorted(followers, key=lambda each: each != controller_of(world))
        write_state(world, path, before._replace(isr=(before.leader, lagging), isr_epochs=()))
        world.network.disconnect(host_of(before.leader), host_of(lagging))
        async with Producer(world.bootstrap, environment=world.environment(), acks=1) as producer:
            await producer.send(ORDERS[0], b"two")
        until = world.loop.time() + 2 * LAG_MAX_S
        while lagging in state_of(world).isr and world.loop.time() < until:
            await pass_time(0.1)
        assert set(state_of(world).isr) <= {before.leader, removed}, state_of(world)
        world.network.reconnect(host_of(before.leader), host_of(lagging))
        await until_in_sync(world)
        assert (state_of(world).leader, state_of(world).leader_epoch) == (before.leader, before.leader_epoch)
        await send(world, b"three")
        assert await values(world) == [b"one", b"two", b"three"]

    in_a_cluster(tmp_path, scenario)


def test_records_that_a_dead_leader_alone_had_are_removed(tmp_path: Path) -> None:
    """The new leader has other records at their offsets when the old one returns: both logs agree by epochs."""

    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, b"one")
        dead = leader_of(world)
        others = [each for each in world.replicas()[ORDERS] if each != dead]
        for each in others:
            world.network.disconnect(host_of(dead), host_of(each))
        producer = Producer(world.brokers[dead].address, environment=world.environment(), acks=1)
        async with producer:
            await producer.send(ORDERS[0], b"lost")
        world.cluster.kill(dead)
        assert [world.end_offset(each, ORDERS) for each in (dead, *others)] == [2, 1, 1]
        for each in others:
            world.network.reconnect(host_of(dead), host_of(each))
        await send(world, b"two", b"three")
        await world.cluster.start(dead)
        await until_in_sync(world)
        assert await values(world) == [b"one", b"two", b"three"]
        await pass_time(1.0)
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)


def test_a_follower_of_a_new_leader_keeps_what_it_has(tmp_path: Path) -> None:
    """Its high watermark may be lower: the new leader has the same records."""

    async def scenario(world: ReplicatedWorld, observer: Observer) -> None:
        await send(world, *(b"%d" % number for number in range(10)))
        observer.sample()
        world.cluster.kill(killed := leader_of(world))
        await send(world, b"next")
        await world.cluster.start(killed)
        await until_in_sync(world)
        assert len(await values(world)) == 11

    in_a_cluster(tmp_path, scenario)
