"""Groups of a scripted broker: classic groups with a barrier, and committed offsets.

Small on purpose: sessions do not expire, and a generation begins when every known member has joined, or when the test
removes those that are missing (`ScriptedGroup.remove`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkalite.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafkalite.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kafkalite.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kafkalite.protocol.schema import Request, Response

if TYPE_CHECKING:
    from tests.kit.scripted_broker import ScriptedCall

MEMBER_ID_HANDSHAKE = 4
TOPIC_IDS = 10
SEVERAL_GROUPS = 8


@dataclass(slots=True)
class ScriptedMember:
    """A member of a classic group, and its open JoinGroup or SyncGroup."""

    member_id: str
    instance_id: str | None
    protocols: list[tuple[str, bytes]]
    joining: ScriptedCall | None = None
    syncing: ScriptedCall | None = None


@dataclass(slots=True)
class ScriptedGroup:
    """A classic group."""

    name: str
    generation: int = 0
    leader: str = ""
    protocol: str = ""
    protocol_type: str = "consumer"
    rebalancing: bool = False
    members: dict[str, ScriptedMember] = field(default_factory=dict)
    assignments: dict[str, bytes] | None = None
    created: int = 0

    def remove(self, member_id: str) -> None:
        """Remove a member, as the end of its session does."""
        if self.members.pop(member_id, None) is not None:
            self.rebalance()
            self.complete_join()

    def rebalance(self) -> None:
        """Begin a rebalance: heartbeats and SyncGroups are answered with REBALANCE_IN_PROGRESS."""
        self.rebalancing = True
        for each in self.members.values():
            if each.syncing is not None:
                call, each.syncing = each.syncing, None
                call.answer(SyncGroupResponse(error_code=KafkaErrorCode.REBALANCE_IN_PROGRESS, assignment=b""))

    def complete_join(self) -> None:
        """Answer the JoinGroups if every member has joined."""
        members = list(self.members.values())
        if not members or not self.rebalancing or any(each.joining is None for each in members):
            return
        self.generation += 1
        self.rebalancing = False
        self.assignments = None
        if self.leader not in self.members:
            self.leader = members[0].member_id
        common = [name for name, _ in members[0].protocols if all(name in dict(m.protocols) for m in members)]
        self.protocol = common[0]
        for each in members:
            call, each.joining = each.joining, None
            assert call is not None
            call.answer(self._joined(each, call))

    def _joined(self, member: ScriptedMember, call: ScriptedCall) -> Response:
        entry = JoinGroupResponse.JoinGroupResponseMember
        listed = [
            entry(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=dict(each.protocols)[self.protocol],
            )
            for each in self.members.values()
            if member.member_id == self.leader
        ]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader,
            member_id=member.member_id,
            members=listed,
        )


def group_of(call: ScriptedCall, name: str) -> ScriptedGroup:
    """The group of a scripted broker, created on first use."""
    return call.cluster.groups.setdefault(name, ScriptedGroup(name))


def _not_coordinator(call: ScriptedCall, name: str) -> int:
    here = call.cluster.coordinators.get(name, call.cluster.coordinator) == call.node
    return KafkaErrorCode.NONE if here else KafkaErrorCode.NOT_COORDINATOR


def _checked(call: ScriptedCall, group: ScriptedGroup) -> int:
    """The error of a request that names a member and its generation."""
    if code := _not_coordinator(call, group.name):
        return code
    if call.request.member_id not in group.members:
        return KafkaErrorCode.UNKNOWN_MEMBER_ID
    if call.request.generation_id != group.generation:
        return KafkaErrorCode.ILLEGAL_GENERATION
    return KafkaErrorCode.NONE


def join_group(call: ScriptedCall) -> Response | None:
    """Wait for all members, then begin the next generation."""
    request = call.request
    group = group_of(call, request.group_id)

    def refused(code: int, member_id: str = "") -> Response:
        return JoinGroupResponse(error_code=code, leader="", member_id=member_id, members=[], protocol_name="")

    if code := _not_coordinator(call, group.name):
        return refused(code)
    if not call.apply:
        return refused(0, request.member_id)
    member_id = request.member_id
    if not member_id:
        group.created += 1
        member_id = f"{call.header.client_id}-{group.created}"
        if call.version >= MEMBER_ID_HANDSHAKE and request.group_instance_id is None:
            call.cluster.member_ids.add(member_id)
            return refused(KafkaErrorCode.MEMBER_ID_REQUIRED, member_id)
    elif member_id not in group.members and member_id not in call.cluster.member_ids:
        return refused(KafkaErrorCode.UNKNOWN_MEMBER_ID, member_id)
    if request.group_instance_id is not None:
        for each in list(group.members.values()):
            if each.instance_id == request.group_instance_id and each.member_id != member_id:
                del group.members[each.member_id]
    member = group.members.setdefault(member_id, ScriptedMember(member_id, request.group_instance_id, []))
    member.protocols = [(each.name, bytes(each.metadata)) for each in request.protocols]
    member.joining = call
    group.rebalance()
    group.complete_join()
    return None


def sync_group(call: ScriptedCall) -> Response | None:
    """Wait for the leader's assignment."""
    group = group_of(call, call.request.group_id)
    code = _checked(call, group) or (KafkaErrorCode.REBALANCE_IN_PROGRESS if group.rebalancing else 0)
    if code or not call.apply:
        return SyncGroupResponse(error_code=code, assignment=b"")
    member = group.members[call.request.member_id]
    member.syncing = call
    if member.member_id == group.leader:
        group.assignments = {each.member_id: bytes(each.assignment) for each in call.request.assignments}
    if group.assignments is not None:
        for each in group.members.values():
            if each.syncing is not None:
                waiting, each.syncing = each.syncing, None
                assigned = group.assignments.get(each.member_id, b"")
                waiting.answer(
                    SyncGroupResponse(
                        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=assigned
                    )
                )
    return None


