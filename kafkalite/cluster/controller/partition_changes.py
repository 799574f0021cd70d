"""Converts requests that change the states of partitions into events of the controller, and results into responses.

Source: KafkaController.processAlterPartition, doControlledShutdown of Apache Kafka 3.9.
"""

from collections.abc import Generator

from kafkalite.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kafkalite.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from kafkalite.state.controller.effects import Completion
from kafkalite.state.controller.events import AlterPartitions, RequestedIsr, ShutDownBroker
from kafkalite.state.controller.partitions.requests import ANY_EPOCH
from kafkalite.state.controller.values import PartitionOutcome

Change = AlterPartitionRequest.TopicData.PartitionData
Topic = AlterPartitionResponse.TopicData
Answer = AlterPartitionResponse.TopicData.PartitionData


def isr_changes(request: AlterPartitionRequest) -> Generator[None, None, AlterPartitions]:
    """Return the event of a request, v2 or later; yields after each partition."""
    changes = []
    for topic in request.topics:
        for each in topic.partitions:
            members = tuple((member.broker_id, member.broker_epoch) for member in each.new_isr_with_epochs)
            isr = members or tuple((broker, ANY_EPOCH) for broker in each.new_isr)
            index, recovering = each.partition_index, each.leader_recovery_state == 1
            changes.append(
                RequestedIsr(topic.topic_id, index, each.leader_epoch, each.partition_epoch, isr, recovering)
            )
            yield
    return AlterPartitions(None, request.broker_id, request.broker_epoch, tuple(changes))


def isr_response(request: AlterPartitionRequest, result: Completion) -> Generator[None, None, AlterPartitionResponse]:
    """Return the response with the committed states; yields after each partition."""
    if result.error:
        return AlterPartitionResponse(error_code=result.error, topics=[])
    outcomes = iter(result.outcomes)
    topics = []
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            partitions.append(answer_of(each.partition_index, next(outcomes)))
            yield
        topics.append(Topic(topic_id=topic.topic_id, partitions=partitions))
    return AlterPartitionResponse(error_code=0, topics=topics)


def answer_of(index: int, outcome: PartitionOutcome) -> Answer:
    """The committed state of a partition, or its error."""
    state = outcome.state
    if outcome.error or state is None:
        return Answer(
            partition_index=index,
            error_code=outcome.error,
            leader_id=0,
            leader_epoch=0,
            isr=[],
            partition_epoch=0,
        )
    return Answer(
        partition_index=index,
        error_code=0,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=int(state.recovering),
        partition_epoch=outcome.version,
        eligible_replicas=list(state.eligible),
    )


def shutdown(request: ControlledShutdownRequest) -> Generator[None, None, ShutDownBroker]:
    """Return the event of a request."""
    yield
    return ShutDownBroker(None, request.broker_id, request.broker_epoch)


def shutdown_response(
    request: ControlledShutdownRequest, result: Completion
) -> Generator[None, None, ControlledShutdownResponse]:
    """Return the response with the partitions that the broker still leads; yields after each partition."""
    remaining = []
    for partition, _error, state, _version in result.outcomes:
        if partition is not None and state is not None and state.leader == request.broker_id:
            topic, index = partition
            remaining.append(ControlledShutdownResponse.RemainingPartition(topic_name=topic, partition_index=index))
        yield
    return ControlledShutdownResponse(error_code=result.error, remaining_partitions=remaining)
