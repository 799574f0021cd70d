"""Responses of a consumer group to members of the classic protocol, as a table; docs/groups.md shows it.

The state of a member follows from what its last join gave it (`groups/consumer/reconciliation`).
Source: GroupMetadataManager.java (classicGroupHeartbeatToConsumerGroup, throwIfRebalanceInProgress).
"""

from collections.abc import Callable
from enum import Enum

from kafkalite.state.groups.consumer.classic_responses import (
    ClassicMemberRequest,
    ClassicRequest,
    acknowledge_heartbeat,
    request_rejoin,
    return_assignment,
)
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.reconciliation import MemberState


class ClassicMemberState(Enum):
    """How far a member is from its target assignment; the values are the descriptions in docs/groups.md."""

    TO_REVOKE = "it must revoke partitions"
    BEHIND = "there is a new target assignment"
    FREED = "partitions that it waits for are free"
    WAITING = "other members still own partitions of its target"
    STABLE = "it owns its target assignment"


State, Request = ClassicMemberState, ClassicMemberRequest

RESPONSES: dict[tuple[ClassicMemberState, ClassicMemberRequest], Callable[[ClassicRequest], None]] = {
    (State.TO_REVOKE, Request.HEARTBEAT): request_rejoin,
    (State.BEHIND, Request.HEARTBEAT): request_rejoin,
    (State.FREED, Request.HEARTBEAT): request_rejoin,
    (State.WAITING, Request.HEARTBEAT): acknowledge_heartbeat,
    (State.STABLE, Request.HEARTBEAT): acknowledge_heartbeat,
    (State.TO_REVOKE, Request.SYNC): return_assignment,
    (State.BEHIND, Request.SYNC): request_rejoin,
    (State.FREED, Request.SYNC): return_assignment,
    (State.WAITING, Request.SYNC): return_assignment,
    (State.STABLE, Request.SYNC): return_assignment,
}


def serve(request: ClassicRequest) -> None:
    """Respond to a request by the table."""
    RESPONSES[member_state(request.group, request.member.member_id), request.request](request)


def member_state(group: ConsumerGroup, member_id: str) -> ClassicMemberState:
    """The state of a member. It revokes partitions first, even if there is also a new target assignment."""
    current = group.current(member_id)
    if current.state == MemberState.UNREVOKED_PARTITIONS:
        return ClassicMemberState.TO_REVOKE
    if current.member_epoch < group.assignment_epoch or current.state == MemberState.UNKNOWN:
        return ClassicMemberState.BEHIND
    if current.state == MemberState.STABLE:
        return ClassicMemberState.STABLE
    return ClassicMemberState.WAITING if _waits_for_others(group, member_id) else ClassicMemberState.FREED


def _waits_for_others(group: ConsumerGroup, member_id: str) -> bool:
    return any(
        group.owners.get((topic_id, partition), member_id) != member_id
        for topic_id, partitions in group.targets.get(member_id, {}).items()
        for partition in partitions
    )
