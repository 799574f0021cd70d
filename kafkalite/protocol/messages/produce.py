"""Produce, key 0, v3-13. Appends record batches to partitions.

Version notes: v3 transactional id; v5 log start offset; v7 zstd; v8 record errors (KIP-467); v10 new leaders in tagged
fields (KIP-951); v11-12 transactions V2 (KIP-890); v13 topics by id (KIP-516). v0-2 are advertised but cannot be
decoded (KAFKA-18659).
Source: ProduceRequest.json, ProduceResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import (
    ZERO_UUID,
    Request,
    Response,
    Struct,
    field,
    int16,
    int32,
    int64,
    record_bytes,
    string,
    uuid,
)


class ProduceRequest(Request, key=0, versions=(3, 13), flexible=9):
    """Whole batches to append, by topic and partition."""

    class TopicProduceData(Struct):
        class PartitionProduceData(Struct):
            index: int32
            records: record_bytes | None

        name: string = field(until=12, default="")
        topic_id: uuid = field(since=13, default=ZERO_UUID)
        partition_data: list[PartitionProduceData]

    transactional_id: string | None = None
    acks: int16
    timeout_ms: int32
    topic_data: list[TopicProduceData]


class ProduceResponse(Response, key=0, versions=(3, 13), flexible=9):
    """Base offset or error of each partition."""

    class TopicProduceResponse(Struct):
        class PartitionProduceResponse(Struct):
            class BatchIndexAndErrorMessage(Struct):
                batch_index: int32
                batch_index_error_message: string | None = None

            class LeaderIdAndEpoch(Struct):
                leader_id: int32 = -1
                leader_epoch: int32 = -1

            index: int32
            error_code: int16 = 0
            base_offset: int64
            log_append_time_ms: int64 = -1
            log_start_offset: int64 = field(since=5, default=-1)
            record_errors: list[BatchIndexAndErrorMessage] = field(since=8, factory=list)
            error_message: string | None = field(since=8, default=None)
            current_leader: LeaderIdAndEpoch | None = field(since=10, tag=0, default=None)

        name: string = field(until=12, default="")
        topic_id: uuid = field(since=13, default=ZERO_UUID)
        partition_responses: list[PartitionProduceResponse]

    class NodeEndpoint(Struct):
        node_id: int32
        host: string
        port: int32
        rack: string | None = None

    responses: list[TopicProduceResponse]
    throttle_time_ms: int32 = 0
    node_endpoints: list[NodeEndpoint] = field(since=10, tag=0, factory=list)
