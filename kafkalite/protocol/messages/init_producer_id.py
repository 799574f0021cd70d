"""InitProducerId, key 22, v0-5. Assigns an id and an epoch to a producer.

Version notes: v3 epoch of an existing id (KIP-360); v4 PRODUCER_FENCED; v5 transactions V2 (KIP-890). v6 (KIP-939) is
unstable in Kafka 4.3.
Source: InitProducerIdRequest.json, InitProducerIdResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, field, int16, int32, int64, string


class InitProducerIdRequest(Request, key=22, versions=(0, 5), flexible=2):
    """Sent by idempotent and transactional producers."""

    transactional_id: string | None
    transaction_timeout_ms: int32
    producer_id: int64 = field(since=3, default=-1)
    producer_epoch: int16 = field(since=3, default=-1)


class InitProducerIdResponse(Response, key=22, versions=(0, 5), flexible=2):
    """The producer id and epoch."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = -1
    producer_epoch: int16
