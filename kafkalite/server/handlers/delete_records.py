"""DeleteRecords, key 21, v0-2. Moves a partition's log start forward; -1 means up to the high watermark (KIP-107)."""

from kafkalite.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from kafkalite.server.call import Call

UNKNOWN_LOW_WATERMARK = -1

TopicResult = DeleteRecordsResponse.DeleteRecordsTopicResult
PartitionResult = TopicResult.DeleteRecordsPartitionResult


def delete_records(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Move every named partition's log start, and answer where it is now."""
    return DeleteRecordsResponse(
        topics=[
            TopicResult(
                name=topic.name,
                partitions=[
                    delete_before(call, topic.name, asked.partition_index, asked.offset) for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def delete_before(call: Call, topic: str, index: int, offset: int) -> PartitionResult:
    partition = call.broker.replicas.partition(topic, b"", index, by_id=False)
    if isinstance(partition, int):
        return PartitionResult(partition_index=index, low_watermark=UNKNOWN_LOW_WATERMARK, error_code=partition)
    error = partition.delete_records_before(offset)
    low_watermark = UNKNOWN_LOW_WATERMARK if error else partition.log_start_offset
    return PartitionResult(partition_index=index, low_watermark=low_watermark, error_code=error)
