"""The members of a classic group: who is in, who leads, who waits, and which protocol they agree on.

Laws: `awaiting` counts the members with a parked join; `votes` counts the members that speak each protocol; a leader is
always a member; an instance id belongs to one member. Source: ClassicGroup.java and ClassicGroupMember.java.
"""

from collections import Counter

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Token
from kafkalite.state.groups.classic.requests import Join, Protocols, without_repeats
from kafkalite.state.groups.member_memory import MEMBER_BYTES, ShardMemory
from kafkalite.state.groups.records import ClassicMemberRecord

__all__ = ["ClassicMember", "ClassicMembers", "memory_of_join"]


def memory_of(protocols: Protocols) -> int:
    """Bytes of the names and metadata of protocols."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


def memory_of_join(request: Join) -> int:
    """Bytes that a member holds by a join (`groups/member_memory`)."""
    names = (request.member_id or request.fresh_id, request.client_id, request.client_host, request.group_instance_id)
    return MEMBER_BYTES + sum(len(name) for name in names if name) + memory_of(request.protocols)


class ClassicMember:
    """One member. `join` and `sync` are the tokens of its parked requests, None = none is parked.

    `is_new` holds until its first generation begins: only then can it send heartbeats. The session ends at
    `session_over_ms`; a timer is set for `timer_ms`, often earlier, and looks then: a heartbeat need not set one.
    `seen` are its protocols as the leader of this generation got them; a static member may have been away then.
    """

    __slots__ = (
        "assignment",
        "charged",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "seen",
        "session_over_ms",
        "session_timeout_ms",
        "sync",
        "timer_ms",
    )

    def __init__(self, member_id: str, request: Join, assignment: bytes = b"") -> None:
        self.member_id = member_id
        self.group_instance_id = request.group_instance_id
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.protocols = without_repeats(request.protocols)
        self.seen: Protocols = ()
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.session_timeout_ms = request.session_timeout_ms
        self.assignment = assignment
        self.charged = 0  # bytes, see `groups/member_memory`
        self.is_new = False
        self.session_over_ms = 0
        self.timer_ms: int | None = None
        self.join: Token | None = None
        self.sync: Token | None = None

    @classmethod
    def restored(cls, stored: ClassicMemberRecord, protocol: str) -> "ClassicMember":
        """A member as the group's record has it: it speaks the one protocol that is stored."""
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
        member.seen = member.protocols
        return member

    @property
    def waits(self) -> bool:
        """Whether a parked request stands for its heartbeats; a new member's join times out all the same."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def speaks_as(self, request: Join) -> bool:
        """Whether a join says nothing new."""
        return self.protocols == without_repeats(request.protocols)

    def memory(self) -> int:
        """Bytes that the member holds. Old metadata counts while the generation refers to it."""
        names = (self.member_id, self.client_id, self.client_host, self.group_instance_id)
        metadata = max(memory_of(self.protocols), memory_of(self.seen) if self.seen is not self.protocols else 0)
        return MEMBER_BYTES + sum(len(name) for name in names if name) + metadata

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata under a protocol, b"" where it does not speak it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def stored(self, protocol: str | None) -> ClassicMemberRecord:
        """The member as the group's record has it."""
        return ClassicMemberRecord(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            self.assignment,
        )


