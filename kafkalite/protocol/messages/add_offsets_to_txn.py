"""AddOffsetsToTxn, key 25, v0-4. Adds the offsets of a group to a transaction (KIP-98).

Version notes: v2 PRODUCER_FENCED; v4 TRANSACTION_ABORTABLE (KIP-890).
Source: AddOffsetsToTxnRequest.json, AddOffsetsToTxnResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, int16, int32, int64, string


class AddOffsetsToTxnRequest(Request, key=25, versions=(0, 4), flexible=3):
    """The transaction and the group."""

    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    group_id: string


class AddOffsetsToTxnResponse(Response, key=25, versions=(0, 4), flexible=3):
    """The error, 0 = none."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
