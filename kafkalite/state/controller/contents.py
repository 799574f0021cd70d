"""The contents of requests, built from the newest states: ControllerBrokerRequestBatch of Kafka 3.9.

Topics that are being deleted have leader -2 in UpdateMetadata, and leader epoch -2 in StopReplica. A partition that
does not exist any more has leader -2, too: its topic was deleted before the broker learned of it.
"""

from collections.abc import Generator, Iterable
from typing import TypeAlias

from kafkalite.model import ZERO_UUID, TopicPartition
from kafkalite.state.controller.channel import Stop
from kafkalite.state.controller.context import IN_DELETION, ControllerContext
from kafkalite.state.controller.effects import (
    PartitionLeadership,
    PartitionMetadata,
    StoppedReplica,
    StoppedTopic,
    TopicLeadership,
    TopicMetadata,
)
from kafkalite.state.controller.known_topics import Partition, Topic
from kafkalite.state.controller.states import PartitionState, TopicState
from kafkalite.state.controller.values import EPOCH_DURING_DELETE, FIRST_LEADER_EPOCH, LEADER_DURING_DELETE, NO_LEADER

RECOVERED, RECOVERING = 0, 1
UNDECIDED = frozenset((PartitionState.ELECTING, PartitionState.READING))

Contents: TypeAlias = Generator[None, None, tuple[TopicMetadata, ...]]  # yields after each partition


def find(context: ControllerContext, key: TopicPartition) -> Partition | None:
    """A partition of a known topic, which may be in deletion."""
    topic = context.topics.get(key.topic)
    return None if topic is None else topic.partitions.get(key.partition)


# UpdateMetadata.


def all_metadata(context: ControllerContext) -> Contents:
    """All partitions with a state, but those that wait for others of their topic (`sending`). The tuple is shared until
    one of the partitions changes.

    Topics in deletion are marked as such: a broker that was not alive when the deletion began deletes a log only then.
    """
    if (metadata := context.metadata_of.get(None)) is None:
        contents = []
        for topic in context.topics.values():
            states = yield from _states(context, topic)
            if states:
                contents.append(TopicMetadata(topic.name, topic.topic_id, tuple(states)))
            yield
        metadata = context.metadata_of[None] = tuple(contents)
    return metadata


def metadata_of(context: ControllerContext, keys: Iterable[TopicPartition]) -> Contents:
    """These partitions. Brokers that wait for the same partitions share one tuple, until one of them changes."""
    wanted = tuple(keys)
    if (metadata := context.metadata_of.get(wanted)) is None:
        metadata = context.metadata_of[wanted] = yield from _metadata_of(context, wanted)
    return metadata


def _metadata_of(context: ControllerContext, keys: tuple[TopicPartition, ...]) -> Contents:
    by_topic: dict[str, list[PartitionMetadata]] = {}
    for key in keys:
        partition = find(context, key)
        if partition is None or partition.topic.state is not TopicState.ACTIVE:
            by_topic.setdefault(key.topic, []).append(_deleted(context, key.partition, partition))
        elif partition.current is not None:
            by_topic.setdefault(key.topic, []).append(_metadata(context, partition))
        yield
    ids = {name: topic.topic_id for name in by_topic if (topic := context.topics.get(name)) is not None}
    return tuple(TopicMetadata(name, ids.get(name, ZERO_UUID), tuple(states)) for name, states in by_topic.items())


def _states(context: ControllerContext, topic: Topic) -> Generator[None, None, list[PartitionMetadata]]:
    in_deletion, states = topic.state in IN_DELETION, list[PartitionMetadata]()
    if not in_deletion and topic.state is not TopicState.ACTIVE:
        return states
    for partition in topic.partitions.values():
        if in_deletion:
            states.append(_deleted(context, partition.key.partition, partition))
        elif partition.current is not None and partition.key not in context.work.new:
            states.append(_metadata(context, partition))
        yield
    return states


def _metadata(context: ControllerContext, partition: Partition) -> PartitionMetadata:
    state, replicas = partition.current, partition.replicas
    assert state is not None
    online = context.online(partition)
    offline = () if online == replicas else tuple([replica for replica in replicas if replica not in online])
    return PartitionMetadata(
        partition.key.partition,
        state.controller_epoch,
        state.leader,
        state.leader_epoch,
        state.isr,
        partition.version,
        replicas,
        offline,
        state.eligible,
    )


def _deleted(context: ControllerContext, index: int, partition: Partition | None) -> PartitionMetadata:
    """A partition that brokers remove from their image (LeaderAndIsr.duringDelete)."""
    isr = () if partition is None or partition.current is None else partition.current.isr
    replicas = () if partition is None else partition.replicas
    epoch = context.settings.epoch
    return PartitionMetadata(index, epoch, LEADER_DURING_DELETE, FIRST_LEADER_EPOCH, isr, 0, replicas, ())


# LeaderAndIsr.


def leadership_of(
    partitions: Iterable[tuple[Partition, bool]], receiver: int
) -> Generator[None, None, tuple[TopicLeadership, ...]]:
    """Partitions with a state, each with whether it is new, for a broker."""
    by_topic: dict[Topic, list[PartitionLeadership]] = {}
    for partition, is_new in partitions:
        by_topic.setdefault(partition.topic, []).append(_leadership(partition, is_new, receiver))
        yield
    return tuple(TopicLeadership(topic.name, topic.topic_id, tuple(states)) for topic, states in by_topic.items())


def _leadership(partition: Partition, is_new: bool, receiver: int) -> PartitionLeadership:
    """A leader does not learn of its leadership while the next state is written or read: it may have restarted, and
    must not lead in the leader epoch of before. A write that keeps the leader epoch is no reason, as no leadership
    follows it.
    """
    state = partition.current
    assert state is not None
    leader = NO_LEADER if state.leader == receiver and _is_undecided(partition) else state.leader
    return PartitionLeadership(
        partition.key.partition,
        state.controller_epoch,
        leader,
        state.leader_epoch,
        state.isr,
        partition.version,
        partition.replicas,
        partition.adding,
        partition.removing,
        is_new,
        RECOVERING if state.recovering else RECOVERED,
        state.eligible,
    )


def _is_undecided(partition: Partition) -> bool:
    """Whether the next state has another leader epoch, or is not known."""
    if partition.state not in UNDECIDED:
        return False
    wanted, current = partition.wanted, partition.current
    keeps = wanted is not None and current is not None and wanted.leader_epoch == current.leader_epoch
    return not keeps or (current is not None and current.leader in partition.restarted)


# StopReplica.


def stopped_topics(stops: dict[TopicPartition, Stop]) -> tuple[StoppedTopic, ...]:
    """Replicas to stop."""
    by_topic: dict[str, list[StoppedReplica]] = {}
    for key, stop in stops.items():
        epoch = EPOCH_DURING_DELETE if stop.delete else stop.leader_epoch
        by_topic.setdefault(key.topic, []).append(StoppedReplica(key.partition, epoch, stop.delete))
    return tuple(StoppedTopic(name, tuple(replicas)) for name, replicas in by_topic.items())
