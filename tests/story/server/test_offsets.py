"""Tests ListOffsets and OffsetForLeaderEpoch."""

import threading
from typing import Any

import pytest

from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkalite.records import Builder
from kafkalite.server.requests import offset_lookup as handler
from kafkalite.storage.log.timestamp_lookup import first_record
from tests.kit.server import GZIP, LZ4, NONE, Client, batch

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)


@pytest.fixture
async def filled(client: Client) -> Client:
    """Offsets 0 to 3 at 1000, 3000, 2000 and 3000 ms."""
    await client.create("t", partitions=2)
    for at, timestamp in enumerate((1000, 3000, 2000, 3000)):
        await client.produce("t", batch(b"%d" % at, timestamp=timestamp, codec=LZ4 if at % 2 else NONE))
    return client


@pytest.mark.parametrize("version", range(1, 12))
async def test_earliest_and_latest_offset_in_every_version(filled: Client, version: int) -> None:
    for timestamp, offset in ((LATEST, 4), (EARLIEST, 0)):
        found = await filled.offset("t", timestamp, version=version)
        assert (found.error_code, found.offset, found.timestamp) == (0, offset, -1)
        assert found.leader_epoch == (0 if version >= 4 else -1)


async def test_earliest_and_latest_offset_of_empty_partition(filled: Client) -> None:
    for timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL):
        found = await filled.offset("t", timestamp, partition=1)
        assert (found.error_code, found.offset) == (0, 0)
    for timestamp in (MAX_TIMESTAMP, 0, LATEST_TIERED):
        found = await filled.offset("t", timestamp, partition=1)
        assert (found.error_code, found.offset, found.timestamp) == (0, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "offset", "at"),
    [(0, 0, 1000), (1000, 0, 1000), (1001, 1, 3000), (2000, 1, 3000), (3000, 1, 3000), (3001, -1, -1)],
)
async def test_offset_of_the_first_record_at_or_after_a_timestamp(
    filled: Client, timestamp: int, offset: int, at: int
) -> None:
    found = await filled.offset("t", timestamp)
    assert (found.error_code, found.offset, found.timestamp) == (0, offset, at)


async def test_offset_of_the_largest_timestamp(filled: Client) -> None:
    found = await filled.offset("t", MAX_TIMESTAMP, version=7)
    assert (found.error_code, found.offset, found.timestamp) == (0, 1, 3000)


@pytest.mark.parametrize(
    ("timestamp", "since"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING_UPLOAD, 11)]
)
async def test_special_timestamps_need_their_versions(filled: Client, timestamp: int, since: int) -> None:
    assert (await filled.offset("t", timestamp, version=since)).error_code == 0
    early = await filled.offset("t", timestamp, version=since - 1)
    assert early.error_code == KafkaErrorCode.UNSUPPORTED_VERSION


async def test_list_offsets_of_unknown_partitions_fails(filled: Client) -> None:
    assert (await filled.offset("t", LATEST, partition=2)).error_code == 3
    assert (await filled.offset("nowhere", LATEST)).error_code == 3
    assert (await filled.offset("t", -7)).error_code == KafkaErrorCode.UNSUPPORTED_VERSION
    fenced = await filled.offset("t", LATEST, current_leader_epoch=7)
    assert fenced.error_code == KafkaErrorCode.UNKNOWN_LEADER_EPOCH
    committed = await filled.offset("t", LATEST, isolation_level=1)
    assert committed.offset == 4


def at_times(*timestamps: int, codec: int = GZIP, size: int = 1) -> bytes:
    """A batch with one record per timestamp."""
    builder = Builder(1 << 24)
    for timestamp in timestamps:
        builder.append(timestamp, None, b"v" * size)
    return bytes(builder.build(codec))


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each batch that ListOffsets searched: whether the loop's thread did it."""
    found: list[bool] = []
    loop_thread = threading.current_thread()

    def spied(*args: Any) -> Any:
        found.append(threading.current_thread() is loop_thread)
        return first_record(*args)

    monkeypatch.setattr(handler, "first_record", spied)
    return found


