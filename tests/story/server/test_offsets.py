"""ListOffsets and OffsetForLeaderEpoch: where things are in a partition."""

import pytest

from kafkalite.cluster.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.kit.server import LZ4, NONE, Client, batch

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)


@pytest.fixture
async def filled(client: Client) -> Client:
    """Offsets 0 to 3 at 1000, 3000, 2000 and 3000 ms."""
    await client.create("t", partitions=2)
    for at, timestamp in enumerate((1000, 3000, 2000, 3000)):
        await client.produce("t", batch(b"%d" % at, timestamp=timestamp, codec=LZ4 if at % 2 else NONE))
    return client


@pytest.mark.parametrize("version", range(1, 12))
async def test_both_ends_in_every_version(filled: Client, version: int) -> None:
    for timestamp, offset in ((LATEST, 4), (EARLIEST, 0)):
        found = await filled.offset("t", timestamp, version=version)
        assert (found.error_code, found.offset, found.timestamp) == (0, offset, -1)
        assert found.leader_epoch == (0 if version >= 4 else -1)


async def test_the_ends_of_an_empty_partition(filled: Client) -> None:
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
async def test_the_first_record_at_or_after_a_time(filled: Client, timestamp: int, offset: int, at: int) -> None:
    found = await filled.offset("t", timestamp)
    assert (found.error_code, found.offset, found.timestamp) == (0, offset, at)


async def test_the_record_with_the_largest_timestamp(filled: Client) -> None:
    found = await filled.offset("t", MAX_TIMESTAMP, version=7)
    assert (found.error_code, found.offset, found.timestamp) == (0, 1, 3000)


@pytest.mark.parametrize(
    ("timestamp", "since"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING_UPLOAD, 11)]
)
async def test_special_timestamps_have_their_versions(filled: Client, timestamp: int, since: int) -> None:
    assert (await filled.offset("t", timestamp, version=since)).error_code == 0
    early = await filled.offset("t", timestamp, version=since - 1)
    assert early.error_code == KafkaErrorCode.UNSUPPORTED_VERSION


async def test_what_is_not_there(filled: Client) -> None:
    assert (await filled.offset("t", LATEST, partition=2)).error_code == 3
    assert (await filled.offset("nowhere", LATEST)).error_code == 3
    assert (await filled.offset("t", -7)).error_code == KafkaErrorCode.UNSUPPORTED_VERSION
    fenced = await filled.offset("t", LATEST, current_leader_epoch=7)
    assert fenced.error_code == KafkaErrorCode.UNKNOWN_LEADER_EPOCH
    committed = await filled.offset("t", LATEST, isolation_level=1)
    assert committed.offset == 4


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_where_an_epoch_ends(filled: Client, version: int) -> None:
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
