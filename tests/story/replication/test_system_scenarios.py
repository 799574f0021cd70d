"""Scenarios of Apache Kafka's system tests for replication (tests/kafkatest/tests/core of 3.9) that no other test has.

| Kafka | here |
|---|---|
| replication_test: clean and hard ends of leaders and controllers | test_three_replicas, test_stops; tests/torture |
| the same with compression; replica_failure_test: a follower is cut off | this module |
| truncation_test: an unclean election | this module; one broker: tests/compat/test_truncation |
| consumer_test: rolling restart, other ends of brokers | tests/torture/test_rolling_restart, test_groups_sigkill |
| log_dir_failure_test | this module; tests/torture/test_replica_disks |
| fetch_from_follower_test | tests/story/server/test_follower_reads |
| log_compaction_test | test_simulation: `__consumer_offsets` is compacted |
| network partitions, suspended processes (Trogdor) | tests/torture/test_replication_processes |

Not served, so without a test: transactions, replication quotas (throttling_test), reassignments, SASL and TLS between
brokers.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from kafkalite_sdk.consumer.consumer import Consumer
from kafkalite_sdk.producer.producer import Producer

from kafkalite.model import TopicPartition
from kafkalite.testing.simulated_cluster import host_of
from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.administrator import Administrator
from tests.story.cluster.world import run
from tests.story.replication.final_checks import check_replicas
from tests.story.replication.observer import Observer
from tests.story.replication.test_three_replicas import (
    ORDERS,
    SEED,
    in_a_cluster,
    leader_of,
    send,
    until_in_sync,
    values,
)
from tests.story.replication.world import ReplicatedWorld

SHRINK_S = 10.0  # beyond the longest replica.lag.time.max.ms of a world, and the checks of half of it
BATCH = [b"%d" % number * 100 for number in range(50)]


async def until_isr(world: ReplicatedWorld, isr: set[int]) -> None:
    """Wait until the partition has this ISR."""
    until = world.loop.time() + SHRINK_S
    while (state := world.observed_state(ORDERS)) is None or set(state.isr) != isr:
        assert world.loop.time() < until, state
        await pass_time(0.1)


async def send_one(world: ReplicatedWorld, value: bytes) -> None:
    """Send a record to the leader alone, with acks=1."""
    producer = Producer(world.brokers[leader_of(world)].address, environment=world.environment(), acks=1)
    async with producer:
        await producer.send(ORDERS[0], value)


async def polled(consumer: Consumer, count: int) -> list[bytes | None]:
    """Read so many records."""
    found: list[bytes | None] = []
    while len(found) < count:
        found += [record.value for record in await consumer.poll(timeout=1.0)]
    return found


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_cut_off_follower_leaves_the_isr_and_fetches_compressed_batches_later(tmp_path: Path, codec: str) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        leader = leader_of(world)
        members = world.replicas()[ORDERS]
        cut = next(each for each in members if each != leader)
        world.network.disconnect(host_of(leader), host_of(cut))
        async with Producer(
            world.bootstrap, environment=world.environment(), acks="all", compression_type=codec
        ) as producer:
            for value in BATCH:
                producer.send(ORDERS[0], value)
            await producer.flush()
        await until_isr(world, set(members) - {cut})
        world.network.reconnect(host_of(leader), host_of(cut))
        await until_in_sync(world)
        assert await values(world) == BATCH
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)


def test_another_replica_leads_when_the_disk_of_the_leader_fails(tmp_path: Path) -> None:
    """The failed directory is the only one of the broker. What it has acknowledged is on the other replicas."""

    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        await send(world, b"one")
        leader = leader_of(world)
        world.brokers[leader].disk.fail("write", errno.EIO, path="orders-0", repeat=True)
        await send(world, b"two", b"three")
        assert leader_of(world) != leader
        await until_isr(world, set(world.replicas()[ORDERS]) - {leader})
        world.cluster.kill(leader)
        await world.cluster.start(leader)
        await until_in_sync(world)
        assert await values(world) == [b"one", b"two", b"three"]
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)


def test_consumer_reads_on_behind_the_truncation_of_an_unclean_election(tmp_path: Path) -> None:
    """It begins neither at offset 0 nor behind the lost records; the old leader removes them when it returns."""

    async def scenario(world: ReplicatedWorld) -> None:
        more = {"min_insync_replicas": "1", "unclean_leader_election_enable": "true"}
        assert await Administrator(world).create(ORDERS[0], 1, 3, **more)
        await until_in_sync(world)
        await send(world, b"one")
        last = leader_of(world)
        others = [each for each in world.replicas()[ORDERS] if each != last]
        consumer = Consumer(world.bootstrap, environment=world.environment(), auto_offset_reset="earliest")
        async with consumer:
            consumer.assign([TopicPartition(*ORDERS)])
            for each in others:
                world.network.disconnect(host_of(last), host_of(each))
            await send_one(world, b"lost")
            await until_isr(world, {last})
            assert await polled(consumer, 2) == [b"one", b"lost"]
            world.cluster.kill(last)
            for each in others:
                world.network.reconnect(host_of(last), host_of(each))
            await send(world, b"two", b"three")
            assert leader_of(world) in others
            assert await polled(consumer, 2) == [b"two", b"three"]
        await world.cluster.start(last)
        await until_in_sync(world)
        assert await values(world) == [b"one", b"two", b"three"]
        await pass_time(1.0)
        await check_replicas(world)

    run(tmp_path, SEED, scenario, ReplicatedWorld)