@pytest.mark.parametrize(("codec", "size", "on_loop"), [(NONE, 1, True), (NONE, 100_000, False), (GZIP, 1, False)])
async def test_large_batch_is_searched_by_a_job(
    client: Client, searched: list[bool], codec: int, size: int, on_loop: bool
) -> None:
    await client.create("t")
    await client.produce("t", at_times(1000, 2000, codec=codec, size=size))
    found = await client.offset("t", 1500)
    assert (found.error_code, found.offset, found.timestamp) == (0, 1, 2000)
    assert searched == [on_loop]


async def test_offset_lookup_continues_in_the_next_batch_by_another_job(client: Client, searched: list[bool]) -> None:
    await client.create("t")
    await client.produce("t", at_times(5000, 1000))
    await client.produce("t", at_times(4000))
    partition = client.broker.replicas.partition("t", b"", 0, by_id=False)
    assert isinstance(partition, Partition) and partition.log is not None
    assert partition.log.delete_records_before(1) == 0
    found = await client.offset("t", 3000)
    assert (found.error_code, found.offset, found.timestamp) == (0, 2, 4000)
    assert searched == [False, False]
    assert (await client.offset("t", 4001)).offset == -1


async def test_list_offsets_of_many_partitions_rejects_duplicates(client: Client, searched: list[bool]) -> None:
    await client.create("t", partitions=3)
    for index in range(3):
        await client.produce("t", at_times(*range(1000 + index)), partition=index)
    topic = ListOffsetsRequest.ListOffsetsTopic
    wanted = [(0, 10), (1, 20), (2, LATEST), (1, 21), (0, 10)]
    asked = [topic.ListOffsetsPartition(partition_index=index, timestamp=at) for index, at in wanted]
    once = ListOffsetsRequest(replica_id=-1, topics=[topic(name="t", partitions=asked[:3])])
    twice = ListOffsetsRequest(replica_id=-1, topics=[topic(name="t", partitions=asked)])
    answers = (await client.call(once, 8)).topics[0].partitions
    assert [(each.error_code, each.offset) for each in answers] == [(0, 10), (0, 20), (0, 1002)]
    assert searched == [False, False]
    answers = (await client.call(twice, 8)).topics[0].partitions
    assert [each.error_code for each in answers] == [42, 42, 0, 42, 42]
    assert len(searched) == 2


@pytest.mark.parametrize("codec", [NONE, GZIP])
async def test_damaged_batch_fails_only_its_partition(client: Client, codec: int) -> None:
    await client.create("t")
    await client.produce("t", at_times(1000, 2000, codec=codec))
    partition = client.broker.replicas.partition("t", b"", 0, by_id=False)
    assert isinstance(partition, Partition) and partition.log is not None
    partition.log.active.opened.pwrite(b"\xff" * 10, 61)
    assert (await client.offset("t", 1500)).error_code == KafkaErrorCode.CORRUPT_MESSAGE
    assert (await client.offset("t", LATEST)).offset == 2


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_offset_for_leader_epoch(filled: Client, version: int) -> None:
    partition = filled.broker.replicas.partition("t", b"", 0, by_id=False)
    assert isinstance(partition, Partition)
    partition.leader_epoch = 5
    await filled.produce("t", batch(b"4"))

    async def end(epoch: int, index: int = 0, current: int = -1) -> tuple[int, int, int]:
        kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        asked = kind.OffsetForLeaderPartition(partition=index, leader_epoch=epoch, current_leader_epoch=current)
        request = OffsetForLeaderEpochRequest(topics=[kind(topic="t", partitions=[asked])])
        found = (await filled.call(request, version)).topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    assert await end(0) == (0, 0, 4)
    assert await end(3) == (0, 0, 4)
    assert await end(5) == (0, 5, 5)
    assert await end(6) == (0, -1, -1)
    assert await end(0, index=9) == (3, -1, -1)
    assert (await end(0, current=4))[0] == KafkaErrorCode.FENCED_LEADER_EPOCH
