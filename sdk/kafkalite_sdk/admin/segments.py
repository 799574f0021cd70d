"""The segments of partitions with their sizes, which kafkalite lists: for jobs that divide a log by bytes.

Apache Kafka does not serve the request: UnsupportedVersionError.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from kafkalite.protocol.extensions.list_segments import ListSegmentsRequest, ListSegmentsResponse
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.operation import Operation, is_address, results_by_partition, topics_of
from kafkalite_sdk.admin.outcomes import Outcomes

SegmentsTopic = ListSegmentsRequest.SegmentsTopic
Piece = ListSegmentsResponse.SegmentsTopic.SegmentsPartition


class Segment(NamedTuple):
    """A segment of a log.

    Attributes:
        base_offset: the offset at which it begins.
        size: in bytes.
        max_timestamp_ms: the largest timestamp of its records, -1 = it has none.
    """

    base_offset: int
    size: int
    max_timestamp_ms: int


class PartitionSegments(NamedTuple):
    """The segments of a partition.

    Attributes:
        log_start_offset: the first offset; the first segment may begin below it.
        log_end_offset: the high watermark.
        segments: by ascending offset.
    """

    log_start_offset: int
    log_end_offset: int
    segments: tuple[Segment, ...]


async def list_segments(
    driver: Driver, starts: Mapping[TopicPartition, int], timeout_s: float | None
) -> Outcomes[TopicPartition, PartitionSegments]:
    """List the segments of partitions.

    Arguments:
        driver: sends the requests; a response that is full is continued.
        starts: for each partition the offset from which on segments are listed.
        timeout_s: deadline in seconds; None = `default_api_timeout_ms`.
    """
    left_s = driver.countdown(timeout_s)
    ended: dict[TopicPartition, PartitionSegments | KafkaError] = {}
    pending = dict(starts)
    found: dict[TopicPartition, list[Piece]] = {each: [] for each in starts}
    while pending:
        operation: Operation[TopicPartition, Piece] = Operation(
            ListSegmentsRequest, partial(_request, pending), _pieces, is_address
        )
        outcomes = await driver.run(operation, pending, left_s())
        following = {}
        for partition in pending:
            outcome = outcomes.errors.get(partition) or outcomes[partition]
            if isinstance(outcome, KafkaError):
                ended[partition] = outcome
                continue
            found[partition].append(outcome)
            if outcome.next_offset >= 0:
                following[partition] = outcome.next_offset
            else:
                ended[partition] = _joined(found[partition])
        pending = following
    return Outcomes({each: ended[each] for each in starts})


def _request(starts: Mapping[TopicPartition, int], keys: list[TopicPartition]) -> ListSegmentsRequest:
    partition = SegmentsTopic.SegmentsPartition
    topics = topics_of(
        keys, SegmentsTopic, lambda each: partition(partition_index=each.partition, start_offset=starts[each])
    )
    return ListSegmentsRequest(topics=topics)


def _pieces(response: ListSegmentsResponse, _: object) -> Iterator[tuple[TopicPartition, Piece | KafkaError]]:
    return results_by_partition(response.topics, lambda each: each)


def _joined(pieces: list[Piece]) -> PartitionSegments:
    segments = (Segment(each.base_offset, each.size, each.max_timestamp) for piece in pieces for each in piece.segments)
    return PartitionSegments(pieces[0].log_start_offset, pieces[-1].log_end_offset, tuple(segments))
