"""The deletion of topics, as TopicDeletionManager.scala of Kafka 3.9: first the logs on all brokers, then the nodes.

Replicas on brokers that are not alive, or in failed log directories, wait until their broker is back. A broker that is
alive is asked in any case: a replica that is offline because its files are lost can be deleted. Every transaction
that deletes nodes checks that the deletion is still requested, and the last one removes the topic, its configs and the
request together.
"""

from collections.abc import Generator

from kafkalite.model import TopicPartition
from kafkalite.state.controller.channel import Stop
from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.effects import (
    CheckDeletion,
    DeleteDeletion,
    DeletePartitionNode,
    DeletePartitionsNode,
    DeleteState,
    DeleteTopicConfig,
    DeleteTopicNode,
    Operation,
)
from kafkalite.state.controller.known_topics import Topic
from kafkalite.state.controller.partitions.table import step as step_partition
from kafkalite.state.controller.states import PartitionEvent, TopicEvent
from kafkalite.state.controller.steps import Steps
from kafkalite.state.controller.topics.actions import Argument
from kafkalite.state.controller.values import TopicNodes
from kafkalite.state.controller.writes import NodeRemoval

PARTITIONS_PER_WRITE = 150  # two deletions each; see MULTI_STATES_MAX


def begin(context: ControllerContext, topic: Topic, argument: Argument) -> Steps:
    """Remove the topic from all images, and delete its replicas."""
    context.log("info", f"topic {topic.name}: its deletion begins")
    for partition in topic.partitions.values():
        step_partition(context, partition, PartitionEvent.DELETED)
        context.change_metadata(partition.key)
        for broker in partition.replicas if partition.current is not None else ():  # else no broker has a log
            topic.unavailable.setdefault(broker, set()).add(partition.key.partition)
        yield
    context.completions.deletion_begun(topic)
    for broker in sorted(topic.unavailable):
        yield from _stop(context, topic, broker)
    return check(context, topic, None)


def stop_replicas(context: ControllerContext, topic: Topic, argument: Argument) -> Steps:
    """Delete the replicas on a broker that is back."""
    assert isinstance(argument, int)
    _wait_for(topic, argument)
    yield from _stop(context, topic, argument)
    return check(context, topic, None)


def wait_for_broker(context: ControllerContext, topic: Topic, argument: Argument) -> TopicEvent | None:
    """The replicas on a broker that failed are deleted when it is back."""
    assert isinstance(argument, int)
    _wait_for(topic, argument)
    return check(context, topic, None)


def check(context: ControllerContext, topic: Topic, argument: Argument) -> TopicEvent | None:
    """Find out what the deletion waits for."""
    if topic.stopping:
        return None
    return TopicEvent.ONLY_UNAVAILABLE_LEFT if topic.unavailable else TopicEvent.ALL_DELETED


def report_ineligible(context: ControllerContext, topic: Topic, argument: Argument) -> None:
    """Log the brokers that the deletion waits for. Clients do not wait for them, as in Kafka."""
    context.log("warning", f"topic {topic.name}: its deletion waits for the brokers {sorted(topic.unavailable)}")
    context.completions.deleted(topic.name)


def delete_nodes(context: ControllerContext, topic: Topic, argument: Argument) -> Steps:
    """Delete the nodes that were read, in as many transactions as they need."""
    assert isinstance(argument, TopicNodes)
    if topic.write_id not in context.writes:  # else its result leads here
        topic.removal = yield from removal(topic, argument)
        delete_next_nodes(context, topic, None)


def delete_next_nodes(context: ControllerContext, topic: Topic, argument: Argument) -> None:
    """Run the next transaction of the deletion."""
    operations = topic.removal.pop()
    topic.write_id = context.write(operations, NodeRemoval(topic, operations))


def finish(context: ControllerContext, topic: Topic, argument: Argument) -> Steps:
    """The topic does not exist any more."""
    context.log("info", f"topic {topic.name}: deleted")
    context.deletions.discard(topic.name)
    yield from context.forget(topic)
    context.completions.deleted(topic.name)


def cancel(context: ControllerContext, topic: Topic, argument: Argument) -> Steps:
    """The request was removed by others. The topic is read as a new one: logs that are deleted are created again."""
    context.log("warning", f"topic {topic.name}: the request to delete it was removed, some of its logs are deleted")
    yield from context.forget(topic)
    context.topics[topic.name] = Topic(topic.name)
    context.unknown.add(topic.name)
    context.work.topics_to_read[topic.name] = None


def removal(topic: Topic, nodes: TopicNodes) -> Generator[None, None, list[tuple[Operation, ...]]]:
    """Return the transactions that delete the nodes of a topic, the first one last; yields after each of them."""
    partitions = sorted(nodes.partition_nodes or ())
    writes = [_topic_nodes(topic, nodes)]
    for start in range(0, len(partitions), PARTITIONS_PER_WRITE):
        part = partitions[start : start + PARTITIONS_PER_WRITE]
        writes.append((CheckDeletion(topic.name), *_partition_nodes(topic, nodes, part)))
        yield
    return writes


def _partition_nodes(topic: Topic, nodes: TopicNodes, indexes: list[int]) -> list[Operation]:
    operations: list[Operation] = []
    for index in indexes:
        key = TopicPartition(topic.name, index)
        if index in nodes.states:
            operations.append(DeleteState(key))
        operations.append(DeletePartitionNode(key))
    return operations


def _topic_nodes(topic: Topic, nodes: TopicNodes) -> tuple[Operation, ...]:
    operations: list[Operation] = []
    if nodes.partition_nodes is not None:
        operations.append(DeletePartitionsNode(topic.name))
    operations.append(DeleteTopicNode(topic.name, nodes.version))
    if topic.has_config:
        operations.append(DeleteTopicConfig(topic.name))
    return (*operations, DeleteDeletion(topic.name))


def _stop(context: ControllerContext, topic: Topic, broker: int) -> Steps:
    """Ask a broker to delete its replicas, if it is alive."""
    if (channel := context.channels.get(broker)) is None:
        return
    for index in sorted(topic.unavailable.pop(broker, ())):
        partition = topic.partitions[index]
        topic.stopping.setdefault(broker, set()).add(index)
        channel.stop(partition.key, Stop(topic, partition.leader_epoch, delete=True))
        if channel.accepted.get(partition.key) is not topic:
            channel.lead(partition.key, is_new=False)
        yield


def _wait_for(topic: Topic, broker: int) -> None:
    if broker in topic.stopping:
        topic.unavailable.setdefault(broker, set()).update(topic.stopping.pop(broker))
