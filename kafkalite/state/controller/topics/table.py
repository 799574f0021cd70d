"""The transition table of topics: for a state and an event, the next state and the action.

README.md shows it. A missing pair is a bug and raises KeyError.
"""

from collections.abc import Callable
from typing import NamedTuple

from kafkalite.state.controller.context import UNKNOWN_TOPICS, ControllerContext
from kafkalite.state.controller.known_topics import Topic
from kafkalite.state.controller.states import TopicEvent, TopicState
from kafkalite.state.controller.steps import Steps, run_steps
from kafkalite.state.controller.topics import actions, deletion
from kafkalite.state.controller.topics.actions import Argument


class TopicTransition(NamedTuple):
    """A row of the table."""

    state: TopicState
    action: Callable[[ControllerContext, Topic, Argument], TopicEvent | Steps | None]


Event, Row = TopicEvent, TopicTransition
UNREAD, WITHOUT_ID, INVALID, ACTIVE, DELETING, INELIGIBLE, REMOVING, REMOVED = TopicState

TRANSITIONS: dict[tuple[TopicState, TopicEvent], TopicTransition] = {
    (UNREAD, Event.READ): Row(ACTIVE, actions.add_partitions),
    (UNREAD, Event.READ_WITHOUT_ID): Row(WITHOUT_ID, actions.add_topic_id),
    (UNREAD, Event.UNREADABLE): Row(INVALID, actions.do_nothing),
    (UNREAD, Event.MISSING): Row(REMOVED, actions.withdraw_request),
    (UNREAD, Event.DELETION_REQUESTED): Row(UNREAD, actions.read),
    (WITHOUT_ID, Event.READ): Row(ACTIVE, actions.add_partitions),
    (WITHOUT_ID, Event.READ_WITHOUT_ID): Row(WITHOUT_ID, actions.add_topic_id),
    (WITHOUT_ID, Event.UNREADABLE): Row(INVALID, actions.do_nothing),
    (WITHOUT_ID, Event.MISSING): Row(REMOVED, actions.withdraw_request),
    (WITHOUT_ID, Event.DELETION_REQUESTED): Row(WITHOUT_ID, actions.do_nothing),
    (WITHOUT_ID, Event.WRITTEN): Row(UNREAD, actions.read),
    (WITHOUT_ID, Event.WRITE_FAILED): Row(UNREAD, actions.read),
    (INVALID, Event.READ): Row(ACTIVE, actions.add_partitions),
    (INVALID, Event.READ_WITHOUT_ID): Row(WITHOUT_ID, actions.add_topic_id),
    (INVALID, Event.UNREADABLE): Row(INVALID, actions.do_nothing),
    (INVALID, Event.MISSING): Row(REMOVED, actions.withdraw_request),
    (INVALID, Event.DELETION_REQUESTED): Row(INVALID, actions.refuse_deletion),
    (ACTIVE, Event.READ): Row(ACTIVE, actions.add_partitions),
    (ACTIVE, Event.READ_WITHOUT_ID): Row(ACTIVE, actions.restore_topic_id),
    (ACTIVE, Event.UNREADABLE): Row(ACTIVE, actions.do_nothing),
    (ACTIVE, Event.MISSING): Row(REMOVED, actions.lose),
    (ACTIVE, Event.WRITTEN): Row(ACTIVE, actions.read),
    (ACTIVE, Event.WRITE_FAILED): Row(ACTIVE, actions.read),
    (ACTIVE, Event.DELETION_REQUESTED): Row(ACTIVE, actions.read),
    (ACTIVE, Event.DELETION_CONFIRMED): Row(DELETING, deletion.begin),
    (DELETING, Event.READ): Row(DELETING, actions.do_nothing),
    (DELETING, Event.READ_WITHOUT_ID): Row(DELETING, actions.do_nothing),
    (DELETING, Event.UNREADABLE): Row(DELETING, actions.do_nothing),
    (DELETING, Event.MISSING): Row(REMOVED, actions.lose),
    (DELETING, Event.REPLICAS_AVAILABLE): Row(DELETING, deletion.stop_replicas),
    (DELETING, Event.REPLICAS_UNAVAILABLE): Row(DELETING, deletion.wait_for_broker),
    (DELETING, Event.REPLICAS_DELETED): Row(DELETING, deletion.check),
    (DELETING, Event.ONLY_UNAVAILABLE_LEFT): Row(INELIGIBLE, deletion.report_ineligible),
    (DELETING, Event.ALL_DELETED): Row(REMOVING, actions.read),
    (DELETING, Event.DELETION_WITHDRAWN): Row(REMOVED, deletion.cancel),
    (INELIGIBLE, Event.READ): Row(INELIGIBLE, actions.do_nothing),
    (INELIGIBLE, Event.READ_WITHOUT_ID): Row(INELIGIBLE, actions.do_nothing),
    (INELIGIBLE, Event.UNREADABLE): Row(INELIGIBLE, actions.do_nothing),
    (INELIGIBLE, Event.MISSING): Row(REMOVED, actions.lose),
    (INELIGIBLE, Event.REPLICAS_AVAILABLE): Row(DELETING, deletion.stop_replicas),
    (INELIGIBLE, Event.REPLICAS_UNAVAILABLE): Row(INELIGIBLE, actions.do_nothing),
    (INELIGIBLE, Event.DELETION_WITHDRAWN): Row(REMOVED, deletion.cancel),
    (REMOVING, Event.READ): Row(REMOVING, deletion.delete_nodes),
    (REMOVING, Event.READ_WITHOUT_ID): Row(REMOVING, deletion.delete_nodes),
    (REMOVING, Event.UNREADABLE): Row(REMOVING, actions.refuse_deletion),
    (REMOVING, Event.MISSING): Row(REMOVED, actions.forget),
    (REMOVING, Event.PART_WRITTEN): Row(REMOVING, deletion.delete_next_nodes),
    (REMOVING, Event.WRITTEN): Row(REMOVED, deletion.finish),
    (REMOVING, Event.WRITE_FAILED): Row(REMOVING, actions.read),
    (REMOVING, Event.DELETION_WITHDRAWN): Row(REMOVED, deletion.cancel),
}


def step(context: ControllerContext, topic: Topic, event: TopicEvent | None, argument: Argument = None) -> Steps:
    """Change the state of a topic, with the events that follow at once; all have the same argument."""
    context.work.evaluated = True
    while event is not None:
        row = TRANSITIONS[topic.state, event]
        topic.state = row.state
        event = yield from run_steps(row.action(context, topic, argument))
    if topic.state in UNKNOWN_TOPICS:
        context.unknown.add(topic.name)
    elif context.topics.get(topic.name) is topic or topic.name not in context.topics:
        context.unknown.discard(topic.name)
