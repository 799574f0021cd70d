"""RegisterConsumer, key 10003, v0: a consumer registers for the next generation; the response waits for the others.

A partition that appeared after the group's first generation and has no commit starts at its log start. Errors: those of
the machine (`state/groups/registered/groups.py`), UNKNOWN_TOPIC_OR_PARTITION for a claimed partition that does not
exist, and those of the coordinator.
"""

from kafkalite.cluster.metadata.image import UNASSIGNED_ID
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.extensions.register_consumer import RegisterConsumerRequest, RegisterConsumerResponse
from kafkalite.server.requests.call import GroupPartitionCall
from kafkalite.state.groups.registered.requests import FROM_LOG_START, ConsumerRegistered, RegisterConsumer
from kafkalite.state.topic_names import complaint

Topic = RegisterConsumerResponse.OwnedTopic
Partition = Topic.OwnedPartition


def register_consumer(call: GroupPartitionCall, request: RegisterConsumerRequest) -> RegisterConsumerResponse | None:
    """Submit the registration; the response has the generation, an error, or NOT_COORDINATOR when the coordinator
    stops.
    """
    if any(complaint(name) is not None for name in request.topics):
        return RegisterConsumerResponse(error_code=KafkaErrorCode.INVALID_TOPIC_EXCEPTION, partitions=[])
    registration = RegisterConsumer(
        group=request.group_id,
        consumer_id=request.consumer_id,
        topics=tuple(dict.fromkeys(request.topics)),
        claims=frozenset(
            TopicPartition(topic.name, index) for topic in request.claimed_partitions for index in topic.partitions
        ),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=max(
            0, min(request.rebalance_timeout_ms, call.context.config.kafkalite_client_timeout_max_ms)
        ),
        client_id=call.client_id,
        client_host=call.client_host,
        process_id=request.process_id,
        assignor=request.assignor,
    )
    call.context.groups.submit(
        request.group_id,
        lambda machine, token, now: machine.registry.register(registration, token, now),
        call.completion(
            lambda registered: answer(call, registered), lambda error: answer(call, ConsumerRegistered(error))
        ),
    )
    return None


def answer(call: GroupPartitionCall, registered: ConsumerRegistered) -> RegisterConsumerResponse:
    """Return the response: the generation with the consumer's partitions, or the error."""
    topics = [
        Topic(
            name=name,
            partitions=[
                Partition(partition_index=index, start_offset=start(call, name, index, offsets[index]))
                for index in sorted(offsets)
            ],
        )
        for name, offsets in sorted(registered.partitions.items())
    ]
    return RegisterConsumerResponse(error_code=registered.error, generation_id=registered.generation, partitions=topics)


def start(call: GroupPartitionCall, topic: str, index: int, offset: int) -> int:
    """Return the start offset of a partition; 0 for one that was deleted meanwhile, whose fetch then fails."""
    if offset != FROM_LOG_START:
        return offset
    partition = call.context.replicas.partition(topic, UNASSIGNED_ID, index, by_id=False)
    return 0 if isinstance(partition, KafkaErrorCode) else partition.log_start_offset
