"""ControlledShutdown, key 7, v0-3. A broker asks the controller to move its leaders before it stops.

Version notes: v2 broker epoch (KIP-380). The header of v0 has no client id; Kafka 3.9 sends v3 only, and Kafka 4 has no
such request.
Source: ControlledShutdownRequest.json, ControlledShutdownResponse.json of Apache Kafka 3.9.
"""

from kafkalite.protocol.schema import Request, Response, Struct, field, int16, int32, int64, string


class ControlledShutdownRequest(Request, key=7, versions=(0, 3), flexible=3):
    """The broker that stops."""

    broker_id: int32
    broker_epoch: int64 = field(since=2, default=-1)


class ControlledShutdownResponse(Response, key=7, versions=(0, 3), flexible=3):
    """The partitions that the broker still leads."""

    class RemainingPartition(Struct):
        topic_name: string
        partition_index: int32

    error_code: int16
    remaining_partitions: list[RemainingPartition]
