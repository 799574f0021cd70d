"""Brokers and clients request other states of partitions."""

from collections.abc import Sequence

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.controller.contents import find
from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.events import (
    AlterPartitions,
    ConfigsChanged,
    ElectLeaders,
    RequestedIsr,
    TopicConfigsRead,
)
from kafkalite.state.controller.known_topics import Partition, Topic
from kafkalite.state.controller.partition_requests import Election, PartitionBatch, PartitionRequest
from kafkalite.state.controller.partitions.minimum import use_default
from kafkalite.state.controller.partitions.table import step
from kafkalite.state.controller.states import PartitionEvent, PartitionState, TopicState
from kafkalite.state.controller.steps import Steps
from kafkalite.state.controller.unclean_election import allowed_elections, ask_again
from kafkalite.state.controller.values import NO_LEADER, PartitionOutcome


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
            _request(context, partition, PartitionRequest(batch, at, change))
        yield


def elect_leaders(context: ControllerContext, event: ElectLeaders) -> Steps:
    """A client requests elections."""
    batch = context.requests.open(event.token, NO_LEADER, len(event.partitions))
    for at, key in enumerate(event.partitions):
        partition = find(context, key)
        if partition is None:
            context.requests.complete(batch, at, PartitionOutcome(key, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif partition.state is PartitionState.DELETED:
            context.requests.complete(batch, at, PartitionOutcome(key, KafkaErrorCode.INVALID_TOPIC_EXCEPTION))
        else:
            _request(context, partition, PartitionRequest(batch, at, Election(event.unclean)))
        yield


def configs_read(context: ControllerContext, event: TopicConfigsRead) -> Steps:
    """Elect leaders out of sync, if the topic allows it."""
    yield from elect_each(context, allowed_elections(context, event), unclean=True)


def configs_changed(context: ControllerContext, event: ConfigsChanged) -> Steps:
    """Read again whether topics allow unclean elections, where that counts, and the minimum of in-sync replicas.

    That is read with the whole topic: so the latest of several reads is the one that is used.
    """
    ask_again(context, event.topic)
    topic = None if event.topic is None else context.topics.get(event.topic)
    if topic is not None and (topic.state is TopicState.UNREAD or _is_replicated(topic)):
        context.work.topics_to_read[topic.name] = None
    yield from use_default(context, event.min_insync_replicas)


def _is_replicated(topic: Topic) -> bool:
    return topic.state is TopicState.ACTIVE and any(len(each.replicas) > 1 for each in topic.partitions.values())


def elect_each(context: ControllerContext, partitions: Sequence[Partition], *, unclean: bool) -> Steps:
    """Elect leaders of `partitions` on behalf of the controller itself, whose memory is `context`.

    Arguments:
        context: of the controller.
        partitions: not in deletion.
        unclean: whether replicas are elected that are not in sync, where there is no other; else preferred replicas.
    """
    batch = context.requests.open(None, NO_LEADER, len(partitions))
    for at, partition in enumerate(partitions):
        _request(context, partition, PartitionRequest(batch, at, Election(unclean)))
        yield


def _request(context: ControllerContext, partition: Partition, request: PartitionRequest) -> None:
    context.requests.wait(partition, request)
    step(context, partition, PartitionEvent.REQUESTED)


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
