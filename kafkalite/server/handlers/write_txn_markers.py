"""WriteTxnMarkers, key 27, v1-2: a transaction coordinator ends transactions in the partitions of this broker (KIP-98).

Version notes: v2 the version of the transaction (KIP-1228).

Coordinators of other brokers send it, and administrators to abort a hanging transaction (KIP-664). So every listener
serves it, as every broker of Apache Kafka does. `hosting/marker_writer` decides. Results of a producer id that occurs
several times are one, as in Kafka.
"""

from functools import partial

from kafkalite.callbacks import FanIn
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kafkalite.records.control import TransactionMarker
from kafkalite.server.requests.call import MarkerCall
from kafkalite.server.requests.group_responses import ended
from kafkalite.slicing import Steps

Written = WriteTxnMarkersRequest.WritableTxnMarker
Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = Result.WritableTxnMarkerTopicResult
PartitionResult = TopicResult.WritableTxnMarkerPartitionResult
Errors = dict[TopicPartition, int]


def write_txn_markers(call: MarkerCall, request: WriteTxnMarkersRequest) -> None:
    """Write all markers; the response is sent when every partition has an error or its committed marker."""
    objects = sum(len(topic.partition_indexes) for marker in request.markers for topic in marker.topics)
    call.append_in_slices(writing(call, request), objects, ended)


def writing(call: MarkerCall, request: WriteTxnMarkersRequest) -> Steps:
    """Write the markers one after the other, a step for each partition.

    Arguments:
        call: is answered when every partition has its result.
        request: has the markers.
    """

    def written(errors: list[Errors]) -> None:
        call.answer(response_of(request, errors))

    gathered = FanIn[Errors](len(request.markers), call.guard(written))
    for at, each in enumerate(request.markers):
        put = partial(gathered.put, at)
        yield from call.context.marker_writer.steps(marker_of(each), partitions_of(each), put)


def marker_of(written: Written) -> TransactionMarker:
    """The marker of a request."""
    return TransactionMarker(
        producer_id=written.producer_id,
        producer_epoch=written.producer_epoch,
        committed=written.transaction_result,
        coordinator_epoch=written.coordinator_epoch,
        version=written.transaction_version,
    )


def partitions_of(written: Written) -> list[TopicPartition]:
    """The partitions of a marker, in their order."""
    return [TopicPartition(topic.name, index) for topic in written.topics for index in topic.partition_indexes]


def response_of(request: WriteTxnMarkersRequest, errors: list[Errors]) -> WriteTxnMarkersResponse:
    """Build the response: the results of each producer id, by topic and partition.

    Arguments:
        request: has the markers.
        errors: of the partitions of each marker, in their order.
    """
    by_producer: dict[int, Errors] = {}
    for each, of_marker in zip(request.markers, errors, strict=True):
        by_producer.setdefault(each.producer_id, {}).update(of_marker)
    return WriteTxnMarkersResponse(
        markers=[Result(producer_id=each, topics=topics_of(found)) for each, found in by_producer.items()]
    )


def topics_of(errors: Errors) -> list[TopicResult]:
    """The results of one producer id."""
    topics: dict[str, list[PartitionResult]] = {}
    for (topic, index), error in errors.items():
        topics.setdefault(topic, []).append(PartitionResult(partition_index=index, error_code=error))
    return [TopicResult(name=topic, partitions=partitions) for topic, partitions in topics.items()]
