"""ListTransactions, key 66, v0-2. Lists the transactions of a coordinator (KIP-664).

Version notes: v1 minimum duration (KIP-994); v2 pattern of transactional ids (KIP-1152).
Source: ListTransactionsRequest.json, ListTransactionsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, field, int16, int32, int64, string


class ListTransactionsRequest(Request, key=66, versions=(0, 2), flexible=0):
    """The filters; empty = all."""

    state_filters: list[string]
    producer_id_filters: list[int64]
    duration_filter: int64 = field(since=1, default=-1)
    transactional_id_pattern: string | None = field(since=2, default=None)


class ListTransactionsResponse(Response, key=66, versions=(0, 2), flexible=0):
    """The transactions."""

    class TransactionState(Struct):
        transactional_id: string
        producer_id: int64
        transaction_state: string

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    unknown_state_filters: list[string]
    transaction_states: list[TransactionState]
