"""The transitions of a registered group: one literal table, from which the documentation is drawn.

A pair of state and event that the table lacks cannot happen: requests are judged before they become events, so such a
pair is a bug and raises KeyError. `action` names the method of `groups/registered/group.Group` that does the work once
the group is in its next state. An action may raise a further event.
"""

from enum import Enum
from typing import NamedTuple

__all__ = ["TRANSITIONS", "RegisteredEvent", "RegisteredState", "RegisteredTransition", "drawn"]


class RegisteredState(Enum):
    """States, by Kafka's names where clients see them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class RegisteredEvent(Enum):
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


class RegisteredTransition(NamedTuple):
    """Where an event leads, and what is done there."""

    state: RegisteredState
    action: str


_TO_BARRIER = RegisteredTransition(RegisteredState.PREPARING, "wait_for_registrations")
_GO_ON = RegisteredTransition(RegisteredState.PREPARING, "begin_if_all_registered")

TRANSITIONS: dict[tuple[RegisteredState, RegisteredEvent], RegisteredTransition] = {
    (RegisteredState.EMPTY, RegisteredEvent.DEFINED): RegisteredTransition(RegisteredState.EMPTY, "store_definition"),
    (RegisteredState.EMPTY, RegisteredEvent.REGISTERED): _TO_BARRIER,
    (RegisteredState.EMPTY, RegisteredEvent.CLAIMED): RegisteredTransition(RegisteredState.STABLE, "grant_claims"),
    (RegisteredState.EMPTY, RegisteredEvent.TOPICS_CHANGED): RegisteredTransition(RegisteredState.EMPTY, "stay"),
    (RegisteredState.EMPTY, RegisteredEvent.REWOUND): RegisteredTransition(RegisteredState.EMPTY, "store_marks"),
    (RegisteredState.EMPTY, RegisteredEvent.DELETED): RegisteredTransition(RegisteredState.DEAD, "store_deletion"),
    (RegisteredState.PREPARING, RegisteredEvent.REGISTERED): _GO_ON,
    (RegisteredState.PREPARING, RegisteredEvent.REPEATED): RegisteredTransition(
        RegisteredState.PREPARING, "answer_registered"
    ),
    (RegisteredState.PREPARING, RegisteredEvent.CLAIMED): RegisteredTransition(
        RegisteredState.PREPARING, "grant_claims"
    ),
    (RegisteredState.PREPARING, RegisteredEvent.GONE): _GO_ON,
    (RegisteredState.PREPARING, RegisteredEvent.CLAIMS_GONE): RegisteredTransition(
        RegisteredState.PREPARING, "release_claims"
    ),
    (RegisteredState.PREPARING, RegisteredEvent.LAST_GONE): RegisteredTransition(RegisteredState.EMPTY, "store_empty"),
    (RegisteredState.PREPARING, RegisteredEvent.LAST_GONE_EPHEMERAL): RegisteredTransition(
        RegisteredState.DEAD, "store_deletion"
    ),
    (RegisteredState.PREPARING, RegisteredEvent.TOPICS_CHANGED): _GO_ON,
    (RegisteredState.PREPARING, RegisteredEvent.ALL_REGISTERED): RegisteredTransition(
        RegisteredState.STABLE, "begin_generation"
    ),
    (RegisteredState.PREPARING, RegisteredEvent.TIME_OVER): RegisteredTransition(
        RegisteredState.PREPARING, "go_on_without_the_late"
    ),
    (RegisteredState.PREPARING, RegisteredEvent.ALIVE): RegisteredTransition(RegisteredState.PREPARING, "answer_alive"),
    (RegisteredState.PREPARING, RegisteredEvent.BEHIND): RegisteredTransition(
        RegisteredState.PREPARING, "ask_to_register"
    ),
    (RegisteredState.PREPARING, RegisteredEvent.REWOUND): RegisteredTransition(
        RegisteredState.PREPARING, "store_marks"
    ),
    (RegisteredState.STABLE, RegisteredEvent.REGISTERED): _TO_BARRIER,
    (RegisteredState.STABLE, RegisteredEvent.REPEATED): RegisteredTransition(
        RegisteredState.STABLE, "answer_registered"
    ),
    (RegisteredState.STABLE, RegisteredEvent.CLAIMED): RegisteredTransition(RegisteredState.STABLE, "grant_claims"),
    (RegisteredState.STABLE, RegisteredEvent.GONE): _TO_BARRIER,
    (RegisteredState.STABLE, RegisteredEvent.CLAIMS_GONE): RegisteredTransition(
        RegisteredState.STABLE, "release_claims"
    ),
    (RegisteredState.STABLE, RegisteredEvent.LAST_GONE): RegisteredTransition(RegisteredState.EMPTY, "store_empty"),
    (RegisteredState.STABLE, RegisteredEvent.LAST_GONE_EPHEMERAL): RegisteredTransition(
        RegisteredState.DEAD, "store_deletion"
    ),
    (RegisteredState.STABLE, RegisteredEvent.TOPICS_CHANGED): _TO_BARRIER,
    (RegisteredState.STABLE, RegisteredEvent.ALIVE): RegisteredTransition(RegisteredState.STABLE, "answer_alive"),
    (RegisteredState.STABLE, RegisteredEvent.BEHIND): RegisteredTransition(RegisteredState.STABLE, "ask_to_register"),
    (RegisteredState.STABLE, RegisteredEvent.REWOUND): RegisteredTransition(RegisteredState.STABLE, "store_marks"),
}


def drawn() -> str:
    """The table in Markdown, one row per transition."""
    lines = ["| in | when | then | what is done |", "|---|---|---|---|"]
    for (state, event), row in TRANSITIONS.items():
        lines.append(f"| {state.value} | {event.value} | {row.state.value} | {row.action.replace('_', ' ')} |")
    return "\n".join(lines)