def heartbeat(call: ScriptedCall) -> Response:
    """REBALANCE_IN_PROGRESS while members join."""
    group = group_of(call, call.request.group_id)
    code = _checked(call, group) or (KafkaErrorCode.REBALANCE_IN_PROGRESS if group.rebalancing else 0)
    return HeartbeatResponse(error_code=code)


def leave_group(call: ScriptedCall) -> Response:
    """Remove the members."""
    request = call.request
    group = group_of(call, request.group_id)
    if code := _not_coordinator(call, group.name):
        return LeaveGroupResponse(error_code=code)
    leaving = request.members or [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
    answers = []
    for each in leaving:
        known = each.member_id in group.members
        if known and call.apply:
            group.remove(each.member_id)
        answers.append(
            LeaveGroupResponse.MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=0 if known else KafkaErrorCode.UNKNOWN_MEMBER_ID,
            )
        )
    return LeaveGroupResponse(members=answers if request.members else [])


def offset_commit(call: ScriptedCall) -> Response:
    """Keep the offsets; generation -1 = the sender is not a member."""
    request = call.request
    group = group_of(call, request.group_id)
    code = _not_coordinator(call, group.name)
    if not code and request.generation_id_or_member_epoch >= 0:
        if request.member_id not in group.members:
            code = KafkaErrorCode.UNKNOWN_MEMBER_ID
        elif request.generation_id_or_member_epoch != group.generation:
            code = KafkaErrorCode.ILLEGAL_GENERATION
    Topic = OffsetCommitResponse.OffsetCommitResponseTopic
    topics = []
    for topic in request.topics:
        name = call.cluster.name_of(topic.topic_id) if call.version >= TOPIC_IDS else topic.name
        parts = []
        for part in topic.partitions:
            unknown = name is None or call.cluster.partition(name, part.partition_index) is None
            outcome = code or (KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION if unknown else 0)
            if not outcome and name is not None and call.applies_to(name, part.partition_index):
                kept = part.committed_offset, part.committed_leader_epoch, part.committed_metadata
                call.cluster.offsets[group.name, name, part.partition_index] = kept
            parts.append(Topic.OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=outcome))
        topics.append(Topic(name=topic.name, topic_id=topic.topic_id, partitions=parts))
    return OffsetCommitResponse(topics=topics)


def offset_fetch(call: ScriptedCall) -> Response:
    """The committed offsets of one group, or of several."""
    request = call.request
    if call.version < SEVERAL_GROUPS:
        code = _not_coordinator(call, request.group_id)
        Topic = OffsetFetchResponse.OffsetFetchResponseTopic
        topics = _committed(call, request.group_id, request.topics, Topic, Topic.OffsetFetchResponsePartition)
        return OffsetFetchResponse(topics=[] if code else topics, error_code=code)
    Group = OffsetFetchResponse.OffsetFetchResponseGroup
    Inner = Group.OffsetFetchResponseTopics
    groups = []
    for each in request.groups:
        code = _not_coordinator(call, each.group_id)
        found = _committed(call, each.group_id, each.topics, Inner, Inner.OffsetFetchResponsePartitions)
        groups.append(Group(group_id=each.group_id, topics=[] if code else found, error_code=code))
    return OffsetFetchResponse(groups=groups)


def _committed(call: ScriptedCall, group: str, asked: Any, topic: Any, partition: Any) -> list[Any]:
    cluster = call.cluster
    if asked is None:
        names: dict[str, list[int]] = {}
        for owner, name, index in cluster.offsets:
            if owner == group:
                names.setdefault(name, []).append(index)
        wanted = [(name, b"", indexes) for name, indexes in names.items()]
    else:
        wanted = [(each.name, getattr(each, "topic_id", b""), each.partition_indexes) for each in asked]
    found = []
    for name, topic_id, indexes in wanted:
        known = name or cluster.name_of(topic_id) or ""
        parts = []
        for index in indexes:
            offset, epoch, metadata = cluster.offsets.get((group, known, index), (-1, -1, ""))
            parts.append(
                partition(
                    partition_index=index, committed_offset=offset, committed_leader_epoch=epoch, metadata=metadata
                )
            )
        by_id = {"topic_id": topic_id} if call.version >= TOPIC_IDS else {}
        found.append(topic(name=name, partitions=parts, **by_id))
    return found


GROUP_HANDLERS: dict[type[Request], Callable[[ScriptedCall], Response | None]] = {
    JoinGroupRequest: join_group,
    SyncGroupRequest: sync_group,
    HeartbeatRequest: heartbeat,
    LeaveGroupRequest: leave_group,
    OffsetCommitRequest: offset_commit,
    OffsetFetchRequest: offset_fetch,
}
