"""The actions of `table`: what the controller does after an event has changed the state of a partition.

An action returns the event that follows from it at once, or None.
"""

from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.known_topics import NO_BROKERS, Partition
from kafkalite.state.controller.partitions.leader_elections import first_state, next_state
from kafkalite.state.controller.partitions.requests import refuse_requests
from kafkalite.state.controller.states import PartitionEvent
from kafkalite.state.controller.unclean_election import ask_for_unclean_election


def do_nothing(context: ControllerContext, partition: Partition) -> None:
    """The event has no effect now; a pending write or read evaluates the replicas when it ends."""


def choose_first_state(context: ControllerContext, partition: Partition) -> PartitionEvent | None:
    """Choose the state of a new partition, if one of its replicas is online."""
    refuse_requests(context, partition)
    partition.wanted = first_state(context.candidates(partition), context.settings.epoch)
    return None if partition.wanted is None else PartitionEvent.STATE_CHOSEN


def elect(context: ControllerContext, partition: Partition) -> PartitionEvent | None:
    """Choose the next state, if the replicas that are online require another one; else evaluate requests."""
    assert partition.current is not None
    online, restarted = context.online(partition), partition.restarted
    partition.wanted = next_state(
        partition.current,
        online,
        context.settings.epoch,
        restarted=restarted,
        leaving=context.leaving,
        lossy=partition.lossy,
        failed=partition.offline,
        minimum=context.minimum(partition),
    )
    partition.lossy = NO_BROKERS
    partition.restarted = NO_BROKERS  # those that restart during the write are evaluated after it
    if partition.wanted is None:
        ask_for_unclean_election(context, partition)
    if partition.wanted is not None:
        return PartitionEvent.STATE_CHOSEN
    return PartitionEvent.REQUESTED if context.requests.waits(partition) else None


def elect_or_announce(context: ControllerContext, partition: Partition) -> PartitionEvent | None:
    """Elect as `elect` does; without an election the brokers learn which replicas are offline now."""
    event = elect(context, partition)
    if event is not PartitionEvent.STATE_CHOSEN:
        context.change_metadata(partition.key)
    return event


def write_state(context: ControllerContext, partition: Partition) -> None:
    """Write the chosen state with the other ones of this event."""
    context.work.chosen.append(partition)


def read_state(context: ControllerContext, partition: Partition) -> None:
    """Read the state; for a new partition also which of its nodes exist."""
    if partition.current is None:
        context.work.topics_to_read[partition.topic.name] = None
    else:
        context.work.states_to_read.append(partition)


def announce_new(context: ControllerContext, partition: Partition) -> PartitionEvent | None:
    """Send a new partition to the brokers; its replicas may have changed during the write."""
    context.announce(partition, is_new=True)
    return elect(context, partition)


def announce_isr(context: ControllerContext, partition: Partition) -> PartitionEvent | None:
    """Send the state as metadata only: the leader has its response, and followers do not use the ISR."""
    context.change_metadata(partition.key)
    return elect(context, partition)


def announce(context: ControllerContext, partition: Partition) -> PartitionEvent | None:
    """Send the state to the brokers; the replicas may have changed meanwhile."""
    context.announce(partition)
    return elect(context, partition)