class ClassicMembers:
    """All members of a group, in the order in which they came.

    Arguments:
        account: counts the memory of the members; `charged` is the part of this group.
    """

    __slots__ = ("account", "all", "awaiting", "charged", "leader", "pending", "pending_sync", "static", "votes")

    def __init__(self, account: ShardMemory) -> None:
        self.account = account
        self.charged = 0
        self.all: dict[str, ClassicMember] = {}
        self.static: dict[str, str] = {}  # instance id -> member id
        self.votes: dict[str, int] = {}  # protocol -> members that speak it
        self.awaiting = 0
        self.leader: str | None = None
        self.pending: dict[str, int] = {}  # ids given out that have not joined yet -> session timeout
        self.pending_sync: dict[str, None] = {}  # members that have not synced; a dict is smaller than an empty set

    def __len__(self) -> int:
        return len(self.all)

    def add(self, member: ClassicMember) -> None:
        """Take in a member; the first leads."""
        assert member.group_instance_id is None or member.group_instance_id not in self.static
        self.all[member.member_id] = member
        if member.group_instance_id is not None:
            self.static[member.group_instance_id] = member.member_id
        self._vote(member, 1)
        if self.leader is None:
            self.leader = member.member_id
        self._drop_pending(member.member_id)
        self.recount(member)

    def reserve_member_id(self, member_id: str, session_timeout_ms: int) -> None:
        """Keep an id that a new member is to join with (KIP-394)."""
        self.pending[member_id] = session_timeout_ms
        self._charge(MEMBER_BYTES + len(member_id))

    def remove(self, member_id: str) -> None:
        """Let go of a member or of an id given out; the oldest member leads on. Its tokens must be answered before."""
        member = self.all.pop(member_id, None)
        if member is not None:
            assert member.join is None and member.sync is None, "a parked request would never be answered"
            self._vote(member, -1)
            self._charge(-member.charged)
            if member.group_instance_id is not None:
                del self.static[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.all), None)
        self._drop_pending(member_id)
        self.pending_sync.pop(member_id, None)

    def replace(self, old_id: str, new_id: str) -> ClassicMember:
        """Give a static member a new id in the old one's place; tokens and timer of the old id must be gone before."""
        member = self.all.pop(old_id)
        assert member.join is None and member.sync is None, "a parked request would never be answered"
        member.member_id = new_id
        member.timer_ms = None
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
        """Take over what a join says of a member."""
        self._vote(member, -1)
        member.protocols = without_repeats(request.protocols)
        self._vote(member, 1)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        self.recount(member)

    def accepts(self, request: Join) -> bool:
        """Return whether the memory that a join adds is within the broker's limit."""
        known = self.all.get(request.member_id) or self.all.get(self.static.get(request.group_instance_id or "", ""))
        before = 0 if known is None else known.charged
        if request.member_id in self.pending:
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

    def park_join(self, member: ClassicMember, token: Token) -> Token | None:
        """Keep a join until the generation begins; answer the token that it takes the place of."""
        replaced, member.join = member.join, token
        self.awaiting += replaced is None
        return replaced

    def unpark_join(self, member: ClassicMember) -> Token | None:
        token, member.join = member.join, None
        self.awaiting -= token is not None
        return token

    def all_joined(self) -> bool:
        """Whether nobody has to be waited for: neither a member nor an id given out."""
        return self.awaiting == len(self.all) and not self.pending

    def elect_joined_leader(self) -> bool:
        """See to it that the leader is one that has joined; False when nobody has."""
        if self.leader is None:
            return False
        if self.all[self.leader].join is None:
            joined = next((member for member in self.all.values() if member.join is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    def validate_member(self, member_id: str, group_instance_id: str | None) -> int:
        """The error for a request of somebody who is not (any more) this member, or 0."""
        if group_instance_id is not None:
            current = self.static.get(group_instance_id)
            if current is None:
                return KafkaErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return KafkaErrorCode.FENCED_INSTANCE_ID
        return KafkaErrorCode.NONE if member_id in self.all else KafkaErrorCode.UNKNOWN_MEMBER_ID

    def agree_on(self, protocols: Protocols) -> bool:
        """Whether all members speak one of the protocols."""
        return any(self.votes.get(name, 0) == len(self.all) for name, _ in protocols)

    def chosen_protocol(self) -> str:
        """The protocol that all speak and most prefer; of equals the one that the oldest member prefers."""
        common = {name for name, count in self.votes.items() if count == len(self.all)}
        wishes = Counter(next(name for name, _ in member.protocols if name in common) for member in self.all.values())
        oldest = next(iter(self.all.values()))
        return max((name for name, _ in oldest.protocols if name in wishes), key=lambda name: wishes[name])

    def rebalance_timeout_ms(self) -> int:
        """The longest that a member may take to rejoin; a negative one is none."""
        return max(0, max((member.rebalance_timeout_ms for member in self.all.values()), default=0))

    def _drop_pending(self, member_id: str) -> None:
        if self.pending.pop(member_id, None) is not None:
            self._charge(-MEMBER_BYTES - len(member_id))

    def _charge(self, growth: int) -> None:
        self.charged += growth
        self.account.charge(growth)

    def _vote(self, member: ClassicMember, count: int) -> None:
        for name, _ in member.protocols:
            self.votes[name] = self.votes.get(name, 0) + count
            if self.votes[name] == 0:
                del self.votes[name]
