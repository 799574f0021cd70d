"""Transactions over three brokers in virtual time: markers on all leaders, and coordinators that move."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from kafkalite.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkalite.testing.simulated_cluster import SimulatedCluster
from tests.kit.transactions.history import History
from tests.kit.transactions.producer import RawProducer, Settings
from tests.kit.transactions.readers import fetch_committed
from tests.kit.transactions.wire import GROUP, NO_CONNECTION, TRANSACTION, Wire
from tests.story.cluster.test_three_brokers import Client, led, run, until

SETTINGS = {
    "transaction.state.log.num.partitions": 3,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "replica.lag.time.max.ms": 2_000,
}
TOPIC, PARTITIONS = "orders", 6


def producer(cluster: SimulatedCluster, client: Client, name: str, version: int) -> RawProducer:
    """A producer with connections of its own."""
    loop = asyncio.get_running_loop()
    settings = Settings(delivery_s=30.0, wall_ms=lambda: 1_700_000_000_000 + round(loop.time() * 1000))
    wire = Wire(cluster.bootstrap_servers, client.network.dial)
    return RawProducer(wire, name, version, History(loop.time), loop.time, settings)


async def topic_with_leaders(client: Client) -> dict[int, int]:
    """A replicated topic; its leaders."""
    controller = await client.controller(1, 2, 3)
    assert (await client.create(controller, TOPIC, partitions=PARTITIONS, factor=3)).error_code == 0
    leaders = await led(client, controller, TOPIC, PARTITIONS)
    assert set(leaders.values()) == {1, 2, 3}
    return leaders


async def visible(wire: Wire, count: int) -> list[int]:
    """The committed numbers of all partitions, once there are `count`, in order."""

    async def look() -> list[int] | None:
        try:
            parts = [await fetch_committed(wire, (TOPIC, index), 0) for index in range(PARTITIONS)]
        except NO_CONNECTION:
            wire.forget_leaders([(TOPIC, index) for index in range(PARTITIONS)])
            return None
        numbers = sorted(number for part in parts for _, number in part.records)
        complete = all(part.last_stable_offset == part.high_watermark for part in parts)
        return numbers if complete and len(numbers) >= count else None

    found: list[int] = await until(look)
    return found


async def transact(producer: RawProducer, *, commit: bool) -> list[int]:
    """Send a record to each partition and end the transaction; the committed numbers."""
    producer.begin()
    numbers: list[int] = []
    for index in range(PARTITIONS):
        numbers += await producer.send((TOPIC, index))
    await (producer.commit() if commit else producer.abort())
    return numbers if commit else []


@pytest.mark.parametrize("version", [1, 2])
def test_markers_reach_the_partitions_of_all_brokers(tmp_path: Path, version: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await topic_with_leaders(client)
        expected: list[int] = []
        history = History(asyncio.get_running_loop().time)
        for number in range(4):
            each = producer(cluster, client, f"p{number}", version)
            each.history = history
            await each.initialize()
            for commit in (True, False, True):
                expected += await transact(each, commit=commit)
            await each.wire.close()
        wire = Wire(cluster.bootstrap_servers, client.network.dial)
        assert await visible(wire, len(expected)) == sorted(expected)
        await wire.close()

    run(tmp_path, scenario, settings=SETTINGS)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_next_coordinator_completes_a_decided_transaction(tmp_path: Path, version: int, commit: bool) -> None:
    """The coordinator ends when it has answered EndTxn; no client asks the next one."""

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        leaders = await topic_with_leaders(client)
        each = producer(cluster, client, "me", version)
        await each.initialize()
        host, _ = await each.wire.coordinator(TRANSACTION, "me")
        coordinator = int(host.removeprefix("broker"))
        each.begin()
        numbers = []
        for index in range(PARTITIONS):
            numbers += await each.send((TOPIC, index))
        await (each.commit() if commit else each.abort())
        cluster.brokers[coordinator].kill()
        await each.wire.close()
        survivor = next(iter({1, 2, 3} - {coordinator}))
        wire = Wire(f"broker{survivor}:9092", client.network.dial)
        assert await visible(wire, len(numbers) if commit else 0) == (numbers if commit else [])
        state = await until(lambda: completed(wire, "me"))
        assert state == ("CompleteCommit" if commit else "CompleteAbort")
        assert leaders
        await wire.close()

    run(tmp_path, scenario, settings=SETTINGS)


@pytest.mark.parametrize("version", [1, 2])
def test_offsets_of_a_group_end_with_the_transaction(tmp_path: Path, version: int) -> None:
    """The coordinators of group and transaction may be two brokers; the offsets are pending until the decision."""

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await topic_with_leaders(client)
        each = producer(cluster, client, "me", version)
        await each.initialize()
        for number, group in enumerate(f"g{at}" for at in range(6)):
            each.begin()
            await each.send((TOPIC, 0))
            await each.send_offsets(group, {(TOPIC, 0): 10 + number})
            await each.commit()
            each.begin()
            await each.send_offsets(group, {(TOPIC, 0): 100})
            await each.abort()
            assert await until(partial(stable_offset, each.wire, group)) == 10 + number
        await each.wire.close()

    run(tmp_path, scenario, settings=SETTINGS)


async def stable_offset(wire: Wire, group: str) -> int | None:
    """The committed offset of a group, once no transaction is pending (`require_stable`)."""
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
    request = OffsetFetchRequest(group_id=group, topics=[topic], require_stable=True)
    try:
        (found,) = (await wire.coordinated(GROUP, group, request, 7)).topics
    except NO_CONNECTION:
        return None
    (part,) = found.partitions
    return None if part.error_code else part.committed_offset


async def completed(wire: Wire, transactional_id: str) -> str | None:
    """The state of a transaction, once it is complete."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    try:
        (state,) = (await wire.coordinated(TRANSACTION, transactional_id, request, 0)).transaction_states
    except NO_CONNECTION:
        return None
    if state.error_code:
        wire.forget_coordinator(TRANSACTION, transactional_id)
    return state.transaction_state if state.transaction_state.startswith("Complete") else None
