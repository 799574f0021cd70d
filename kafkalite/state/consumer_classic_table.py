"""What a member of the classic protocol hears from a consumer group: one literal table, drawn into docs/groups.md.

How it stands follows from what its last join gave it (`consumer_reconciliation`). A pair that the table lacks cannot
happen. Source: GroupMetadataManager.java (classicGroupHeartbeatToConsumerGroup, throwIfRebalanceInProgress).
"""

from enum import Enum
from typing import NamedTuple

from kafkalite.state.consumer_reconciliation import MemberState
from kafkalite.state.consumer_state import ConsumerGroup

__all__ = ["TRANSITIONS", "Ask", "Row", "Standing", "drawn", "standing"]


class Standing(Enum):
    """How a member stands to its target. The value is the sentence for the documentation."""

    TO_REVOKE = "it is to give partitions up"
    BEHIND = "there is a new target assignment"
    FREED = "what it waits for has become free"
    AWAITING = "others have still partitions that are to be its own"
    SETTLED = "it owns what it is to own"


class Ask(Enum):
    """What it does."""

    HEARTBEAT = "says that it is alive"
    SYNC = "asks for its assignment"


class Row(NamedTuple):
    """What is done: the name of a method of `consumer_classic.ClassicMembers`."""

    action: str


_REJOIN, _ALIVE, _ASSIGN = Row("ask_to_rejoin"), Row("answer_alive"), Row("answer_assignment")

TRANSITIONS: dict[tuple[Standing, Ask], Row] = {
    (Standing.TO_REVOKE, Ask.HEARTBEAT): _REJOIN,
    (Standing.BEHIND, Ask.HEARTBEAT): _REJOIN,
    (Standing.FREED, Ask.HEARTBEAT): _REJOIN,
    (Standing.AWAITING, Ask.HEARTBEAT): _ALIVE,
    (Standing.SETTLED, Ask.HEARTBEAT): _ALIVE,
    (Standing.TO_REVOKE, Ask.SYNC): _ASSIGN,
    (Standing.BEHIND, Ask.SYNC): _REJOIN,
    (Standing.FREED, Ask.SYNC): _ASSIGN,
    (Standing.AWAITING, Ask.SYNC): _ASSIGN,
    (Standing.SETTLED, Ask.SYNC): _ASSIGN,
}


def standing(group: ConsumerGroup, member_id: str) -> Standing:
    """Answer how the member stands. Who is to give something up does that first, even where it is behind, too."""
    current = group.current(member_id)
    if current.state == MemberState.UNREVOKED_PARTITIONS:
        return Standing.TO_REVOKE
    if current.member_epoch < group.assignment_epoch or current.state == MemberState.UNKNOWN:
        return Standing.BEHIND
    if current.state == MemberState.STABLE:
        return Standing.SETTLED
    return Standing.AWAITING if _is_held_up(group, member_id) else Standing.FREED


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
