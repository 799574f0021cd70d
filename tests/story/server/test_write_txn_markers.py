"""WriteTxnMarkers on a whole broker: markers of coordinators and administrators, good and bad ones."""

import asyncio
from typing import Any

import pytest

from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.topics.internal_topics import OFFSETS
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from kafkalite.records.control import ControlType
from kafkalite.server.handlers.write_txn_markers import marker_of, partitions_of
from kafkalite.server.hosting import marker_writer
from tests.kit.server import Client, batch
from tests.story.server.test_transactions import Writer, aborted, read

Written = WriteTxnMarkersRequest.WritableTxnMarker
Errors = dict[tuple[int, str, int], int]


def marker(
    producer_id: int,
    *partitions: tuple[str, int],
    commit: bool = True,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 0,
) -> Written:
    """The marker of a transaction for partitions."""
    topics = [Written.WritableTxnMarkerTopic(name=name, partition_indexes=[index]) for name, index in partitions]
    return Written(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=topics,
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


async def write(client: Client, *markers: Written, version: int = 2) -> Errors:
    """Send markers; the errors by producer id, topic and partition."""
    answer = await client.call(WriteTxnMarkersRequest(markers=list(markers)), version)
    return {
        (each.producer_id, topic.name, part.partition_index): part.error_code
        for each in answer.markers
        for topic in each.topics
        for part in topic.partitions
    }


@pytest.fixture
async def writer(client: Client) -> Writer:
    await client.create("t", partitions=3)
    await client.produce("t", batch(b"plain"))
    return Writer(client)


@pytest.mark.parametrize("version", [1, 2])
async def test_markers_end_transactions(client: Client, writer: Writer, version: int) -> None:
    writer.send(7, b"a")  # 1
    writer.send(8, b"b")  # 2
    errors = await write(client, marker(7, ("t", 0), ("t", 1)), marker(8, ("t", 0), commit=False), version=version)
    assert errors == {(7, "t", 0): 0, (7, "t", 1): 0, (8, "t", 0): 0}
    part = await read(client)
    assert (part.last_stable_offset, aborted(part)) == (5, [(8, 2)])


async def test_request_without_markers(client: Client) -> None:
    assert await write(client) == {}


async def test_unknown_partitions_and_internal_topics(client: Client, writer: Writer) -> None:
    writer.send(7, b"a")
    internal = "__transaction_state"
    errors = await write(client, marker(9, ("t", 3), ("none", 0), ("t", -1), (internal, 0), (OFFSETS.name, 0)))
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert errors.pop((9, internal, 0)) in (unknown, Error.INVALID_TOPIC_EXCEPTION)
    assert errors == {
        (9, "t", 3): unknown,
        (9, "none", 0): unknown,
        (9, "t", -1): unknown,
        (9, OFFSETS.name, 0): unknown,
    }
    assert OFFSETS.name not in client.broker.image.topics, "a marker creates no topic"
    assert (await read(client)).last_stable_offset == 1


async def test_marker_of_an_unknown_producer_has_no_effect_on_others(client: Client, writer: Writer) -> None:
    writer.send(7, b"a")
    assert await write(client, marker(9, ("t", 0))) == {(9, "t", 0): 0}
    assert (await read(client)).last_stable_offset == 1


async def test_marker_with_an_older_epoch_is_rejected(client: Client, writer: Writer) -> None:
    writer.send(7, b"a")
    assert await write(client, marker(7, ("t", 0), epoch=3)) == {(7, "t", 0): 0}
    before = writer.partition.high_watermark
    assert await write(client, marker(7, ("t", 0), epoch=2)) == {(7, "t", 0): Error.INVALID_PRODUCER_EPOCH}
    assert writer.partition.high_watermark == before


async def test_marker_of_an_older_coordinator_is_rejected(client: Client, writer: Writer) -> None:
    writer.send(7, b"a")
    writer.end(7, ControlType.COMMIT, coordinator=3)
    errors = await write(client, marker(7, ("t", 0), coordinator_epoch=2))
    assert errors == {(7, "t", 0): Error.TRANSACTION_COORDINATOR_FENCED}


async def test_marker_of_tv2_needs_a_greater_epoch(client: Client, writer: Writer) -> None:
    writer.send(7, b"a")
    assert await write(client, marker(7, ("t", 0), version=2)) == {(7, "t", 0): Error.INVALID_PRODUCER_EPOCH}
    assert (await read(client)).last_stable_offset == 1
    for _ in range(2):  # a repeated one too, while no transaction is open
        assert await write(client, marker(7, ("t", 0), epoch=1, version=2)) == {(7, "t", 0): 0}
    assert (await read(client)).last_stable_offset == writer.partition.high_watermark


@pytest.mark.parametrize("version", [0, 2])
async def test_marker_is_repeated_after_the_state_of_its_producer_has_expired(
    client: Client, writer: Writer, version: int
) -> None:
    """redpanda#21340: the partition rejected the marker that a coordinator repeated after a crash, for ever."""
    writer.send(8, b"open")  # 1
    writer.send(7, b"a")  # 2
    again = marker(7, ("t", 0), epoch=int(version == 2), version=version)
    assert await write(client, again) == {(7, "t", 0): 0}
    log = writer.partition.log
    for now_ms in (1_000, 2_000):  # the first check notes the time
        log.expire_producers(now_ms, 1_000)
    assert len(log.producers) == 1, "that of the open transaction"
    assert await write(client, again) == {(7, "t", 0): 0}
    assert (await read(client)).last_stable_offset == 1
    writer.commit(8)
    part = await read(client)
    assert (part.last_stable_offset, aborted(part)) == (writer.partition.high_watermark, [])


async def test_repeated_partitions_and_producers_have_one_result(client: Client, writer: Writer) -> None:
    writer.send(7, b"a")
    errors = await write(client, marker(7, ("t", 0), ("t", 0)), marker(7, ("t", 1)))
    assert errors == {(7, "t", 0): 0, (7, "t", 1): 0}


@pytest.mark.parametrize("count", [20, 1_200])
async def test_markers_of_many_partitions(client: Client, count: int) -> None:
    """Also more than one loop iteration writes: each partition has its marker once."""
    await client.create("many", partitions=count)
    errors = await write(client, marker(7, *(("many", index) for index in range(count))))
    assert set(errors.values()) == {0} and len(errors) == count
    ends = [partition_of(client, "many", index).high_watermark for index in range(count)]
    assert ends == [1] * count


async def test_writer_of_many_partitions_writes_in_slices(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the coordinator of this broker uses it."""
    monkeypatch.setattr(marker_writer, "PARTITIONS_AT_ONCE", 5)
    await client.create("many", partitions=40)
    request = marker(7, *(("many", index) for index in range(40)))
    written: asyncio.Future[dict[Any, int]] = asyncio.get_running_loop().create_future()
    writer = client.broker.marker_writer
    writer.write(marker_of(request), partitions_of(request), written.set_result)
    assert client.broker.marker_writer is writer
    assert set((await written).values()) == {0}
    assert partition_of(client, "many", 39).high_watermark == 1


def partition_of(client: Client, topic: str, index: int) -> Partition:
    found = client.broker.replicas.partition(topic, b"", index, by_id=False)
    assert isinstance(found, Partition)
    return found
