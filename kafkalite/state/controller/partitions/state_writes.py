"""Writes the states of partitions, many per transaction, and applies them when they are written."""

from collections.abc import Iterator

from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.effects import CheckTopic, CreatePartitionsNode, CreateState, Operation, SetState
from kafkalite.state.controller.known_topics import Partition, Topic
from kafkalite.state.controller.partitions.table import step
from kafkalite.state.controller.states import PartitionEvent, PartitionState
from kafkalite.state.controller.steps import Steps
from kafkalite.state.controller.values import NO_EPOCH, NO_LEADER, LeaderAndIsr, Replicas
from kafkalite.state.controller.writes import StateWrite

MULTI_BYTES_MAX = 700_000  # ZooKeeper rejects requests above 1 MiB (jute.maxbuffer)
MULTI_STATES_MAX = 100  # a transaction of the served tree is one step of its broker's loop, of some 10 ms
PATH_BYTES = 100  # of an operation, without the chroot and the name of the topic: path and ZooKeeper's fields
STATE_BYTES = 220  # a state in JSON, without its ISR and its eligible replicas
REPLICA_BYTES = 31  # a broker id and a broker epoch

Batch = tuple[tuple[Operation, ...], tuple[Partition | None, ...]]


def write_states(context: ControllerContext) -> Steps:
    """Write the states that this event has chosen."""
    chosen = [partition for partition in context.work.chosen if partition.state is not PartitionState.DELETED]
    for partition in chosen:
        _add_epochs(context, partition)
        yield
    for operations, partitions in _batches(context, chosen):
        context.write(operations, StateWrite(partitions))
        yield
    context.work.chosen.clear()


def _add_epochs(context: ControllerContext, partition: Partition) -> None:
    """Add the registrations of the replicas that are known now: a later controller finds by them who has restarted.

    A state with one replica is as Kafka writes it: its only member leads again in any case.
    """
    state = partition.wanted
    if state is not None and len(partition.replicas) > 1:
        before = partition.current
        partition.wanted = state._replace(
            isr_epochs=_epochs(context, state.isr, before), eligible_epochs=_epochs(context, state.eligible, before)
        )


def _epochs(context: ControllerContext, replicas: Replicas, before: LeaderAndIsr | None) -> tuple[int, ...]:
    """The epochs of replicas, of those that are not alive the ones of the state before."""
    brokers = context.brokers
    return tuple([brokers[each].epoch if each in brokers else _epoch_before(before, each) for each in replicas])


def _epoch_before(before: LeaderAndIsr | None, broker_id: int) -> int:
    return NO_EPOCH if before is None else before.complete_epoch(broker_id)


def apply_states(context: ControllerContext, write: StateWrite, versions: tuple[int, ...]) -> Steps:
    """The states are in the tree: from now on they are the current ones.

    Arguments:
        context: of the controller.
        write: the states, by partition.
        versions: of their nodes, in the order of `write`.
    """
    for partition, version in zip(write.partitions, versions, strict=True):
        if partition is not None and partition.state is not PartitionState.DELETED:
            before, partition.current, partition.wanted = partition.current, partition.wanted, None
            partition.version = version
            partition.has_node = True
            context.unclean_elections += _is_unclean(partition.current, before)
            step(context, partition, _written(context, partition, before))
            yield


def _is_unclean(state: LeaderAndIsr | None, before: LeaderAndIsr | None) -> bool:
    """Whether a replica leads that may lack acknowledged records."""
    return state is not None and before is not None and state.leader not in (*before.isr, *before.eligible, NO_LEADER)


def _written(context: ControllerContext, partition: Partition, before: LeaderAndIsr | None) -> PartitionEvent:
    """The event of a written state."""
    if not context.leader_online(partition):
        return PartitionEvent.LEADERLESS
    same = before is not None and before.leader_epoch == partition.leader_epoch
    return PartitionEvent.ISR_WRITTEN if same else PartitionEvent.LED


def reject_states(context: ControllerContext, write: StateWrite, at: int) -> Steps:
    """Nothing of `write` is known to be written: read all its states, and decide again.

    Arguments:
        context: of the controller.
        write: the states of one transaction.
        at: the position of the operation that was rejected, or RESULT_UNKNOWN.
    """
    for partition in write.partitions:
        if partition is not None and partition.state is not PartitionState.DELETED:
            step(context, partition, PartitionEvent.WRITE_FAILED)
            yield


def _batches(context: ControllerContext, chosen: list[Partition]) -> Iterator[Batch]:
    operations: list[Operation] = []
    partitions: list[Partition | None] = []
    topic: Topic | None = None  # of the last partition that is created in this batch
    size, prefix = 0, context.settings.path_prefix_bytes
    for partition in chosen:
        added = _bytes(partition, prefix)
        if operations and (size + added > MULTI_BYTES_MAX or len(partitions) >= MULTI_STATES_MAX):
            yield tuple(operations), tuple(partitions)
            operations, partitions, size, topic = [], [], 0, None
        size += added
        if partition.current is None and partition.topic is not topic:
            topic = partition.topic
            operations += (above := _above(topic))
            partitions += [None] * len(above)
        operations.append(_operation(partition))
        partitions.append(partition)
    if operations:
        yield tuple(operations), tuple(partitions)


def _above(topic: Topic) -> list[Operation]:
    """What precedes the first states of a topic: its assignment must be the known one."""
    check = CheckTopic(topic.name, topic.version)
    if topic.has_partitions_node:
        return [check]
    topic.has_partitions_node = True
    return [check, CreatePartitionsNode(topic.name)]


def _operation(partition: Partition) -> Operation:
    state = partition.wanted
    assert state is not None
    if partition.current is None:
        return CreateState(partition.key, state, not partition.has_node)
    return SetState(partition.key, state, partition.version)


def _bytes(partition: Partition, prefix: int) -> int:
    """An upper limit of the size of the operations; those above the partitions are counted with each of them."""
    nodes = 4 if partition.current is None else 1
    isr_bytes = REPLICA_BYTES * len(partition.replicas)
    return nodes * (prefix + len(partition.key.topic) + PATH_BYTES) + STATE_BYTES + isr_bytes
