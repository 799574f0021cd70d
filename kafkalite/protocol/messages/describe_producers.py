"""DescribeProducers, key 61, v0. Active producers of partitions (KIP-664).

Version notes: v0 only.
Source: DescribeProducersRequest.json, DescribeProducersResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, int16, int32, int64, string


class DescribeProducersRequest(Request, key=61, versions=(0, 0), flexible=0):
    """The requested partitions."""

    class TopicRequest(Struct):
        name: string
        partition_indexes: list[int32]

    topics: list[TopicRequest]


class DescribeProducersResponse(Response, key=61, versions=(0, 0), flexible=0):
    """The active producers of each partition."""

    class TopicResponse(Struct):
        class PartitionResponse(Struct):
            class ProducerState(Struct):
                producer_id: int64
                producer_epoch: int32
                last_sequence: int32 = -1
                last_timestamp: int64 = -1
                coordinator_epoch: int32
                current_txn_start_offset: int64 = -1

            partition_index: int32
            error_code: int16 = 0
            error_message: string | None = None
            active_producers: list[ProducerState]

        name: string
        partitions: list[PartitionResponse]

    throttle_time_ms: int32 = 0
    topics: list[TopicResponse]
