"""AlterPartitionReassignments, key 45, v0-1: accepts the replicas that a partition has, and no others (KIP-455).

kafka-reassign-partitions sends it before it moves partitions between log directories. A partition has one replica, and
other brokers cannot copy it.
"""

from collections.abc import Generator

from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.metadata.image import TopicImage
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kafkalite.server.requests.call import AdminCall

Wanted = AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition
TopicResult = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
PartitionResult = TopicResult.ReassignablePartitionResponse
ACCEPTED = Refusal(0, None)
UNKNOWN = Refusal(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
NONE_RUNNING = Refusal(KafkaErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition is being reassigned.")
NOT_CONTROLLER = "This broker is not the controller."


def alter_partition_reassignments(
    call: AdminCall, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse | None:
    """Answer for each partition."""
    if not call.context.is_controller:
        return AlterPartitionReassignmentsResponse(
            error_code=KafkaErrorCode.NOT_CONTROLLER, error_message=NOT_CONTROLLER, responses=[]
        )
    call.answer_from(build_response(call, request), sum(1 + len(topic.partitions) for topic in request.topics))
    return None


def build_response(
    call: AdminCall, request: AlterPartitionReassignmentsRequest
) -> Generator[None, None, AlterPartitionReassignmentsResponse]:
    results = call.elements()
    for topic in request.topics:
        partitions, image = call.elements(), call.context.image.topics.get(topic.name)
        for wanted in topic.partitions:
            refusal = outcome(image, wanted)
            partitions.add(
                PartitionResult(
                    partition_index=wanted.partition_index, error_code=refusal.error, error_message=refusal.message
                )
            )
            yield
        results.add(TopicResult(name=topic.name, partitions=partitions.finish()))
        yield
    return AlterPartitionReassignmentsResponse(error_message=None, responses=results.finish())


def outcome(topic: TopicImage | None, wanted: Wanted) -> Refusal:
    """The result of one partition."""
    partition = None if topic is None else topic.partition(wanted.partition_index)
    if partition is None:
        return UNKNOWN
    if wanted.replicas is None:
        return NONE_RUNNING
    if tuple(wanted.replicas) == tuple(partition.replicas):
        return ACCEPTED
    current = ", ".join(map(str, partition.replicas))
    text = f"Replicas cannot be moved to other brokers; the partition stays on {current}."
    return Refusal(KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
