"""OffsetDelete, key 47, v0. Deletes committed offsets of a group (KIP-496).

Version notes: v0 only.
Source: OffsetDeleteRequest.json, OffsetDeleteResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, int16, int32, string


class OffsetDeleteRequest(Request, key=47, versions=(0, 0)):
    """Partitions whose offsets are deleted."""

    class OffsetDeleteRequestTopic(Struct):
        class OffsetDeleteRequestPartition(Struct):
            partition_index: int32

        name: string
        partitions: list[OffsetDeleteRequestPartition]

    group_id: string
    topics: list[OffsetDeleteRequestTopic]


class OffsetDeleteResponse(Response, key=47, versions=(0, 0)):
    """The error of the request, or of each partition; 0 = none."""

    class OffsetDeleteResponseTopic(Struct):
        class OffsetDeleteResponsePartition(Struct):
            partition_index: int32
            error_code: int16 = 0

        name: string
        partitions: list[OffsetDeleteResponsePartition]

    error_code: int16 = 0
    throttle_time_ms: int32 = 0
    topics: list[OffsetDeleteResponseTopic]
