"""AllocateProducerIds, key 67, v0. A broker asks the controller for a block of producer ids (KIP-730).

Source: AllocateProducerIdsRequest.json, AllocateProducerIdsResponse.json of Apache Kafka 3.9 and 4.3.
"""

from kafkalite.protocol.schema import Request, Response, int16, int32, int64


class AllocateProducerIdsRequest(Request, key=67, versions=(0, 0), flexible=0):
    """The broker that needs producer ids."""

    broker_id: int32
    broker_epoch: int64 = -1


class AllocateProducerIdsResponse(Response, key=67, versions=(0, 0), flexible=0):
    """The first id of the block, and how many ids it has."""

    throttle_time_ms: int32 = 0
    error_code: int16
    producer_id_start: int64
    producer_id_len: int32
