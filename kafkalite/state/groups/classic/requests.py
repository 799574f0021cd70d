"""What a classic group is asked, and what it answers: the requests of keys 11-14 without their versions.

`member_id` is "" where a member has none yet; timeouts are ms; an `error` is a Kafka error code, 0 = none.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode

__all__ = [
    "ErrorOnly",
    "Heartbeat",
    "Join",
    "Joined",
    "JoinedMember",
    "Leave",
    "LeaveOf",
    "Left",
    "LeftMember",
    "Sync",
    "Synced",
    "fresh_member_id",
    "left_nobody",
    "unknown_in",
    "without_repeats",
]

Protocols = tuple[tuple[str, bytes], ...]  # name and metadata, the dearest first


class Join(NamedTuple):
    """A JoinGroup request.

    Arguments:
        fresh_id: text that nobody else has (a random UUID), from which the id of a new member is made.
        member_id_required: a new dynamic member must first be told its id and join with it (version 4 and later).
        can_skip_assignment: a leader understands that it need not assign (version 9 and later).
    """

    group: str
    member_id: str
    fresh_id: str
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str
    client_host: str
    group_instance_id: str | None = None
    member_id_required: bool = True
    can_skip_assignment: bool = True


class JoinedMember(NamedTuple):
    """What the leader is told of a member."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The answer to a join. `members` is for the leader only."""

    error: int = 0
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class Sync(NamedTuple):
    """A SyncGroup request. `assignments` by member id is the leader's; types None = not said (before version 5)."""

    group: str
    member_id: str
    generation: int
    assignments: Mapping[str, bytes]
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None


class Synced(NamedTuple):
    """The answer to a sync: the member's part of the leader's assignment."""

    error: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Heartbeat(NamedTuple):
    """A Heartbeat request."""

    group: str
    member_id: str
    generation: int
    group_instance_id: str | None = None


class ErrorOnly(NamedTuple):
    """An answer that is an error code and no more."""

    error: int = 0


class LeaveOf(NamedTuple):
    """One member that leaves, or that an administrator removes by its instance id (then without a member id)."""

    member_id: str
    group_instance_id: str | None = None


class Leave(NamedTuple):
    """A LeaveGroup request."""

    group: str
    members: tuple[LeaveOf, ...]


class LeftMember(NamedTuple):
    """What became of one member's leave."""

    member_id: str
    group_instance_id: str | None
    error: int


class Left(NamedTuple):
    """The answer to a leave: in the order of the request."""

    error: int = 0
    members: tuple[LeftMember, ...] = ()


def unknown_in(group: str) -> int:
    """What a member hears of a group that there is not: UNKNOWN_MEMBER_ID, or INVALID_GROUP_ID for the empty name."""
    return KafkaErrorCode.UNKNOWN_MEMBER_ID if group else KafkaErrorCode.INVALID_GROUP_ID


def left_nobody(request: Leave) -> Left:
    """The answer where there is no such group."""
    if not request.group:
        return Left(KafkaErrorCode.INVALID_GROUP_ID)
    return Left(members=tuple(LeftMember(*one, KafkaErrorCode.UNKNOWN_MEMBER_ID) for one in request.members))


def fresh_member_id(request: Join) -> str:
    """The id of a member that joins without one."""
    named_by = request.client_id if request.group_instance_id is None else request.group_instance_id
    return f"{named_by}-{request.fresh_id}"


def without_repeats(protocols: Protocols) -> Protocols:
    """The protocols of a join, each once; what comes first counts."""
    kept: dict[str, bytes] = {}
    for name, metadata in protocols:
        kept.setdefault(name, metadata)
    return tuple(kept.items())
