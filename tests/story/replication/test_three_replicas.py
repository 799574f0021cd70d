"""A topic with three replicas: acknowledged records are on all of them, and are kept when leaders are killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from kafkalite_sdk.producer.producer import Producer

from kafkalite.errors import KafkaError
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.testing.simulated_cluster import PORT, host_of
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.replica_invariants import Partition
from tests.kit.server import batch, outcomes, produce_request
from tests.story.cluster.administrator import Administrator
from tests.story.cluster.invariants import check_leader_epochs
from tests.story.cluster.world import run
from tests.story.replication.final_checks import check_in_sync, check_replicas
from tests.story.replication.observer import Observer
from tests.story.replication.truncations import observed_truncations
from tests.story.replication.world import ReplicatedWorld

ORDERS: Partition = ("orders", 0)
FLUSHED: Partition = ("flushed", 0)  # created by tests of flushes
SEED = 1  # not one in which all topics are flushed
RECOVERY_S = 10.0
SESSION_S = 2.0
REQUEST_S = 60.0
EXTRA_S = 5.0  # beyond the session timeout, until a partition without its leader acknowledges again


def in_a_cluster(directory: Path, scenario: Callable[[ReplicatedWorld, Observer], Awaitable[None]]) -> None:
    """Run a scenario with a topic of three replicas, whose ISR is complete."""

    async def main(world: ReplicatedWorld) -> None:
        observer = Observer(world)
        created = await Administrator(world).create("orders", 1, 3)
        assert created
        await until_in_sync(world)
        with observed_truncations(world, observer):
            await scenario(world, observer)
        observer.check()

    run(directory, SEED, main, ReplicatedWorld)


async def until_in_sync(world: ReplicatedWorld) -> None:
    """Wait until all replicas are in sync, at most 10 virtual seconds."""
    until = world.loop.time() + RECOVERY_S
    while not world.all_in_sync() and world.loop.time() < until:
        await pass_time(0.05)
    check_in_sync(world)


def leader_of(world: ReplicatedWorld) -> int:
    state = world.observed_state(ORDERS)
    assert state is not None
    return state.leader


async def send(world: ReplicatedWorld, *values: bytes) -> list[int]:
    """Send values to `orders`, as `send_to`."""
    return await send_to(world, ORDERS[0], *values)


async def send_to(world: ReplicatedWorld, topic: str, *values: bytes) -> list[int]:
    """Send values one after another with acks=all; returns their offsets."""
    async with Producer(world.bootstrap, environment=world.environment(), acks="all") as producer:
        return [(await producer.send(topic, value)).offset for value in values]


async def values(world: ReplicatedWorld) -> list[bytes | None]:
    return [value for _, value in (await world.logs([ORDERS[0]]))[ORDERS]]


def test_acknowledged_records_are_on_all_replicas(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        assert await send(world, b"one", b"two") == [0, 1]
        assert [world.end_offset(each, ORDERS) for each in world.replicas()[ORDERS]] == [2, 2, 2]
        await pass_time(1.0)
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)


def test_acknowledged_records_are_kept_when_the_leader_is_killed(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, observer: Observer) -> None:
        await send(world, b"one", b"two")
        killed, began = leader_of(world), world.loop.time()
        world.cluster.kill(killed)
        await send(world, b"three")
        assert world.loop.time() - began < SESSION_S + EXTRA_S
        assert leader_of(world) != killed
        assert await values(world) == [b"one", b"two", b"three"]
        await world.cluster.start(killed)
        await until_in_sync(world)
        await check_replicas(world)
        assert {state.leader_epoch for state in observer.states[ORDERS]} >= {0, 1}

    in_a_cluster(tmp_path, scenario)


def test_each_broker_is_killed_once_as_the_leader(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        sent: list[bytes] = []
        for _ in range(2 * len(world.replicas()[ORDERS])):
            sent.append(b"%d" % len(sent))
            await send(world, sent[-1])
            killed = leader_of(world)
            world.cluster.kill(killed)
            sent.append(b"%d" % len(sent))
            await send(world, sent[-1])
            await world.cluster.start(killed)
            await until_in_sync(world)
        assert await values(world) == sent
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)


def test_a_paused_leader_acknowledges_nothing_after_the_election_of_another(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, b"one")
        paused = leader_of(world)
        connection = ClientConnection(host_of(paused), PORT, timeout_s=REQUEST_S, dial=world.network.dial)
        async with connection:
            await connection.call(MetadataRequest(topics=[]), version_max=1)  # it is connected
            world.brokers[paused].pause()
            request = produce_request(ORDERS[0], (ORDERS[1], batch(b"late")))
            late = asyncio.ensure_future(connection.call(request, version_max=9))
            await send(world, b"two")
            assert leader_of(world) != paused
            world.brokers[paused].resume()
            (found,) = await asyncio.gather(late, return_exceptions=True)
        assert isinstance(found, KafkaError) or all(each.error_code for each in outcomes(found)), found
        await send(world, b"three")
        await until_in_sync(world)
        assert await values(world) == [b"one", b"two", b"three"]
        await pass_time(1.0)
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)


def test_a_record_is_acknowledged_when_the_isr_has_it(tmp_path: Path) -> None:
    """A follower that does not run delays the acknowledgement until the controller has removed it from the ISR."""

    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, b"one")
        paused = next(each for each in world.replicas()[ORDERS] if each != leader_of(world))
        world.brokers[paused].pause()
        (offset,) = await send(world, b"two")
        state = world.observed_state(ORDERS)
        assert state is not None
        assert all(world.end_offset(each, ORDERS) > offset for each in state.isr), state
        assert paused not in state.isr
        world.brokers[paused].resume()
        await until_in_sync(world)

    in_a_cluster(tmp_path, scenario)


def test_a_leader_that_restarts_within_its_session_leads_in_a_new_epoch_only(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, b"one")
        killed = leader_of(world)
        world.cluster.kill(killed)
        await world.cluster.start(killed)
        await send(world, b"two")
        check_leader_epochs(world, ORDERS[0])
        await until_in_sync(world)
        check_leader_epochs(world, ORDERS[0])
        assert await values(world) == [b"one", b"two"]

    in_a_cluster(tmp_path, scenario)


def test_a_power_failure_of_one_broker_loses_nothing(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, observer: Observer) -> None:
        for broker_id in world.replicas()[ORDERS]:
            await send(world, b"before %d" % broker_id)
            observer.lost_power(broker_id)
            world.cluster.cut_power(broker_id)
            await world.cluster.start(broker_id)
            await send(world, b"after %d" % broker_id)
            await until_in_sync(world)
        expected = [b"%s %d" % (when, each) for each in world.replicas()[ORDERS] for when in (b"before", b"after")]
        assert await values(world) == expected
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)


def test_a_whole_cluster_is_killed_and_started(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, b"one", b"two")
        for broker_id in world.brokers:
            world.cluster.kill(broker_id)
        await pass_time(5.0)
        for broker_id in world.brokers:
            await world.cluster.start(broker_id)
        await send(world, b"three")
        await until_in_sync(world)
        assert await values(world) == [b"one", b"two", b"three"]
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)
