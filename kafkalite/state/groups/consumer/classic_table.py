"""What a member of the classic protocol hears from a consumer group: one literal table, drawn into docs/groups.md.

How it stands follows from what its last join gave it (`groups/consumer/reconciliation`). A pair that the table lacks
cannot happen. Source: GroupMetadataManager.java (classicGroupHeartbeatToConsumerGroup, throwIfRebalanceInProgress).
"""

from enum import Enum
from typing import NamedTuple

from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.reconciliation import MemberState

__all__ = ["TRANSITIONS", "ClassicMemberAction", "ClassicMemberRequest", "ClassicMemberState", "drawn", "standing"]


class ClassicMemberState(Enum):
    """How a member stands to its target. The value is the sentence for the documentation."""

    TO_REVOKE = "it is to give partitions up"
    BEHIND = "there is a new target assignment"
    FREED = "what it waits for has become free"
    AWAITING = "other members still own partitions of its target"
    STABLE = "it owns what it is to own"


class ClassicMemberRequest(Enum):
    """What it does."""

    HEARTBEAT = "says that it is alive"
    SYNC = "asks for its assignment"


class ClassicMemberAction(NamedTuple):
    """What is done: the name of a method of `groups/consumer/classic_members.ClassicMembers`."""

    action: str


_REJOIN, _ALIVE, _ASSIGN = (
    ClassicMemberAction("ask_to_rejoin"),
    ClassicMemberAction("answer_alive"),
    ClassicMemberAction("answer_assignment"),
)

TRANSITIONS: dict[tuple[ClassicMemberState, ClassicMemberRequest], ClassicMemberAction] = {
    (ClassicMemberState.TO_REVOKE, ClassicMemberRequest.HEARTBEAT): _REJOIN,
    (ClassicMemberState.BEHIND, ClassicMemberRequest.HEARTBEAT): _REJOIN,
    (ClassicMemberState.FREED, ClassicMemberRequest.HEARTBEAT): _REJOIN,
    (ClassicMemberState.AWAITING, ClassicMemberRequest.HEARTBEAT): _ALIVE,
    (ClassicMemberState.STABLE, ClassicMemberRequest.HEARTBEAT): _ALIVE,
    (ClassicMemberState.TO_REVOKE, ClassicMemberRequest.SYNC): _ASSIGN,
    (ClassicMemberState.BEHIND, ClassicMemberRequest.SYNC): _REJOIN,
    (ClassicMemberState.FREED, ClassicMemberRequest.SYNC): _ASSIGN,
    (ClassicMemberState.AWAITING, ClassicMemberRequest.SYNC): _ASSIGN,
    (ClassicMemberState.STABLE, ClassicMemberRequest.SYNC): _ASSIGN,
}


def standing(group: ConsumerGroup, member_id: str) -> ClassicMemberState:
    """Answer how the member stands. Who is to give something up does that first, even where it is behind, too."""
    current = group.current(member_id)
    if current.state == MemberState.UNREVOKED_PARTITIONS:
        return ClassicMemberState.TO_REVOKE
    if current.member_epoch < group.assignment_epoch or current.state == MemberState.UNKNOWN:
        return ClassicMemberState.BEHIND
    if current.state == MemberState.STABLE:
        return ClassicMemberState.STABLE
    return ClassicMemberState.AWAITING if _is_held_up(group, member_id) else ClassicMemberState.FREED


def _is_held_up(group: ConsumerGroup, member_id: str) -> bool:
    return any(
        group.owners.get((topic_id, partition), member_id) != member_id
        for topic_id, partitions in group.targets.get(member_id, {}).items()
        for partition in partitions
    )


def drawn() -> str:
    """The table as Markdown."""
    lines = ["| a classic member | while | what is done |", "|---|---|---|"]
    for (how, ask), row in TRANSITIONS.items():
        lines.append(f"| {ask.value} | {how.value} | {row.action.replace('_', ' ')} |")
    return "\n".join(lines)
