"""Builds WriteTxnMarkers requests for another broker, and reads its responses."""

from collections.abc import Iterable, Mapping

from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kafkalite.records.control import TransactionMarker

WritableMarker = WriteTxnMarkersRequest.WritableTxnMarker
WritableTopic = WritableMarker.WritableTxnMarkerTopic


def request_for(markers: Mapping[TransactionMarker, Iterable[TopicPartition]]) -> WriteTxnMarkersRequest:
    """The request for the partitions of each marker."""
    return WriteTxnMarkersRequest(
        markers=[
            WritableMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.committed,
                topics=topics_of(partitions),
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.version,
            )
            for marker, partitions in markers.items()
        ]
    )


def topics_of(partitions: Iterable[TopicPartition]) -> list[WritableTopic]:
    """Partitions by topic."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [WritableTopic(name=topic, partition_indexes=indexes) for topic, indexes in topics.items()]


def errors_of(response: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, int]]:
    """The error code of each partition, by producer id."""
    found: dict[int, dict[TopicPartition, int]] = {}
    for marker in response.markers:
        errors = found.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            errors.update(
                {TopicPartition(topic.name, part.partition_index): part.error_code for part in topic.partitions}
            )
    return found
