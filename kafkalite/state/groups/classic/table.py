"""The transitions of a classic group: one literal table, from which the documentation is drawn.

A pair of state and event that the table lacks cannot happen: requests are judged before they become events, so such a
pair is a bug and raises KeyError. `action` names the method of `groups/classic/group.Group` that does the work once the
group is in its next state. An action may raise a further event.
Source: GroupMetadataManager.java and ClassicGroupState.java of Apache Kafka.
"""

from enum import Enum
from typing import NamedTuple

__all__ = ["TRANSITIONS", "ClassicEvent", "ClassicState", "ClassicTransition", "drawn"]


class ClassicState(Enum):
    """States by Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicEvent(Enum):
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


class ClassicTransition(NamedTuple):
    """Where an event leads, and what is done there."""

    state: ClassicState
    action: str


_TO_REBALANCE = ClassicTransition(ClassicState.PREPARING, "start_rebalance")
_HAND_OVER = ClassicTransition(ClassicState.DEAD, "hand_over")
_GO_ON = ClassicTransition(ClassicState.PREPARING, "complete_unless_initial")

TRANSITIONS: dict[tuple[ClassicState, ClassicEvent], ClassicTransition] = {
    (ClassicState.EMPTY, ClassicEvent.MEMBER_ADDED): ClassicTransition(
        ClassicState.PREPARING, "start_initial_rebalance"
    ),
    (ClassicState.EMPTY, ClassicEvent.MEMBERS_LEFT): ClassicTransition(ClassicState.EMPTY, "stay"),
    (ClassicState.EMPTY, ClassicEvent.PENDING_GONE): ClassicTransition(ClassicState.EMPTY, "stay"),
    (ClassicState.EMPTY, ClassicEvent.DELETED): ClassicTransition(ClassicState.DEAD, "store_deletion"),
    (ClassicState.PREPARING, ClassicEvent.MEMBER_ADDED): _GO_ON,
    (ClassicState.PREPARING, ClassicEvent.MEMBER_UPDATED): _GO_ON,
    (ClassicState.PREPARING, ClassicEvent.STATIC_REPLACED): _GO_ON,
    (ClassicState.PREPARING, ClassicEvent.MEMBERS_LEFT): _GO_ON,
    (ClassicState.PREPARING, ClassicEvent.MEMBER_SILENT): ClassicTransition(
        ClassicState.PREPARING, "complete_if_all_joined"
    ),
    (ClassicState.PREPARING, ClassicEvent.PENDING_GONE): ClassicTransition(
        ClassicState.PREPARING, "complete_if_all_joined"
    ),
    (ClassicState.PREPARING, ClassicEvent.DELAY_EXTENDED): ClassicTransition(ClassicState.PREPARING, "extend_delay"),
    (ClassicState.PREPARING, ClassicEvent.JOIN_TIME_OVER): ClassicTransition(ClassicState.PREPARING, "complete_joins"),
    (ClassicState.PREPARING, ClassicEvent.ALL_JOINED): ClassicTransition(ClassicState.COMPLETING, "begin_generation"),
    (ClassicState.PREPARING, ClassicEvent.NOBODY_JOINED): ClassicTransition(ClassicState.PREPARING, "wait_again"),
    (ClassicState.PREPARING, ClassicEvent.LAST_LEFT): ClassicTransition(ClassicState.EMPTY, "store_empty"),
    (ClassicState.PREPARING, ClassicEvent.LEADER_SYNCED): ClassicTransition(ClassicState.PREPARING, "refuse_sync"),
    (ClassicState.PREPARING, ClassicEvent.MEMBER_SYNCED): ClassicTransition(ClassicState.PREPARING, "refuse_sync"),
    (ClassicState.PREPARING, ClassicEvent.HEARTBEAT): ClassicTransition(ClassicState.PREPARING, "ask_to_rejoin"),
    (ClassicState.PREPARING, ClassicEvent.UPGRADED): _HAND_OVER,
    (ClassicState.COMPLETING, ClassicEvent.MEMBER_ADDED): _TO_REBALANCE,
    (ClassicState.COMPLETING, ClassicEvent.MEMBER_UPDATED): _TO_REBALANCE,
    (ClassicState.COMPLETING, ClassicEvent.MEMBER_REPEATED): ClassicTransition(
        ClassicState.COMPLETING, "answer_joined"
    ),
    (ClassicState.COMPLETING, ClassicEvent.STATIC_REPLACED): _TO_REBALANCE,
    (ClassicState.COMPLETING, ClassicEvent.MEMBERS_LEFT): _TO_REBALANCE,
    (ClassicState.COMPLETING, ClassicEvent.MEMBER_SILENT): _TO_REBALANCE,
    (ClassicState.COMPLETING, ClassicEvent.PENDING_GONE): ClassicTransition(ClassicState.COMPLETING, "stay"),
    (ClassicState.COMPLETING, ClassicEvent.LEADER_SYNCED): ClassicTransition(ClassicState.STABLE, "spread_assignment"),
    (ClassicState.COMPLETING, ClassicEvent.MEMBER_SYNCED): ClassicTransition(ClassicState.COMPLETING, "park_sync"),
    (ClassicState.COMPLETING, ClassicEvent.SYNC_TIME_OVER): _TO_REBALANCE,
    (ClassicState.COMPLETING, ClassicEvent.HEARTBEAT): ClassicTransition(ClassicState.COMPLETING, "answer_alive"),
    (ClassicState.COMPLETING, ClassicEvent.UPGRADED): _HAND_OVER,
    (ClassicState.STABLE, ClassicEvent.MEMBER_ADDED): _TO_REBALANCE,
    (ClassicState.STABLE, ClassicEvent.MEMBER_UPDATED): _TO_REBALANCE,
    (ClassicState.STABLE, ClassicEvent.MEMBER_REPEATED): ClassicTransition(ClassicState.STABLE, "answer_joined"),
    (ClassicState.STABLE, ClassicEvent.STATIC_REPLACED): ClassicTransition(ClassicState.STABLE, "store_replacement"),
    (ClassicState.STABLE, ClassicEvent.PROTOCOL_CHANGED): _TO_REBALANCE,
    (ClassicState.STABLE, ClassicEvent.MEMBERS_LEFT): _TO_REBALANCE,
    (ClassicState.STABLE, ClassicEvent.MEMBER_SILENT): _TO_REBALANCE,
    (ClassicState.STABLE, ClassicEvent.PENDING_GONE): ClassicTransition(ClassicState.STABLE, "stay"),
    (ClassicState.STABLE, ClassicEvent.OVERSIZED): _TO_REBALANCE,
    (ClassicState.STABLE, ClassicEvent.LEADER_SYNCED): ClassicTransition(ClassicState.STABLE, "answer_synced"),
    (ClassicState.STABLE, ClassicEvent.MEMBER_SYNCED): ClassicTransition(ClassicState.STABLE, "answer_synced"),
    (ClassicState.STABLE, ClassicEvent.SYNC_TIME_OVER): _TO_REBALANCE,
    (ClassicState.STABLE, ClassicEvent.HEARTBEAT): ClassicTransition(ClassicState.STABLE, "answer_alive"),
    (ClassicState.STABLE, ClassicEvent.UPGRADED): _HAND_OVER,
    (ClassicState.STABLE, ClassicEvent.DOWNGRADED): _TO_REBALANCE,
}


def drawn() -> str:
    """The table in Markdown, one row per transition."""
    lines = ["| in | when | then | what is done |", "|---|---|---|---|"]
    for (state, event), row in TRANSITIONS.items():
        lines.append(f"| {state.value} | {event.value} | {row.state.value} | {row.action.replace('_', ' ')} |")
    return "\n".join(lines)
