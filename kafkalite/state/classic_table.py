"""The transitions of a classic group: one literal table, from which the documentation is drawn.

A pair of state and event that the table lacks cannot happen: requests are judged before they become events, so such a
pair is a bug and raises KeyError. `action` names the method of `classic_group.Group` that does the work once the group
is in its next state. An action may raise a further event.
Source: GroupMetadataManager.java and ClassicGroupState.java of Apache Kafka.
"""

from enum import Enum
from typing import NamedTuple

__all__ = ["TRANSITIONS", "Event", "Row", "State", "drawn"]


class State(Enum):
    """States by Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Enum):
    """What can happen to a group, in words."""

    MEMBER_ADDED = "a new member joins"
    MEMBER_UPDATED = "a member rejoins, with something new or as the leader"
    MEMBER_REPEATED = "a member rejoins with nothing new"
    STATIC_REPLACED = "a static member restarts under a new member id"
    PROTOCOL_CHANGED = "a static member restarts, and the vote on the protocol changes"
    MEMBERS_LEFT = "members leave"
    MEMBER_SILENT = "a member's session runs out"
    PENDING_GONE = "a member id that was given out is not used in time"
    OVERSIZED = "the group is larger than allowed when it is loaded"
    DELAY_EXTENDED = "the initial delay ends, but members came meanwhile"
    JOIN_TIME_OVER = "the initial delay or the rebalance timeout ends"
    ALL_JOINED = "all members that are left have joined"
    NOBODY_JOINED = "only static members are left, none has joined"
    LAST_LEFT = "no member is left"
    LEADER_SYNCED = "the leader brings the assignment"
    MEMBER_SYNCED = "another member asks for its assignment"
    SYNC_TIME_OVER = "members did not ask for their assignment in time"
    HEARTBEAT = "a member says that it is alive"
    DELETED = "the group is deleted"
    UPGRADED = "it becomes a consumer group, since a member of that protocol joins"
    DOWNGRADED = "it was a consumer group until now"


class Row(NamedTuple):
    """Where an event leads, and what is done there."""

    state: State
    action: str


_TO_REBALANCE = Row(State.PREPARING, "start_rebalance")
_HAND_OVER = Row(State.DEAD, "hand_over")
_GO_ON = Row(State.PREPARING, "complete_unless_initial")

TRANSITIONS: dict[tuple[State, Event], Row] = {
    (State.EMPTY, Event.MEMBER_ADDED): Row(State.PREPARING, "start_initial_rebalance"),
    (State.EMPTY, Event.MEMBERS_LEFT): Row(State.EMPTY, "stay"),
    (State.EMPTY, Event.PENDING_GONE): Row(State.EMPTY, "stay"),
    (State.EMPTY, Event.DELETED): Row(State.DEAD, "store_deletion"),
    (State.PREPARING, Event.MEMBER_ADDED): _GO_ON,
    (State.PREPARING, Event.MEMBER_UPDATED): _GO_ON,
    (State.PREPARING, Event.STATIC_REPLACED): _GO_ON,
    (State.PREPARING, Event.MEMBERS_LEFT): _GO_ON,
    (State.PREPARING, Event.MEMBER_SILENT): Row(State.PREPARING, "complete_if_all_joined"),
    (State.PREPARING, Event.PENDING_GONE): Row(State.PREPARING, "complete_if_all_joined"),
    (State.PREPARING, Event.DELAY_EXTENDED): Row(State.PREPARING, "extend_delay"),
    (State.PREPARING, Event.JOIN_TIME_OVER): Row(State.PREPARING, "complete_joins"),
    (State.PREPARING, Event.ALL_JOINED): Row(State.COMPLETING, "begin_generation"),
    (State.PREPARING, Event.NOBODY_JOINED): Row(State.PREPARING, "wait_again"),
    (State.PREPARING, Event.LAST_LEFT): Row(State.EMPTY, "store_empty"),
    (State.PREPARING, Event.LEADER_SYNCED): Row(State.PREPARING, "refuse_sync"),
    (State.PREPARING, Event.MEMBER_SYNCED): Row(State.PREPARING, "refuse_sync"),
    (State.PREPARING, Event.HEARTBEAT): Row(State.PREPARING, "ask_to_rejoin"),
    (State.PREPARING, Event.UPGRADED): _HAND_OVER,
    (State.COMPLETING, Event.MEMBER_ADDED): _TO_REBALANCE,
    (State.COMPLETING, Event.MEMBER_UPDATED): _TO_REBALANCE,
    (State.COMPLETING, Event.MEMBER_REPEATED): Row(State.COMPLETING, "answer_joined"),
    (State.COMPLETING, Event.STATIC_REPLACED): _TO_REBALANCE,
    (State.COMPLETING, Event.MEMBERS_LEFT): _TO_REBALANCE,
    (State.COMPLETING, Event.MEMBER_SILENT): _TO_REBALANCE,
    (State.COMPLETING, Event.PENDING_GONE): Row(State.COMPLETING, "stay"),
    (State.COMPLETING, Event.LEADER_SYNCED): Row(State.STABLE, "spread_assignment"),
    (State.COMPLETING, Event.MEMBER_SYNCED): Row(State.COMPLETING, "park_sync"),
    (State.COMPLETING, Event.SYNC_TIME_OVER): _TO_REBALANCE,
    (State.COMPLETING, Event.HEARTBEAT): Row(State.COMPLETING, "answer_alive"),
    (State.COMPLETING, Event.UPGRADED): _HAND_OVER,
    (State.STABLE, Event.MEMBER_ADDED): _TO_REBALANCE,
    (State.STABLE, Event.MEMBER_UPDATED): _TO_REBALANCE,
    (State.STABLE, Event.MEMBER_REPEATED): Row(State.STABLE, "answer_joined"),
    (State.STABLE, Event.STATIC_REPLACED): Row(State.STABLE, "store_replacement"),
    (State.STABLE, Event.PROTOCOL_CHANGED): _TO_REBALANCE,
    (State.STABLE, Event.MEMBERS_LEFT): _TO_REBALANCE,
    (State.STABLE, Event.MEMBER_SILENT): _TO_REBALANCE,
    (State.STABLE, Event.PENDING_GONE): Row(State.STABLE, "stay"),
    (State.STABLE, Event.OVERSIZED): _TO_REBALANCE,
    (State.STABLE, Event.LEADER_SYNCED): Row(State.STABLE, "answer_synced"),
    (State.STABLE, Event.MEMBER_SYNCED): Row(State.STABLE, "answer_synced"),
    (State.STABLE, Event.SYNC_TIME_OVER): _TO_REBALANCE,
    (State.STABLE, Event.HEARTBEAT): Row(State.STABLE, "answer_alive"),
    (State.STABLE, Event.UPGRADED): _HAND_OVER,
    (State.STABLE, Event.DOWNGRADED): _TO_REBALANCE,
}


def drawn() -> str:
    """The table in Markdown, one row per transition."""
    lines = ["| in | when | then | what is done |", "|---|---|---|---|"]
    for (state, event), row in TRANSITIONS.items():
        lines.append(f"| {state.value} | {event.value} | {row.state.value} | {row.action.replace('_', ' ')} |")
    return "\n".join(lines)
