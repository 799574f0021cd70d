"""The members of a classic group: their leader, their delayed requests and the protocols that they support.

`static_members` has the rules of static members, among them which requests of them are fenced.

Rules: `delayed_joins` counts the members with a delayed join; `votes` those that support each protocol; the
leader is a member; an instance id belongs to one member. Source: ClassicGroup.java and ClassicGroupMember.java.
"""

from collections import Counter
from dataclasses import dataclass, field

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Token
from kafkalite.state.groups.classic.requests import Join, Protocols, distinct_protocols
from kafkalite.state.groups.classic.static_members import fencing_error
from kafkalite.state.groups.member_memory import MEMBER_BYTES, MachineMemory
from kafkalite.state.groups.records import ClassicMemberRecord
from kafkalite.state.groups.sessions import MemberSession


def memory_of(protocols: Protocols) -> int:
    """Size of the names and metadata of protocols, in bytes."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


def memory_of_join(request: Join) -> int:
    """Memory of a member that joins with this request, in bytes (`groups/member_memory`)."""
    names = (request.member_id or request.fresh_id, request.client_id, request.client_host, request.group_instance_id)
    return MEMBER_BYTES + sum(len(name) for name in names if name) + memory_of(request.protocols)


class ClassicMember:
    """One member.

    Arguments:
        member_id: of the member.
        request: its join.
        assignment: that it has.

    Attributes:
        delayed_join: the token of its delayed join, None = none.
        delayed_sync: the token of its delayed sync, None = none.
        generation_protocols: its protocols as the leader of the current generation received them. A static member may
            have been away then.
        is_new: no generation with this member has begun. It cannot send heartbeats yet.
        charged: memory that is counted for it, in bytes (`groups/member_memory`).
    """

    __slots__ = (
        "assignment",
        "charged",
        "client_host",
        "client_id",
        "delayed_join",
        "delayed_sync",
        "generation_protocols",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
    )

    def __init__(self, member_id: str, request: Join, assignment: bytes = b"") -> None:
        self.member_id = member_id
        self.group_instance_id = request.group_instance_id
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.protocols = distinct_protocols(request.protocols)
        self.generation_protocols: Protocols = ()
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.session = MemberSession(request.session_timeout_ms)
        self.assignment = assignment
        self.charged = 0
        self.is_new = False
        self.delayed_join: Token | None = None
        self.delayed_sync: Token | None = None

    @classmethod
    def restore(cls, stored: ClassicMemberRecord, protocol: str) -> "ClassicMember":
        """A member from the group's record, with the one protocol that is stored."""
        timeout_ms = stored.session_timeout_ms
        rebalance_ms = timeout_ms if stored.rebalance_timeout_ms == -1 else stored.rebalance_timeout_ms
        request = Join(
            group="",
            member_id=stored.member_id,
            fresh_id="",
            protocol_type="",
            protocols=((protocol, stored.subscription),),
            session_timeout_ms=timeout_ms,
            rebalance_timeout_ms=rebalance_ms,
            client_id=stored.client_id,
            client_host=stored.client_host,
            group_instance_id=stored.group_instance_id,
        )
        member = cls(stored.member_id, request, stored.assignment)
        member.generation_protocols = member.protocols
        return member

    @property
    def has_delayed_request(self) -> bool:
        """Whether a delayed request keeps its session from expiring. The join of a new member expires nevertheless."""
        return not self.is_new and (self.delayed_join is not None or self.delayed_sync is not None)

    def has_protocols_of(self, request: Join) -> bool:
        """Whether a join has the protocols that the member has."""
        return self.protocols == distinct_protocols(request.protocols)

    def memory(self) -> int:
        """Memory of the member in bytes; with the metadata of the current generation, while it refers to it."""
        names = (self.member_id, self.client_id, self.client_host, self.group_instance_id)
        before = self.generation_protocols
        metadata = max(memory_of(self.protocols), memory_of(before) if before is not self.protocols else 0)
        return MEMBER_BYTES + sum(len(name) for name in names if name) + metadata

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for a protocol, b"" if it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def to_record(self, protocol: str | None) -> ClassicMemberRecord:
        """The member for the group's record."""
        return ClassicMemberRecord(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session.timeout_ms,
            self.metadata(protocol),
            self.assignment,
        )


