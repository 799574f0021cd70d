"""Requests and results of classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup (keys 11-14) without versions.

`member_id` is "" for a member that has none yet; timeouts are in ms; an `error` is a Kafka error code, 0 = none.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode

Protocols = tuple[tuple[str, bytes], ...]  # name and metadata, in order of preference


class Join(NamedTuple):
    """A JoinGroup request.

    Arguments:
        fresh_id: a random UUID, part of the id of a new member.
        protocols: name and metadata, in order of preference.
        member_id_required: a new dynamic member receives an id and joins again with it (version 4 and later).
        can_skip_assignment: the sender supports `Joined.skip_assignment` (version 9 and later).
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
    """A member as the leader receives it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The result of a join. Only the leader receives `members`."""

    error: int = 0
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class Sync(NamedTuple):
    """A SyncGroup request. The leader sends `assignments` by member id. Before version 5 no protocol is named."""

    group: str
    member_id: str
    generation: int
    assignments: Mapping[str, bytes]
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None


class Synced(NamedTuple):
    """The result of a sync: the member's part of the assignment."""

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
    """A result that consists of an error code."""

    error: int = 0


class LeaveOf(NamedTuple):
    """One member that leaves. An administrator removes a member by its instance id, without a member id."""

    member_id: str
    group_instance_id: str | None = None


class Leave(NamedTuple):
    """A LeaveGroup request."""

    group: str
    members: tuple[LeaveOf, ...]


class LeftMember(NamedTuple):
    """The result for one member."""

    member_id: str
    group_instance_id: str | None
    error: int


class Left(NamedTuple):
    """The result of a leave; `members` in the order of the request."""

    error: int = 0
    members: tuple[LeftMember, ...] = ()


def unknown_group_error(group: str) -> int:
    """The error if the group of a member does not exist: UNKNOWN_MEMBER_ID, or INVALID_GROUP_ID for an empty name."""
    return KafkaErrorCode.UNKNOWN_MEMBER_ID if group else KafkaErrorCode.INVALID_GROUP_ID


def leave_unknown_group(request: Leave) -> Left:
    """The result of a leave if the group does not exist."""
    if not request.group:
        return Left(KafkaErrorCode.INVALID_GROUP_ID)
    return Left(members=tuple(LeftMember(*one, KafkaErrorCode.UNKNOWN_MEMBER_ID) for one in request.members))


def fresh_member_id(request: Join) -> str:
    """The id of a member that joins without one: client or instance id, and a UUID."""
    named_by = request.client_id if request.group_instance_id is None else request.group_instance_id
    return f"{named_by}-{request.fresh_id}"


def distinct_protocols(protocols: Protocols) -> Protocols:
    """The protocols of a join without duplicates; the first of each name is kept."""
    kept: dict[str, bytes] = {}
    for name, metadata in protocols:
        kept.setdefault(name, metadata)
    return tuple(kept.items())
