"""DescribeProducers, key 61, v0. The producers that a partition remembers, for finding hanging transactions
(KIP-664).
"""

from kafkalite.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from kafkalite.server.call import Call

TopicResponse = DescribeProducersResponse.TopicResponse
PartitionResponse = TopicResponse.PartitionResponse
ProducerState = PartitionResponse.ProducerState


def describe_producers(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """List every partition's active producers."""
    # Each once: an answer may be thousands of times as long as the number that asks for it.
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(name=name, partitions=[producers_of(call, name, index) for index in indexes])
            for name, indexes in asked.items()
        ]
    )


def producers_of(call: Call, topic: str, index: int) -> PartitionResponse:
    partition = call.broker.replicas.partition(topic, b"", index, by_id=False)
    error = partition if isinstance(partition, int) else partition.error
    if error or isinstance(partition, int):
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
