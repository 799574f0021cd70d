"""Tests ListSegments: what it returns is the log, in pieces where a response is full."""

from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.extensions.list_segments import ListSegmentsRequest
from kafkalite.protocol.messages.delete_records import DeleteRecordsRequest
from kafkalite.server.handlers import list_segments
from tests.kit.server import Client, batch

SEGMENTS = 4
BATCH_BYTES = 600_000
TIMES = (1_000, 5_000, 3_000, 2_000)  # of the record in each segment, in ms

Topic = ListSegmentsRequest.SegmentsTopic


@pytest.fixture
async def full(client: Client) -> Client:
    """A client of a broker with four segments of one record in partition 0 of `t`, and none in partition 1."""
    await client.create(
        "t", "u", partitions=2, segment_bytes=str(1 << 20), message_timestamp_before_max_ms=str(2**63 - 1)
    )
    for time_ms in TIMES:
        await client.produce("t", batch(bytes(BATCH_BYTES), timestamp=time_ms))
    return client


def request(*partitions: tuple[str, int, int], limit: int = 10_000) -> ListSegmentsRequest:
    """Of (topic, partition, start offset)."""
    topics = [
        Topic(name=name, partitions=[Topic.SegmentsPartition(partition_index=index, start_offset=start)])
        for name, index, start in partitions
    ]
    return ListSegmentsRequest(max_segments=limit, topics=topics)


async def listed(client: Client, *partitions: tuple[str, int, int], limit: int = 10_000) -> list[Any]:
    answer = await client.call(request(*partitions, limit=limit))
    assert [topic.name for topic in answer.topics] == [name for name, _, _ in partitions]
    return [each for topic in answer.topics for each in topic.partitions]


def rows(partition: Any) -> Iterator[tuple[int, int, int]]:
    return ((each.base_offset, each.size, each.max_timestamp) for each in partition.segments)


async def test_segments_are_those_of_the_log(full: Client) -> None:
    partition = full.broker.replicas.partition("t", b"", 0, by_id=False)
    assert isinstance(partition, Partition) and partition.log is not None
    (found,) = await listed(full, ("t", 0, 0))
    assert (found.error_code, found.log_start_offset, found.log_end_offset, found.next_offset) == (0, 0, SEGMENTS, -1)
    assert list(rows(found)) == [(at, BATCH_BYTES + 73, time_ms) for at, time_ms in enumerate(TIMES)]
    assert sum(size for _, size, _ in rows(found)) == partition.log.size


async def test_partition_without_records_has_no_segment(full: Client) -> None:
    (found,) = await listed(full, ("u", 1, 0))
    assert (found.error_code, found.log_start_offset, found.log_end_offset, found.segments) == (0, 0, 0, [])


async def test_list_begins_with_the_segment_of_the_start_offset(full: Client) -> None:
    for start, first in ((-5, 0), (0, 0), (2, 2), (3, 3), (99, 3)):
        (found,) = await listed(full, ("t", 0, start))
        assert [base for base, _, _ in rows(found)] == list(range(first, SEGMENTS))


async def test_log_start_inside_a_segment_is_returned(full: Client) -> None:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    partition = topic.DeleteRecordsPartition(partition_index=0, offset=2)
    await full.call(DeleteRecordsRequest(topics=[topic(name="t", partitions=[partition])], timeout_ms=1000))
    (found,) = await listed(full, ("t", 0, 0))
    assert found.log_start_offset == 2


@pytest.mark.parametrize("limit", [0, 1, 3, 4, -1])
async def test_limit_of_the_request_holds_for_all_partitions(full: Client, limit: int) -> None:
    found = await listed(full, ("t", 0, 0), ("t", 0, 1), limit=limit)
    first = max(min(limit, 4), 0)
    assert [len(each.segments) for each in found] == [first, max(limit - first, 0)]
    assert [each.next_offset for each in found] == [-1 if first == 4 else first, 1 + max(limit - first, 0)]


async def test_limit_of_the_broker_holds_and_the_client_continues(
    full: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_segments, "SEGMENTS_MAX", 3)
    (first,) = await listed(full, ("t", 0, 0))
    (rest,) = await listed(full, ("t", 0, first.next_offset))
    assert [base for base, _, _ in (*rows(first), *rows(rest))] == [0, 1, 2, 3]
    assert rest.next_offset == -1


async def test_missing_and_offline_partitions_have_an_error(full: Client) -> None:
    offline = full.broker.replicas.partition("t", b"", 1, by_id=False)
    assert isinstance(offline, Partition)
    offline.error = KafkaErrorCode.KAFKA_STORAGE_ERROR
    found = await listed(full, ("missing", 0, 0), ("t", 9, 0), ("t", 1, 0))
    unknown = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.error_code for each in found] == [unknown, unknown, KafkaErrorCode.KAFKA_STORAGE_ERROR]
    assert all((each.log_end_offset, each.segments) == (-1, []) for each in found)
