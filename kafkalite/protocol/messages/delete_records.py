"""DeleteRecords, key 21, v0-2. Increases the log start offset of partitions.

Version notes: v2 flexible.
Source: DeleteRecordsRequest.json, DeleteRecordsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, int16, int32, int64, string


class DeleteRecordsRequest(Request, key=21, versions=(0, 2), flexible=2):
    """Offsets before which all records are deleted (-1 = high watermark)."""

    class DeleteRecordsTopic(Struct):
        class DeleteRecordsPartition(Struct):
            partition_index: int32
            offset: int64

        name: string
        partitions: list[DeleteRecordsPartition]

    topics: list[DeleteRecordsTopic]
    timeout_ms: int32


class DeleteRecordsResponse(Response, key=21, versions=(0, 2), flexible=2):
    """The new log start offset of each partition."""

    class DeleteRecordsTopicResult(Struct):
        class DeleteRecordsPartitionResult(Struct):
            partition_index: int32
            low_watermark: int64
            error_code: int16 = 0

        name: string
        partitions: list[DeleteRecordsPartitionResult]

    throttle_time_ms: int32 = 0
    topics: list[DeleteRecordsTopicResult]
