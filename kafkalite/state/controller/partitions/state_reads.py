"""States of partitions that were read: after a write was rejected or failed, or with the nodes of a topic."""

from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.effects import ReadStates, ReadTopic, ReadTopicConfigs
from kafkalite.state.controller.events import StatesRead
from kafkalite.state.controller.known_topics import Partition
from kafkalite.state.controller.partitions.table import step
from kafkalite.state.controller.states import PartitionEvent, PartitionState
from kafkalite.state.controller.steps import Steps
from kafkalite.state.controller.values import InvalidNode, LeaderAndIsr, StoredState

WITHOUT_STATE = frozenset((PartitionState.READING, PartitionState.INVALID))
WRITING = frozenset((PartitionState.CREATING, PartitionState.ELECTING, PartitionState.DELETED))
Stored = StoredState | InvalidNode | None


def read_nodes(context: ControllerContext) -> None:
    """Read what this event has found to be unknown."""
    context.effects += [ReadTopic(name) for name in context.work.topics_to_read]
    partitions = [one for one in context.work.states_to_read if one.state is PartitionState.READING]
    if partitions:
        read_id = context.next_id()
        context.reads[read_id] = partitions
        context.effects.append(ReadStates(read_id, tuple(partition.key for partition in partitions)))
    context.effects += [ReadTopicConfigs(name) for name in context.work.configs_to_read]
    context.work.configs_to_read.clear()
    context.work.topics_to_read.clear()
    context.work.states_to_read.clear()


def states_read(context: ControllerContext, event: StatesRead) -> Steps:
    """The result of `ReadStates`."""
    for partition in context.reads.pop(event.read_id, ()):
        resolve(context, partition, event.states[partition.key], has_node=partition.has_node)
        yield


def resolve(context: ControllerContext, partition: Partition, stored: Stored, *, has_node: bool) -> None:
    """Use a state that was read, unless a write is in flight or a newer one is known.

    Arguments:
        partition: of a topic that is not in deletion.
        stored: None = there is no state node.
        has_node: whether the node above the state exists.
    """
    if partition.state in WRITING:
        return
    if partition.state in WITHOUT_STATE or partition.state is PartitionState.NEW:
        partition.has_node = has_node
    if isinstance(stored, StoredState):
        if partition.state in WITHOUT_STATE or stored.version > partition.version:
            event = _use(context, partition, stored)
            step(context, partition, event)
    elif partition.state in WITHOUT_STATE:
        partition.current, partition.version = None, -1
        step(context, partition, PartitionEvent.MISSING if stored is None else PartitionEvent.UNREADABLE)
    elif stored is not None and partition.state is PartitionState.NEW:
        step(context, partition, PartitionEvent.UNREADABLE)


def revise(context: ControllerContext, partition: Partition, stored: Stored) -> None:
    """Use the `stored` state of a `partition` whose topic is being deleted; `context` is that of the controller."""
    if isinstance(stored, StoredState):
        _use(context, partition, stored)


def _use(context: ControllerContext, partition: Partition, stored: StoredState) -> PartitionEvent:
    """Replace the current state. The event that follows says whether its leader is online.

    An in-sync replica with another registration than that of the state has restarted while no controller noticed: for
    example, together with the former controller. Of eligible replicas only those count that have lost records.
    """
    state = stored.state
    if state.controller_epoch > context.settings.epoch:
        context.moved = f"{partition.key} has a state of the later controller epoch {state.controller_epoch}"
    partition.lossy |= {broker for broker in (*state.isr, *state.eligible) if _has_lost(context, broker, state)}
    partition.restarted |= {broker for broker in state.isr if _has_restarted(context, broker, stored)}
    partition.restarted |= partition.lossy
    partition.current, partition.version = state, stored.version
    return PartitionEvent.LED if context.leader_online(partition) else PartitionEvent.LEADERLESS


def _has_lost(context: ControllerContext, broker_id: int, state: LeaderAndIsr) -> bool:
    """Whether a replica is alive, and has lost records since it was complete."""
    broker = context.brokers.get(broker_id)
    return broker is not None and broker.has_lost(state.complete_epoch(broker_id))


def _has_restarted(context: ControllerContext, broker_id: int, stored: StoredState) -> bool:
    """Whether an in-sync replica is alive in another registration than that of a state.

    A state without registrations is of a Kafka controller, or has one replica: then those are compared that were alive
    when it was written, not those that its controller knew.
    """
    broker, state = context.brokers.get(broker_id), stored.state
    if broker is None:
        return False
    if state.isr_epochs:
        return broker.epoch != state.isr_epochs[state.isr.index(broker_id)]
    return broker.epoch > stored.zxid
