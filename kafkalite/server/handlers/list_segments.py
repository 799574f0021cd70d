"""ListSegments, key 10006, v0: returns the segments of partitions, from memory: no file is opened.

A response has at most SEGMENTS_MAX segments; a client continues at `next_offset`.
"""

from bisect import bisect_right
from collections.abc import Generator
from operator import attrgetter

from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.extensions.list_segments import ListSegmentsRequest, ListSegmentsResponse
from kafkalite.server.requests.call import OBJECTS_MAX, PartitionCall
from kafkalite.storage.log.segment import Segment

SEGMENTS_MAX = 10_000
TopicResponse = ListSegmentsResponse.SegmentsTopic
PartitionRequest = ListSegmentsRequest.SegmentsTopic.SegmentsPartition
PartitionResponse = TopicResponse.SegmentsPartition
BASE_OFFSET = attrgetter("base_offset")


def list_segments(call: PartitionCall, request: ListSegmentsRequest) -> None:
    """List the segments of each partition."""
    objects = sum(1 + len(topic.partitions) for topic in request.topics)
    if objects <= OBJECTS_MAX:
        objects += sum(
            len(segments_from(partition_of(call, topic.name, asked), asked.start_offset))
            for topic in request.topics
            for asked in topic.partitions
        )
    call.answer_from(build_response(call, request), objects)


def build_response(call: PartitionCall, request: ListSegmentsRequest) -> Generator[None, None, ListSegmentsResponse]:
    left = min(max(request.max_segments, 0), SEGMENTS_MAX)
    topics = call.elements()
    for topic in request.topics:
        partitions = call.elements()
        for asked in topic.partitions:
            found = partition_of(call, topic.name, asked)
            segments = segments_from(found, asked.start_offset)
            answer = describe_partition(asked, found)
            if len(segments) > left:
                answer.next_offset = segments[left].base_offset
            elements = call.elements()
            for segment in segments[:left]:
                elements.add(
                    PartitionResponse.Segment(
                        base_offset=segment.base_offset, size=segment.size, max_timestamp=segment.max_timestamp
                    )
                )
                yield
            answer.segments = elements.finish()
            left -= min(left, len(segments))
            partitions.add(answer, 1 + len(answer.segments))
            yield
        topics.add(TopicResponse(name=topic.name, partitions=partitions.finish()), 1 + len(topic.partitions))
        yield
    return ListSegmentsResponse(topics=topics.finish())


def partition_of(call: PartitionCall, topic: str, asked: PartitionRequest) -> Partition | KafkaErrorCode:
    """Return the partition, or its error."""
    found = call.context.replicas.partition(topic, b"", asked.partition_index, by_id=False)
    if isinstance(found, Partition) and found.error:
        return KafkaErrorCode(found.error)
    return found


def segments_from(partition: Partition | KafkaErrorCode, start_offset: int) -> tuple[Segment, ...]:
    """Return the segments from the one that contains an offset on; none where the partition has no log."""
    if isinstance(partition, KafkaErrorCode) or partition.log is None:
        return ()
    segments: tuple[Segment, ...] = partition.log.segments
    return segments[max(bisect_right(segments, start_offset, key=BASE_OFFSET) - 1, 0) :]


def describe_partition(asked: PartitionRequest, partition: Partition | KafkaErrorCode) -> PartitionResponse:
    """Return the response of a partition without its segments."""
    answer = PartitionResponse(partition_index=asked.partition_index, segments=[])
    if isinstance(partition, KafkaErrorCode):
        answer.error_code = partition
    else:
        answer.log_start_offset, answer.log_end_offset = partition.log_start_offset, partition.high_watermark
    return answer
