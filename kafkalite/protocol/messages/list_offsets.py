"""ListOffsets, key 2, v0-11. Finds offsets by timestamp, or by special values such as earliest and latest.

Version notes: v0 several offsets per partition, for clients of Apache Kafka up to 3.9, the broker serves v1 and later
(KIP-896); v1 one offset with its timestamp (KIP-79); v2 isolation level; v4 leader epochs (KIP-320); v7 max timestamp
(KIP-734); v8 earliest local (KIP-405); v9 latest tiered; v10 timeout (KIP-1075); v11 earliest pending upload.
Source: ListOffsetsRequest.json, ListOffsetsResponse.json of Apache Kafka 4.3; v0 of Apache Kafka 3.9.
"""

from kafkalite.protocol.schema import Request, Response, Struct, field, int8, int16, int32, int64, string


class ListOffsetsRequest(Request, key=2, versions=(0, 11), flexible=6):
    """Timestamps to look up."""

    class ListOffsetsTopic(Struct):
        class ListOffsetsPartition(Struct):
            partition_index: int32
            current_leader_epoch: int32 = field(since=4, default=-1)
            timestamp: int64
            max_num_offsets: int32 = field(until=0, default=1)

        name: string
        partitions: list[ListOffsetsPartition]

    replica_id: int32
    isolation_level: int8 = field(since=2, default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: int32 = field(since=10, default=0)


class ListOffsetsResponse(Response, key=2, versions=(0, 11), flexible=6):
    """Timestamp, offset and leader epoch for each partition."""

    class ListOffsetsTopicResponse(Struct):
        class ListOffsetsPartitionResponse(Struct):
            partition_index: int32
            error_code: int16 = 0
            old_style_offsets: list[int64] = field(until=0, factory=list)
            timestamp: int64 = field(since=1, default=-1)
            offset: int64 = field(since=1, default=-1)
            leader_epoch: int32 = field(since=4, default=-1)

        name: string
        partitions: list[ListOffsetsPartitionResponse]

    throttle_time_ms: int32 = field(since=2, default=0)
    topics: list[ListOffsetsTopicResponse]
