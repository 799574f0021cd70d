"""The transitions of a registered group: one literal table, from which the documentation is drawn.

A pair of state and event that the table lacks cannot happen: requests are judged before they become events, so such a
pair is a bug and raises KeyError. `action` names the method of `registered_group.Group` that does the work once the
group is in its next state. An action may raise a further event.
"""

from enum import Enum
from typing import NamedTuple

__all__ = ["TRANSITIONS", "Event", "Row", "State", "drawn"]


class State(Enum):
    """States, by Kafka's names where clients see them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Enum):
    """What can happen to a group, in words."""

    DEFINED = "the group is defined"
    REGISTERED = "a consumer registers that is new, or says something new, or is waited for"
    REPEATED = "a member registers again, with nothing new"
    CLAIMED = "a consumer registers for claimed partitions alone"
    GONE = "a member leaves, or is silent for too long"
    CLAIMS_GONE = "a member that reads claimed partitions alone leaves, or is silent for too long"
    LAST_GONE = "no member is left"
    LAST_GONE_EPHEMERAL = "no member is left, and the group is ephemeral"
    TOPICS_CHANGED = "topics came, went or grew, or a pattern has been resolved"
    ALL_REGISTERED = "all that are assigned something have registered"
    TIME_OVER = "the longest rebalance timeout ends"
    ALIVE = "a member says that it is alive"
    BEHIND = "a member says that it is alive, but has to register"
    REWOUND = "partitions are rewound"
    DELETED = "the group is deleted"


class Row(NamedTuple):
    """Where an event leads, and what is done there."""

    state: State
    action: str


_TO_BARRIER = Row(State.PREPARING, "wait_for_registrations")
_GO_ON = Row(State.PREPARING, "begin_if_all_registered")

TRANSITIONS: dict[tuple[State, Event], Row] = {
    (State.EMPTY, Event.DEFINED): Row(State.EMPTY, "store_definition"),
    (State.EMPTY, Event.REGISTERED): _TO_BARRIER,
    (State.EMPTY, Event.CLAIMED): Row(State.STABLE, "grant_claims"),
    (State.EMPTY, Event.TOPICS_CHANGED): Row(State.EMPTY, "stay"),
    (State.EMPTY, Event.REWOUND): Row(State.EMPTY, "store_marks"),
    (State.EMPTY, Event.DELETED): Row(State.DEAD, "store_deletion"),
    (State.PREPARING, Event.REGISTERED): _GO_ON,
    (State.PREPARING, Event.REPEATED): Row(State.PREPARING, "answer_registered"),
    (State.PREPARING, Event.CLAIMED): Row(State.PREPARING, "grant_claims"),
    (State.PREPARING, Event.GONE): _GO_ON,
    (State.PREPARING, Event.CLAIMS_GONE): Row(State.PREPARING, "release_claims"),
    (State.PREPARING, Event.LAST_GONE): Row(State.EMPTY, "store_empty"),
    (State.PREPARING, Event.LAST_GONE_EPHEMERAL): Row(State.DEAD, "store_deletion"),
    (State.PREPARING, Event.TOPICS_CHANGED): _GO_ON,
    (State.PREPARING, Event.ALL_REGISTERED): Row(State.STABLE, "begin_generation"),
    (State.PREPARING, Event.TIME_OVER): Row(State.PREPARING, "go_on_without_the_late"),
    (State.PREPARING, Event.ALIVE): Row(State.PREPARING, "answer_alive"),
    (State.PREPARING, Event.BEHIND): Row(State.PREPARING, "ask_to_register"),
    (State.PREPARING, Event.REWOUND): Row(State.PREPARING, "store_marks"),
    (State.STABLE, Event.REGISTERED): _TO_BARRIER,
    (State.STABLE, Event.REPEATED): Row(State.STABLE, "answer_registered"),
    (State.STABLE, Event.CLAIMED): Row(State.STABLE, "grant_claims"),
    (State.STABLE, Event.GONE): _TO_BARRIER,
    (State.STABLE, Event.CLAIMS_GONE): Row(State.STABLE, "release_claims"),
    (State.STABLE, Event.LAST_GONE): Row(State.EMPTY, "store_empty"),
    (State.STABLE, Event.LAST_GONE_EPHEMERAL): Row(State.DEAD, "store_deletion"),
    (State.STABLE, Event.TOPICS_CHANGED): _TO_BARRIER,
    (State.STABLE, Event.ALIVE): Row(State.STABLE, "answer_alive"),
    (State.STABLE, Event.BEHIND): Row(State.STABLE, "ask_to_register"),
    (State.STABLE, Event.REWOUND): Row(State.STABLE, "store_marks"),
}


def drawn() -> str:
    """The table in Markdown, one row per transition."""
    lines = ["| in | when | then | what is done |", "|---|---|---|---|"]
    for (state, event), row in TRANSITIONS.items():
        lines.append(f"| {state.value} | {event.value} | {row.state.value} | {row.action.replace('_', ' ')} |")
    return "\n".join(lines)
