"""Brokers and clients request other states of partitions."""

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.events import AlterPartitions, RequestedIsr
from kafkalite.state.controller.known_topics import Partition
from kafkalite.state.controller.partition_requests import PartitionBatch, PartitionRequest
from kafkalite.state.controller.partitions.table import step
from kafkalite.state.controller.states import PartitionEvent, PartitionState
from kafkalite.state.controller.steps import Steps
from kafkalite.state.controller.values import PartitionOutcome


def alter_partitions(context: ControllerContext, event: AlterPartitions) -> Steps:
    """A leader changes ISRs."""
    sender = context.brokers.get(event.broker_id)
    if sender is None or sender.epoch != event.broker_epoch:
        context.complete(event.token, KafkaErrorCode.STALE_BROKER_EPOCH)
        return
    batch = context.requests.open(event.token, event.broker_id, len(event.changes))
    for at, change in enumerate(event.changes):
        partition = _partition(context, batch, at, change)
        if partition is not None:
            context.requests.wait(partition, PartitionRequest(batch, at, change))
            step(context, partition, PartitionEvent.REQUESTED)
        yield


def _partition(context: ControllerContext, batch: PartitionBatch, at: int, change: RequestedIsr) -> Partition | None:
    """The partition of a change; None = it does not exist, and the outcome says so."""
    topic = context.topics_by_id.get(change.topic_id)
    if topic is None:
        context.requests.complete(batch, at, PartitionOutcome(None, KafkaErrorCode.UNKNOWN_TOPIC_ID))
        return None
    partition = topic.partitions.get(change.partition)
    if partition is None or partition.state is PartitionState.DELETED:
        key = None if partition is None else partition.key
        context.requests.complete(batch, at, PartitionOutcome(key, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return None
    return partition
