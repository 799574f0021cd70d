"""The actions of `table` for topics that exist: partitions are added, topic ids written, lost topics forgotten.

An action returns the event that follows from it at once, or None. `deletion` has the actions of deletions.
"""

from kafkalite.state.controller.channel import Stop
from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.effects import DeleteDeletion, SetTopicId
from kafkalite.state.controller.known_topics import Partition, Topic
from kafkalite.state.controller.partitions.minimum import apply_minimum, use_minimum
from kafkalite.state.controller.partitions.state_reads import resolve, revise
from kafkalite.state.controller.partitions.table import step as step_partition
from kafkalite.state.controller.states import PartitionEvent, PartitionState, TopicEvent
from kafkalite.state.controller.steps import Steps
from kafkalite.state.controller.values import InvalidNode, TopicNodes
from kafkalite.state.controller.writes import RequestRemoval, TopicIdWrite

Argument = TopicNodes | InvalidNode | int | None  # what the event brings: the nodes that were read, or a broker id


def do_nothing(context: ControllerContext, topic: Topic, argument: Argument) -> None:
    """The event has no effect now."""


def read(context: ControllerContext, topic: Topic, argument: Argument) -> None:
    """Read the nodes of the topic."""
    context.work.topics_to_read[topic.name] = None


def add_partitions(context: ControllerContext, topic: Topic, argument: Argument) -> Steps:
    """Add the partitions that are not known, and use states that are newer than the known ones.

    A deletion begins only now: the nodes that were read after the request are those of the topic to be deleted.
    """
    assert isinstance(argument, TopicNodes)
    if argument.topic_id is not None:
        context.identify(topic, argument.topic_id)
    topic.created_zxid, topic.version = argument.created_zxid, argument.version
    changed = use_minimum(context, topic, argument.min_insync_replicas)
    if not any(partition.state is PartitionState.CREATING for partition in topic.partitions.values()):
        topic.has_partitions_node = argument.partition_nodes is not None
    nodes = argument.partition_nodes or frozenset()
    deleted = topic.name in context.deletions
    for index, replicas in argument.replicas.items():
        partition = topic.partitions.get(index)
        if partition is None:
            adding, removing = argument.adding.get(index, ()), argument.removing.get(index, ())
            partition = topic.partitions[index] = Partition(topic, index, replicas, adding, removing)
            partition.has_node = index in nodes
            context.host(partition)
        if deleted:
            revise(context, partition, argument.states.get(index))
        else:
            resolve(context, partition, argument.states.get(index), has_node=index in nodes)
        yield
    if changed and not deleted:
        yield from apply_minimum(context, topic)
    return TopicEvent.DELETION_CONFIRMED if deleted else None


def add_topic_id(context: ControllerContext, topic: Topic, argument: Argument) -> None:
    """Write a random topic id, even if the topic is to be deleted: the id protects logs of earlier topics."""
    assert isinstance(argument, TopicNodes)
    _write_topic_id(context, topic, None, argument)


def restore_topic_id(context: ControllerContext, topic: Topic, argument: Argument) -> TopicEvent:
    """Write the topic id again: a tool for Kafka before 2.8 has replaced the node."""
    assert isinstance(argument, TopicNodes)
    _write_topic_id(context, topic, topic.topic_id, argument)
    return TopicEvent.READ


def refuse_deletion(context: ControllerContext, topic: Topic, argument: Argument) -> None:
    """A topic with an invalid node is not deleted: which brokers have its logs is not known."""
    context.log("error", f"topic {topic.name}: it cannot be deleted because its znode is invalid")


def withdraw_request(context: ControllerContext, topic: Topic, argument: Argument) -> Steps:
    """Forget a name without a topic, and remove the request to delete it."""
    if topic.name in context.deletions:
        context.log("warning", f"topic {topic.name}: it cannot be deleted because it does not exist")
    yield from forget(context, topic, argument)


def forget(context: ControllerContext, topic: Topic, argument: Argument) -> Steps:
    """Forget a topic that does not exist, and remove the request to delete it if there is one."""
    remove_request(context, topic.name)
    yield from context.forget(topic)
    context.completions.deleted(topic.name)


def lose(context: ControllerContext, topic: Topic, argument: Argument) -> Steps:
    """The nodes of a topic were deleted by others: brokers stop its replicas and keep the logs."""
    context.log("warning", f"topic {topic.name}: its znodes were deleted by others, its logs are kept")
    for partition in topic.partitions.values():
        for broker in context.online(partition):
            channel = context.channels[broker]
            channel.stop(partition.key, Stop(topic, partition.leader_epoch, delete=False))
            channel.full_due = True
        if partition.state is not PartitionState.DELETED:
            step_partition(context, partition, PartitionEvent.DELETED)
        context.change_metadata(partition.key)
        yield
    context.completions.deletion_begun(topic)
    yield from forget(context, topic, argument)


def remove_request(context: ControllerContext, name: str) -> None:
    """Remove the request to delete a topic, if there is one."""
    if name in context.deletions:
        context.write((DeleteDeletion(name),), RequestRemoval(name))


def _write_topic_id(context: ControllerContext, topic: Topic, topic_id: bytes | None, nodes: TopicNodes) -> None:
    if topic.write_id not in context.writes:
        operation = SetTopicId(topic.name, topic_id, nodes.replicas, nodes.adding, nodes.removing, nodes.version)
        topic.write_id = context.write((operation,), TopicIdWrite(topic))
