"""DescribeProducers, key 61, v0: returns the producers of partitions, to find hanging transactions (KIP-664)."""

from collections.abc import Generator

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from kafkalite.server.requests.call import PartitionCall

TopicResponse = DescribeProducersResponse.TopicResponse
PartitionResponse = TopicResponse.PartitionResponse
ProducerState = PartitionResponse.ProducerState


def describe_producers(call: PartitionCall, request: DescribeProducersRequest) -> None:
    """Return the active producers of each partition."""
    call.answer_from(build_response(call, request), sum(1 + len(topic.partition_indexes) for topic in request.topics))


def build_response(
    call: PartitionCall, request: DescribeProducersRequest
) -> Generator[None, None, DescribeProducersResponse]:
    # Each once: a response may be thousands of times as long as the number in the request.
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        yield
    topics = call.elements()
    for name, indexes in asked.items():
        partitions, structs = call.elements(), 1
        for index in indexes:
            found = producers_of(call, name, index)
            partitions.add(found, 1 + len(found.active_producers))
            structs += 1 + len(found.active_producers)
            yield
        topics.add(TopicResponse(name=name, partitions=partitions.finish()), structs)
        yield
    return DescribeProducersResponse(topics=topics.finish())


def producers_of(call: PartitionCall, topic: str, index: int) -> PartitionResponse:
    partition = call.context.replicas.partition(topic, b"", index, by_id=False)
    error = partition if isinstance(partition, KafkaErrorCode) else partition.error
    if error or isinstance(partition, KafkaErrorCode):
        return PartitionResponse(partition_index=index, error_code=error, active_producers=[])
    known = partition.log.producers.entries.values() if partition.log is not None else ()
    return PartitionResponse(
        partition_index=index,
        error_code=0,
        error_message=None,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.first_offset_of_transaction,
            )
            for producer in known
        ],
    )
