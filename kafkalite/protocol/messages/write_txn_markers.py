"""WriteTxnMarkers, key 27, v1-2. A coordinator writes the markers of ended transactions (KIP-98).

Version notes: v0 is not served by Apache Kafka 4; v2 the version of the transaction (KIP-1228).
Source: WriteTxnMarkersRequest.json, WriteTxnMarkersResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, boolean, field, int8, int16, int32, int64, string


class WriteTxnMarkersRequest(Request, key=27, versions=(1, 2), flexible=1):
    """The markers; `transaction_result` True = commit."""

    class WritableTxnMarker(Struct):
        class WritableTxnMarkerTopic(Struct):
            name: string
            partition_indexes: list[int32]

        producer_id: int64
        producer_epoch: int16
        transaction_result: boolean
        topics: list[WritableTxnMarkerTopic]
        coordinator_epoch: int32
        transaction_version: int8 = field(since=2, default=0)

    markers: list[WritableTxnMarker]


class WriteTxnMarkersResponse(Response, key=27, versions=(1, 2), flexible=1):
    """The error of each partition of each producer id."""

    class WritableTxnMarkerResult(Struct):
        class WritableTxnMarkerTopicResult(Struct):
            class WritableTxnMarkerPartitionResult(Struct):
                partition_index: int32
                error_code: int16

            name: string
            partitions: list[WritableTxnMarkerPartitionResult]

        producer_id: int64
        topics: list[WritableTxnMarkerTopicResult]

    markers: list[WritableTxnMarkerResult]
