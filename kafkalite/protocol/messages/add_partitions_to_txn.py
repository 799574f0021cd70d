"""AddPartitionsToTxn, key 24, v0-5. Adds partitions to a transaction, or verifies that they are in it (KIP-890).

Version notes: v2 PRODUCER_FENCED; v4 several transactions, sent by brokers only; v5 TRANSACTION_ABORTABLE.
Source: AddPartitionsToTxnRequest.json, AddPartitionsToTxnResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, boolean, field, int16, int32, int64, string


class AddPartitionsToTxnRequest(Request, key=24, versions=(0, 5), flexible=3):
    """One transaction of a client up to v3, several of a broker since v4."""

    class AddPartitionsToTxnTopic(Struct):
        name: string
        partitions: list[int32]

    class AddPartitionsToTxnTransaction(Struct):
        class AddPartitionsToTxnTopic(Struct):
            name: string
            partitions: list[int32]

        transactional_id: string
        producer_id: int64
        producer_epoch: int16
        verify_only: boolean = False
        topics: list[AddPartitionsToTxnTopic]

    transactions: list[AddPartitionsToTxnTransaction] = field(since=4)
    v3_and_below_transactional_id: string = field(until=3, default="")
    v3_and_below_producer_id: int64 = field(until=3, default=0)
    v3_and_below_producer_epoch: int16 = field(until=3, default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(until=3)


class AddPartitionsToTxnResponse(Response, key=24, versions=(0, 5), flexible=3):
    """The error of each partition."""

    class AddPartitionsToTxnTopicResult(Struct):
        class AddPartitionsToTxnPartitionResult(Struct):
            partition_index: int32
            partition_error_code: int16

        name: string
        results_by_partition: list[AddPartitionsToTxnPartitionResult]

    class AddPartitionsToTxnResult(Struct):
        class AddPartitionsToTxnTopicResult(Struct):
            class AddPartitionsToTxnPartitionResult(Struct):
                partition_index: int32
                partition_error_code: int16

            name: string
            results_by_partition: list[AddPartitionsToTxnPartitionResult]

        transactional_id: string
        topic_results: list[AddPartitionsToTxnTopicResult]

    throttle_time_ms: int32 = 0
    error_code: int16 = field(since=4, default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(until=3)
