"""The transition table of partitions: for a state and an event, the next state and the action.

README.md shows it. Events of deleted partitions are filtered before: a missing pair is a bug and raises KeyError.
"""

from collections.abc import Callable
from typing import NamedTuple

from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.known_topics import Partition
from kafkalite.state.controller.partitions import actions
from kafkalite.state.controller.partitions.requests import evaluate_requests, refuse_requests
from kafkalite.state.controller.states import PartitionEvent, PartitionState


class PartitionTransition(NamedTuple):
    """A row of the table."""

    state: PartitionState
    action: Callable[[ControllerContext, Partition], PartitionEvent | None]


Event, Row = PartitionEvent, PartitionTransition
NEW, CREATING, ONLINE, OFFLINE, ELECTING, READING, INVALID, DELETED = PartitionState

TRANSITIONS: dict[tuple[PartitionState, PartitionEvent], PartitionTransition] = {
    (NEW, Event.REPLICAS_CHANGED): Row(NEW, actions.choose_first_state),
    (NEW, Event.STATE_CHOSEN): Row(CREATING, actions.write_state),
    (NEW, Event.LEADERLESS): Row(OFFLINE, actions.announce),
    (NEW, Event.UNREADABLE): Row(INVALID, actions.do_nothing),
    (NEW, Event.REQUESTED): Row(NEW, refuse_requests),
    (NEW, Event.DELETED): Row(DELETED, refuse_requests),
    (CREATING, Event.REPLICAS_CHANGED): Row(CREATING, actions.do_nothing),
    (CREATING, Event.LED): Row(ONLINE, actions.announce_new),
    (CREATING, Event.LEADERLESS): Row(OFFLINE, actions.announce_new),
    (CREATING, Event.WRITE_FAILED): Row(READING, actions.read_state),
    (CREATING, Event.REQUESTED): Row(CREATING, actions.do_nothing),
    (CREATING, Event.DELETED): Row(DELETED, refuse_requests),
    (ONLINE, Event.REPLICAS_CHANGED): Row(ONLINE, actions.elect_or_announce),
    (ONLINE, Event.STATE_CHOSEN): Row(ELECTING, actions.write_state),
    (ONLINE, Event.LED): Row(ONLINE, actions.announce),
    (ONLINE, Event.LEADERLESS): Row(OFFLINE, actions.announce),
    (ONLINE, Event.REQUESTED): Row(ONLINE, evaluate_requests),
    (ONLINE, Event.DELETED): Row(DELETED, refuse_requests),
    (OFFLINE, Event.REPLICAS_CHANGED): Row(OFFLINE, actions.elect_or_announce),
    (OFFLINE, Event.STATE_CHOSEN): Row(ELECTING, actions.write_state),
    (OFFLINE, Event.LED): Row(ONLINE, actions.announce),
    (OFFLINE, Event.LEADERLESS): Row(OFFLINE, actions.announce),
    (OFFLINE, Event.REQUESTED): Row(OFFLINE, evaluate_requests),
    (OFFLINE, Event.DELETED): Row(DELETED, refuse_requests),
    (ELECTING, Event.REPLICAS_CHANGED): Row(ELECTING, actions.do_nothing),
    (ELECTING, Event.LED): Row(ONLINE, actions.announce),
    (ELECTING, Event.LEADERLESS): Row(OFFLINE, actions.announce),
    (ELECTING, Event.WRITE_FAILED): Row(READING, actions.read_state),
    (ELECTING, Event.ISR_WRITTEN): Row(ONLINE, actions.announce_isr),
    (ELECTING, Event.REQUESTED): Row(ELECTING, actions.do_nothing),
    (ELECTING, Event.DELETED): Row(DELETED, refuse_requests),
    (READING, Event.REPLICAS_CHANGED): Row(READING, actions.do_nothing),
    (READING, Event.LED): Row(ONLINE, actions.announce),
    (READING, Event.LEADERLESS): Row(OFFLINE, actions.announce),
    (READING, Event.MISSING): Row(NEW, actions.choose_first_state),
    (READING, Event.UNREADABLE): Row(INVALID, refuse_requests),
    (READING, Event.REQUESTED): Row(READING, actions.do_nothing),
    (READING, Event.DELETED): Row(DELETED, refuse_requests),
    (INVALID, Event.REPLICAS_CHANGED): Row(INVALID, actions.do_nothing),
    (INVALID, Event.LED): Row(ONLINE, actions.announce),
    (INVALID, Event.LEADERLESS): Row(OFFLINE, actions.announce),
    (INVALID, Event.MISSING): Row(NEW, actions.choose_first_state),
    (INVALID, Event.UNREADABLE): Row(INVALID, actions.do_nothing),
    (INVALID, Event.REQUESTED): Row(INVALID, refuse_requests),
    (INVALID, Event.DELETED): Row(DELETED, refuse_requests),
}


def step(context: ControllerContext, partition: Partition, event: PartitionEvent | None) -> None:
    """Change the state of `partition` by `event`, None = nothing happens, and by the events that follow at once.

    The actions get `context`, the memory of the controller.
    """
    context.work.evaluated = True
    while event is not None:
        row = TRANSITIONS[partition.state, event]
        partition.state = row.state
        event = row.action(context, partition)
