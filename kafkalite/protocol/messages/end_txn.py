"""EndTxn, key 26, v0-5. Commits or aborts a transaction (KIP-98).

Version notes: v2 PRODUCER_FENCED; v4 TRANSACTION_ABORTABLE; v5 the epoch of the next transaction (KIP-890).
Source: EndTxnRequest.json, EndTxnResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, boolean, field, int16, int32, int64, string


class EndTxnRequest(Request, key=26, versions=(0, 5), flexible=3):
    """The transaction, and whether to commit it."""

    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    committed: boolean


class EndTxnResponse(Response, key=26, versions=(0, 5), flexible=3):
    """The error, 0 = none, and the producer id and epoch of the next transaction."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = field(since=5, default=-1)
    producer_epoch: int16 = field(since=5, default=-1)
