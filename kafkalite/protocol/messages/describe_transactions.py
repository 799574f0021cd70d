"""DescribeTransactions, key 65, v0. Describes the state of transactions (KIP-664).

Version notes: v0 only.
Source: DescribeTransactionsRequest.json, DescribeTransactionsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, int16, int32, int64, string


class DescribeTransactionsRequest(Request, key=65, versions=(0, 0), flexible=0):
    """The transactional ids."""

    transactional_ids: list[string]


class DescribeTransactionsResponse(Response, key=65, versions=(0, 0), flexible=0):
    """The state of each transaction."""

    class TransactionState(Struct):
        class TopicData(Struct):
            topic: string
            partitions: list[int32]

        error_code: int16 = 0
        transactional_id: string
        transaction_state: string
        transaction_timeout_ms: int32
        transaction_start_time_ms: int64
        producer_id: int64
        producer_epoch: int16
        topics: list[TopicData]

    throttle_time_ms: int32 = 0
    transaction_states: list[TransactionState]
