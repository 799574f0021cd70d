"""DeleteRecords, key 21, v0-2: moves log start offsets forward; -1 means to the high watermark (KIP-107)."""

from collections.abc import Generator

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from kafkalite.server.requests.call import PartitionCall

UNKNOWN_LOW_WATERMARK = -1

TopicResult = DeleteRecordsResponse.DeleteRecordsTopicResult
PartitionResult = TopicResult.DeleteRecordsPartitionResult


def delete_records(call: PartitionCall, request: DeleteRecordsRequest) -> None:
    """Move the log start offset of each partition, and return the new one."""
    objects = sum(1 + len(topic.partitions) for topic in request.topics)
    call.in_slices(delete_each(call, request), objects, call.answer, changes=True)


def delete_each(call: PartitionCall, request: DeleteRecordsRequest) -> Generator[None, None, DeleteRecordsResponse]:
    topics = call.elements()
    for topic in request.topics:
        partitions = call.elements()
        for asked in topic.partitions:
            partitions.add(delete_before(call, topic.name, asked.partition_index, asked.offset))
            yield
        topics.add(TopicResult(name=topic.name, partitions=partitions.finish()), 1 + len(topic.partitions))
        yield
    return DeleteRecordsResponse(topics=topics.finish())


def delete_before(call: PartitionCall, topic: str, index: int, offset: int) -> PartitionResult:
    partition = call.context.replicas.partition(topic, b"", index, by_id=False)
    if isinstance(partition, KafkaErrorCode):
        return PartitionResult(partition_index=index, low_watermark=UNKNOWN_LOW_WATERMARK, error_code=partition)
    error = partition.delete_records_before(offset)
    low_watermark = UNKNOWN_LOW_WATERMARK if error else partition.log_start_offset
    return PartitionResult(partition_index=index, low_watermark=low_watermark, error_code=error)
