"""Whole transactions on one broker: what read_committed consumers see, timeouts, restarts, unreadable state."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from kafkalite.cluster.partition.append import Append, OwnAppend
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.records import Builder, batches
from tests.kit.server import Client, batch, fetch_request, fetched, outcomes, produce_request, running
from tests.story.server.test_transaction_coordinator import TV1, TV2, Producer, described

COMMITTED = 1
STATE = "__transaction_state"
STATE_PARTITIONS = {"transaction.state.log.num.partitions": "1"}
PRODUCE = {TV1: 11, TV2: 12}


async def send(producer: Producer, version: int, *values: bytes, sequence: int = 0, topic: str = "t") -> Error:
    """Produce a batch to partition 0, in the version of a client of this version of EndTxn."""
    if version == TV1:
        assert await producer.add((topic, 0)) == [Error.NONE]
    fields = {"producer_id": producer.id, "producer_epoch": producer.epoch, "base_sequence": sequence}
    records = batch(*values, transactional=True, **fields)
    request = produce_request(topic, (0, records), transactional_id=producer.transactional_id)
    (found,) = outcomes(await producer.client.call(request, PRODUCE[version]))
    return Error(found.error_code)


async def committed(client: Client, **more: Any) -> tuple[list[bytes | None], int, int]:
    """The committed values of partition 0, the last stable offset and the high watermark; all or no records of a
    response are those of aborted transactions.
    """
    values: list[bytes | None] = []
    offset = 0
    while True:
        request: FetchRequest = fetch_request("t", (0, offset), isolation_level=COMMITTED, **more)
        part = fetched(await client.call(request, 12))["t", 0]
        assert part.error_code == 0
        read = batches(part.records or b"")
        if not part.aborted_transactions:
            values += [record.value for each in read if not each.control for record in each]
        offset = read[-1].last_offset + 1 if read else offset
        if offset >= part.last_stable_offset:
            return values, part.last_stable_offset, part.high_watermark


@pytest.fixture
async def producer(client: Client) -> Producer:
    await client.create("t")
    producer = Producer(client)
    assert await producer.init() == Error.NONE
    return producer


@pytest.mark.parametrize("version", [TV1, TV2])
async def test_committed_records_become_visible_with_their_marker(producer: Producer, version: int) -> None:
    assert await send(producer, version, b"a", b"b") == Error.NONE
    assert await send(producer, version, b"c", sequence=2) == Error.NONE
    assert await committed(producer.client) == ([], 0, 3)
    assert await producer.end(version=version) == Error.NONE
    assert await committed(producer.client) == ([b"a", b"b", b"c"], 4, 4)


@pytest.mark.parametrize("version", [TV1, TV2])
async def test_aborted_records_stay_invisible(producer: Producer, version: int) -> None:
    assert await send(producer, version, b"a") == Error.NONE
    assert await producer.end(commit=False, version=version) == Error.NONE
    assert await committed(producer.client) == ([], 2, 2)


async def test_batch_of_a_partition_that_was_not_added_is_rejected(producer: Producer) -> None:
    """TV1: the leader verifies. The records of a later transaction, with the next epoch, are not hindered."""
    records = batch(b"a", transactional=True, producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=0)
    request = produce_request("t", (0, records), transactional_id="me")
    (found,) = outcomes(await producer.client.call(request, 11))
    assert found.error_code == Error.TRANSACTION_ABORTABLE
    assert await committed(producer.client) == ([], 0, 0)
    assert await send(producer, TV2, b"a") == Error.NONE
    assert await producer.end() == Error.NONE


async def test_late_batch_of_an_ended_transaction_is_rejected(producer: Producer) -> None:
    """TV2: each transaction has an epoch of its own (KIP-890)."""
    late = Producer(producer.client)
    late.id, late.epoch = producer.id, producer.epoch
    assert await send(producer, TV2, b"a") == Error.NONE
    assert await producer.end() == Error.NONE
    assert await send(late, TV2, b"late", sequence=1) in (Error.INVALID_PRODUCER_EPOCH, Error.PRODUCER_FENCED)
    assert await send(producer, TV2, b"b") == Error.NONE
    assert await producer.end() == Error.NONE
    assert await committed(producer.client) == ([b"a", b"b"], 4, 4)


@pytest.mark.parametrize("commit", [True, False])
async def test_late_end_of_an_ended_transaction_does_not_end_the_next_one(producer: Producer, commit: bool) -> None:
    """TV2; a delayed EndTxn of TV1 has the epoch of the next transaction, too."""
    late = Producer(producer.client)
    late.id, late.epoch = producer.id, producer.epoch
    assert await send(producer, TV2, b"a") == Error.NONE
    assert await producer.end() == Error.NONE
    assert await send(producer, TV2, b"b") == Error.NONE
    assert await late.end(commit=commit) == Error.PRODUCER_FENCED
    assert (await producer.state()).transaction_state == "Ongoing"
    assert await producer.end() == Error.NONE
    assert await committed(producer.client) == ([b"a", b"b"], 4, 4)


async def test_transaction_is_aborted_at_its_timeout(client: Client) -> None:
    """The fetch waits: the marker of the abort completes it."""
    await client.create("t")
    producer = Producer(client)
    assert await producer.init(timeout_ms=200) == Error.NONE
    assert await send(producer, TV2, b"a") == Error.NONE
    assert await committed(client, max_wait_ms=20_000) == ([], 2, 2)
    assert (await producer.state()).transaction_state == "CompleteAbort"
    assert await producer.end() == Error.INVALID_TXN_STATE, "as a retry that commits"
    assert await producer.init() == Error.NONE


@pytest.mark.parametrize("version", [TV1, TV2])
async def test_open_transaction_goes_on_after_a_restart(tmp_path: Path, version: int) -> None:
    async with running(str(tmp_path), STATE_PARTITIONS) as client:
        await client.create("t")
        producer = Producer(client)
        assert await producer.init() == Error.NONE
        assert await send(producer, version, b"a") == Error.NONE
    async with running(str(tmp_path), STATE_PARTITIONS) as client:
        producer.client = client
        while (state := await producer.state()).error_code == Error.COORDINATOR_LOAD_IN_PROGRESS:
            await asyncio.sleep(0)
        assert (state.transaction_state, [each.topic for each in state.topics]) == ("Ongoing", ["t"])
        assert await send(producer, version, b"b", sequence=1) == Error.NONE
        assert await producer.end(version=version) == Error.NONE
        assert await committed(client) == ([b"a", b"b"], 3, 3)


async def test_transaction_of_a_deleted_topic_ends(producer: Producer) -> None:
    client = producer.client
    await client.create("other")
    assert await send(producer, TV2, b"a") == Error.NONE
    assert await send(producer, TV2, b"a", topic="other") == Error.NONE
    await client.delete("other")
    assert await producer.end() == Error.NONE
    while (await producer.state()).transaction_state != "CompleteCommit":
        await asyncio.sleep(0)
    assert await committed(client) == ([b"a"], 2, 2)


def append_to_state(client: Client, key: bytes, value: bytes) -> None:
    """Append a record that this version does not know."""
    partition = client.broker.replicas.partition(STATE, b"", 0, by_id=False)
    assert isinstance(partition, Partition)
    builder, done = Builder(), list[Append]()
    builder.append(1, key, value)
    partition.append_internal(OwnAppend(bytearray(builder.build(0)), done.append))
    client.broker.replicas.write_pending()
    assert [each.error for each in done] == [0]


async def test_unknown_record_stops_the_loading_and_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(str(tmp_path), STATE_PARTITIONS) as client:
        assert await Producer(client).init() == Error.NONE
        append_to_state(client, b"\x00\x09future", b"")
    with caplog.at_level(logging.ERROR, "kafkalite"):
        async with running(str(tmp_path), STATE_PARTITIONS) as client:
            producer = Producer(client)
            while (error := await producer.init()) == Error.COORDINATOR_LOAD_IN_PROGRESS:
                await asyncio.sleep(0)
            assert error == Error.NOT_COORDINATOR
            (state,) = await described(client, "me")
            assert state.error_code == Error.NOT_COORDINATOR
            (line,) = caplog.messages
            assert line == f"{STATE}-0: load failed: offset 1: record of unknown type 9"