@dataclass(slots=True, eq=False)
class ClassicMembers:
    """All members of a group, in the order in which they joined.

    Arguments:
        account: counts the memory of the members.

    Attributes:
        all: by member id.
        static: member ids by instance id.
        votes: how many members support each protocol.
        leader: a member id, None = there is no member.
        delayed_joins: how many members have a delayed join.
        reserved_ids: member ids that were sent to clients that have not joined with them yet, with their session
            timeouts in ms (KIP-394).
        pending_sync: members that have not fetched their assignment; a dict is smaller than an empty set.
        charged: memory that is counted for this group, in bytes.
    """

    account: MachineMemory
    charged: int = 0
    all: dict[str, ClassicMember] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    votes: dict[str, int] = field(default_factory=dict)
    leader: str | None = None
    delayed_joins: int = 0
    reserved_ids: dict[str, int] = field(default_factory=dict)
    pending_sync: dict[str, None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.all)

    def add(self, member: ClassicMember) -> None:
        """Add a member; the first one is the leader."""
        assert member.group_instance_id is None or member.group_instance_id not in self.static
        self.all[member.member_id] = member
        if member.group_instance_id is not None:
            self.static[member.group_instance_id] = member.member_id
        self._vote(member, 1)
        if self.leader is None:
            self.leader = member.member_id
        self._drop_reserved_id(member.member_id)
        self.recount(member)

    def reserve_member_id(self, member_id: str, session_timeout_ms: int) -> None:
        """Reserve a member id with which a new member is to join (KIP-394)."""
        self.reserved_ids[member_id] = session_timeout_ms
        self._charge(MEMBER_BYTES + len(member_id))

    def remove(self, member_id: str) -> None:
        """Remove a member or a reserved id; delayed requests must be completed before. The next leader is the oldest
        member.
        """
        member = self.all.pop(member_id, None)
        if member is not None:
            assert member.delayed_join is None and member.delayed_sync is None, "a delayed request would never complete"
            self._vote(member, -1)
            self._charge(-member.charged)
            if member.group_instance_id is not None:
                del self.static[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.all), None)
        self._drop_reserved_id(member_id)
        self.pending_sync.pop(member_id, None)

    def replace(self, old_id: str, new_id: str) -> ClassicMember:
        """Replace the id of a static member; delayed requests must be completed, the timer must be cancelled before."""
        member = self.all.pop(old_id)
        assert member.delayed_join is None and member.delayed_sync is None, "a delayed request would never complete"
        member.member_id = new_id
        member.session.timer_ms = None
        self.all[new_id] = member
        assert member.group_instance_id is not None
        self.static[member.group_instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_sync:
            del self.pending_sync[old_id]
            self.pending_sync[new_id] = None
        return member

    def update(self, member: ClassicMember, request: Join) -> None:
        """Update a member from its join."""
        self._vote(member, -1)
        member.protocols = distinct_protocols(request.protocols)
        self._vote(member, 1)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session.timeout_ms = request.session_timeout_ms
        self.recount(member)

    def accepts(self, request: Join) -> bool:
        """Return whether the memory that a join adds is within the broker's limit."""
        known = self.all.get(request.member_id) or self.all.get(self.static.get(request.group_instance_id or "", ""))
        before = 0 if known is None else known.charged
        if request.member_id in self.reserved_ids:
            before = MEMBER_BYTES + len(request.member_id)
        return self.account.accepts(memory_of_join(request) - before)

    def recount(self, member: ClassicMember) -> None:
        """Count the memory of a member whose protocols have changed."""
        memory = member.memory()
        self._charge(memory - member.charged)
        member.charged = memory

    def release(self) -> None:
        """The group is dropped: its memory is no longer counted."""
        self._charge(-self.charged)

    def delay_join(self, member: ClassicMember, token: Token) -> Token | None:
        """Delay a join until the generation begins; returns the token of the join that it replaces, if any."""
        replaced, member.delayed_join = member.delayed_join, token
        self.delayed_joins += replaced is None
        return replaced

    def take_delayed_join(self, member: ClassicMember) -> Token | None:
        """The token of a delayed join that is completed now, None = none is delayed."""
        token, member.delayed_join = member.delayed_join, None
        self.delayed_joins -= token is not None
        return token

    def all_joined(self) -> bool:
        """Whether all members have joined, and no reserved id is left."""
        return self.delayed_joins == len(self.all) and not self.reserved_ids

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader, unless the leader has joined; False if no member has joined."""
        if self.leader is None:
            return False
        if self.all[self.leader].delayed_join is None:
            joined = next((member for member in self.all.values() if member.delayed_join is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    def validate_member(self, member_id: str, group_instance_id: str | None) -> int:
        """UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, or 0: the sender of a request is a member."""
        if error := fencing_error(self.static, group_instance_id, member_id):
            return error
        return KafkaErrorCode.NONE if member_id in self.all else KafkaErrorCode.UNKNOWN_MEMBER_ID

    def support_any(self, protocols: Protocols) -> bool:
        """Whether all members support one of the protocols."""
        return any(self.votes.get(name, 0) == len(self.all) for name, _ in protocols)

    def chosen_protocol(self) -> str:
        """The protocol that all members support and most prefer; of equals the one that the oldest member prefers."""
        common = {name for name, count in self.votes.items() if count == len(self.all)}
        preferences = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self.all.values()
        )
        oldest = next(iter(self.all.values()))
        return max((name for name, _ in oldest.protocols if name in preferences), key=lambda name: preferences[name])

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members in ms; a negative one counts as 0."""
        return max(0, max((member.rebalance_timeout_ms for member in self.all.values()), default=0))

    def _drop_reserved_id(self, member_id: str) -> None:
        if self.reserved_ids.pop(member_id, None) is not None:
            self._charge(-MEMBER_BYTES - len(member_id))

    def _charge(self, growth: int) -> None:
        self.charged += growth
        self.account.charge(growth)

    def _vote(self, member: ClassicMember, count: int) -> None:
        for name, _ in member.protocols:
            self.votes[name] = self.votes.get(name, 0) + count
            if self.votes[name] == 0:
                del self.votes[name]
