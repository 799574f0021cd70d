"""getOffsetsBefore of Kafka's original client: by ListSegments on kafkalite, by ListOffsets v0 on Kafka up to 3.9.

Source: UnifiedLog.legacyFetchOffsetsBefore of Apache Kafka 3.9.
"""

from collections.abc import Callable, Iterator

from kafkalite.errors import KafkaError, UnsupportedVersionError
from kafkalite.model import TopicPartition
from kafkalite.protocol.extensions.list_segments import ListSegmentsRequest, ListSegmentsResponse
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.operation import Operation, check_result, is_address
from kafkalite_sdk.client.cluster_client import ClusterClient

LATEST, EARLIEST = -1, -2
SegmentsTopic = ListSegmentsRequest.SegmentsTopic
OffsetsTopic = ListOffsetsRequest.ListOffsetsTopic
Segments = ListSegmentsResponse.SegmentsTopic.SegmentsPartition


async def offsets_before(
    client: ClusterClient, partition: TopicPartition, time_ms: int, max_offsets: int, timeout_s: float | None
) -> list[int]:
    """Return the base offsets of segments before a time, descending.

    Arguments:
        client: of the cluster.
        partition: to look in.
        time_ms: in ms since 1970, LATEST or EARLIEST.
        max_offsets: the largest number of offsets.
        timeout_s: deadline in seconds; None = `default_api_timeout_s`.
    """
    if max_offsets < 1:
        raise ValueError(f"max_offsets is {max_offsets}, expected at least 1")
    driver = Driver(client)
    left_s = driver.countdown(timeout_s)
    try:
        return before(await _segments(driver, partition, left_s), time_ms, max_offsets)
    except UnsupportedVersionError:  # not kafkalite
        return await _kafkas_offsets(driver, partition, time_ms, max_offsets, left_s())


async def _kafkas_offsets(
    driver: Driver, partition: TopicPartition, time_ms: int, max_offsets: int, timeout_s: float
) -> list[int]:
    try:
        return await _legacy(driver, partition, time_ms, max_offsets, timeout_s)
    except UnsupportedVersionError as error:
        text = (
            "the broker serves neither ListOffsets v0 (Apache Kafka up to 3.9) nor ListSegments (kafkalite); "
            "find the first offset at or after a time with Admin.partitions.offsets"
        )
        raise UnsupportedVersionError(text) from error


def before(pieces: list[Segments], time_ms: int, max_offsets: int) -> list[int]:
    """Return the offsets before a time: as Kafka's broker, with the largest timestamp as the time of a segment.

    Arguments:
        pieces: the responses about the partition, in order.
        time_ms: in ms since 1970, LATEST or EARLIEST.
        max_offsets: the largest number of offsets.
    """
    start, end = pieces[0].log_start_offset, pieces[-1].log_end_offset
    segments = [segment for piece in pieces for segment in piece.segments]
    offsets = [max(segment.base_offset, start) for segment in segments]
    if time_ms == LATEST:
        count = len(offsets)
    elif time_ms == EARLIEST:
        count = 1
    else:
        count = max((at for at, each in enumerate(segments, 1) if each.max_timestamp <= time_ms), default=0)
    found = offsets[:count]
    if time_ms == LATEST and (not segments or segments[-1].size):
        found.append(end)
    return sorted(dict.fromkeys(found), reverse=True)[:max_offsets]


async def _segments(driver: Driver, partition: TopicPartition, left_s: Callable[[], float]) -> list[Segments]:
    pieces = [await _segments_from(driver, partition, 0, left_s())]
    while pieces[-1].next_offset >= 0:
        pieces.append(await _segments_from(driver, partition, pieces[-1].next_offset, left_s()))
    return pieces


async def _segments_from(driver: Driver, partition: TopicPartition, start_offset: int, timeout_s: float) -> Segments:
    asked = SegmentsTopic.SegmentsPartition(partition_index=partition.partition, start_offset=start_offset)
    request = ListSegmentsRequest(topics=[SegmentsTopic(name=partition.topic, partitions=[asked])])
    operation: Operation[TopicPartition, Segments] = Operation(
        ListSegmentsRequest, lambda _: request, _listed, is_address
    )
    return (await driver.run(operation, [partition], timeout_s))[partition]


def _listed(
    response: ListSegmentsResponse, keys: list[TopicPartition]
) -> Iterator[tuple[TopicPartition, Segments | KafkaError]]:
    for topic in response.topics:
        for each in topic.partitions:
            yield keys[0], check_result(each.error_code, None, each)


async def _legacy(
    driver: Driver, partition: TopicPartition, time_ms: int, max_offsets: int, timeout_s: float
) -> list[int]:
    asked = OffsetsTopic.ListOffsetsPartition(
        partition_index=partition.partition, timestamp=time_ms, max_num_offsets=max_offsets
    )
    request = ListOffsetsRequest(replica_id=-1, topics=[OffsetsTopic(name=partition.topic, partitions=[asked])])
    operation: Operation[TopicPartition, list[int]] = Operation(
        ListOffsetsRequest, lambda _: request, _found, is_address, version_max=0
    )
    return (await driver.run(operation, [partition], timeout_s))[partition]


def _found(
    response: ListOffsetsResponse, keys: list[TopicPartition]
) -> Iterator[tuple[TopicPartition, list[int] | KafkaError]]:
    for topic in response.topics:
        for each in topic.partitions:
            yield keys[0], check_result(each.error_code, None, list(each.old_style_offsets))
