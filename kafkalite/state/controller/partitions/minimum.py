"""Another minimum of in-sync replicas: partitions may have no eligible replicas any more."""

from dataclasses import replace

from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.known_topics import Topic
from kafkalite.state.controller.partitions.table import step
from kafkalite.state.controller.states import PartitionEvent, PartitionState
from kafkalite.state.controller.steps import Steps

WITH_STATE = frozenset((PartitionState.ONLINE, PartitionState.OFFLINE))


def use_minimum(context: ControllerContext, topic: Topic, minimum: int | None) -> bool:
    """Use `min.insync.replicas` of a topic.

    Arguments:
        context: of the controller.
        topic: whose configs were read.
        minimum: None = the configs do not set it.

    Returns whether it is another one.
    """
    if context.minimums.get(topic.name) == minimum:
        return False
    if minimum is None:
        del context.minimums[topic.name]
    else:
        context.minimums[topic.name] = minimum
    return True


def use_default(context: ControllerContext, minimum: int) -> Steps:
    """Use another `minimum` for topics that do not set it; `context` is that of the controller."""
    if context.settings.min_insync_replicas != minimum:
        context.settings = replace(context.settings, min_insync_replicas=minimum)
        for topic in context.topics.values():
            if topic.name not in context.minimums:
                yield from apply_minimum(context, topic)


def apply_minimum(context: ControllerContext, topic: Topic) -> Steps:
    """Evaluate the partitions with eligible replicas: the leader commits nothing until a state has none.

    Those whose state is being written or read are evaluated afterwards.

    Arguments:
        context: of the controller.
        topic: that has another minimum.
    """
    for partition in topic.partitions.values():
        if partition.state in WITH_STATE and partition.current is not None and partition.current.eligible:
            step(context, partition, PartitionEvent.REPLICAS_CHANGED)
        yield
