"""Transactions whose partitions are led by other brokers than their coordinator: one batched request between them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafkalite.protocol.messages.end_txn import EndTxnRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.records import Builder
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.server import produce_request
from tests.story.cluster.administrator import Administrator
from tests.story.cluster.world import run
from tests.story.replication.test_three_replicas import SEED
from tests.story.replication.world import ReplicatedWorld

PARTITIONS = 6
TV1, TV2 = 11, 12  # versions of Produce
Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


def in_a_cluster(directory: Path, scenario: Callable[[ReplicatedWorld], Awaitable[None]]) -> None:
    """Run a scenario with a topic whose partitions are led by all brokers."""

    async def main(world: ReplicatedWorld) -> None:
        assert await Administrator(world).create("t", PARTITIONS, 3)
        await scenario(world)

    run(directory, SEED, main, ReplicatedWorld)


def leader_of(world: ReplicatedWorld, partition: int) -> int:
    state = world.observed_state(("t", partition))
    assert state is not None
    return state.leader


async def found(world: ReplicatedWorld, transactional_id: str) -> int:
    """The coordinator of a transactional id, once there is one."""
    for _ in range(200):
        request = FindCoordinatorRequest(key="", coordinator_keys=[transactional_id], key_type=1)
        (coordinator,) = (await world.call(1, request, 4)).coordinators
        if not coordinator.error_code:
            return int(coordinator.node_id)
        await pass_time(0.1)
    raise AssertionError(f"{transactional_id} has no coordinator")


async def initialized(world: ReplicatedWorld, transactional_id: str) -> Any:
    """The response of InitProducerId."""
    for _ in range(200):
        coordinator = await found(world, transactional_id)
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        response = await world.call(coordinator, request, 5)
        if not response.error_code:
            return response
        await pass_time(0.1)
    raise AssertionError(f"{transactional_id} has no producer id")


async def ended(world: ReplicatedWorld, coordinator: int, transactional_id: str, producer: Any, *, commit: bool) -> Any:
    """The response of EndTxn 5, with the next epoch."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=commit,
    )
    response = await world.call(coordinator, request, 5)
    assert not response.error_code, Error(response.error_code)
    return response


async def produced(
    world: ReplicatedWorld, transactional_id: str, producer: Any, partition: int, version: int = TV1
) -> int:
    """The error code of Produce for one record."""
    builder = Builder()
    builder.append(1, None, b"x")
    fields = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch, "base_sequence": 0}
    batch = bytes(builder.build(transactional=True, **fields))
    request = produce_request("t", (partition, batch), transactional_id=transactional_id)
    response = await world.call(leader_of(world, partition), request, version)
    error: int = response.responses[0].partition_responses[0].error_code
    return error


def test_transaction_over_the_leaders_of_several_brokers(tmp_path: Path) -> None:
    """TV2: the leaders add their partitions to the transaction at its coordinator."""

    async def scenario(world: ReplicatedWorld) -> None:
        producer = await initialized(world, "spread")
        coordinator = await found(world, "spread")
        assert len({leader_of(world, each) for each in range(PARTITIONS)}) > 1
        for commit in (True, False, True):
            values = [produced(world, "spread", producer, each, TV2) for each in range(PARTITIONS)]
            assert await asyncio.gather(*values) == [0] * PARTITIONS
            producer = await ended(world, coordinator, "spread", producer, commit=commit)
        for partition in range(PARTITIONS):
            log = world.open_log(leader_of(world, partition), ("t", partition))
            assert log is not None
            while log.producers.open_transactions():
                await pass_time(0.1)
            aborted = [entry.first_offset for segment in log.segments for entry in segment.transactions.entries()]
            assert (log.log_end_offset, aborted) == (6, [2])

    in_a_cluster(tmp_path, scenario)


def test_partitions_of_other_brokers_are_verified(tmp_path: Path) -> None:
    """TV1: the partition was added to the transaction before, or was not."""

    async def scenario(world: ReplicatedWorld) -> None:
        producer = await initialized(world, "old")
        coordinator = await found(world, "old")
        others = [each for each in range(PARTITIONS) if leader_of(world, each) != coordinator]
        request = AddPartitionsToTxnRequest(
            transactions=[],
            v3_and_below_transactional_id="old",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[Topic(name="t", partitions=others[:1])],
        )
        response = await world.call(coordinator, request, 3)
        assert not response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        assert await produced(world, "old", producer, others[0]) == 0
        assert await produced(world, "old", producer, others[1]) == Error.TRANSACTION_ABORTABLE

    in_a_cluster(tmp_path, scenario)


def test_coordinator_that_has_died_is_a_retriable_error(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld) -> None:
        producer = await initialized(world, "old")
        coordinator = await found(world, "old")
        other = next(each for each in range(PARTITIONS) if leader_of(world, each) != coordinator)
        world.cluster.kill(coordinator)
        assert await produced(world, "old", producer, other) == Error.NOT_ENOUGH_REPLICAS
        await world.cluster.start(coordinator)

    in_a_cluster(tmp_path, scenario)
