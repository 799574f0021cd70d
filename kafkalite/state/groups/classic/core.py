"""What every part of a classic group works on: its state, its members, and the table that moves it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, TimerName, Token
from kafkalite.state.groups.classic.members import ClassicMember, ClassicMembers
from kafkalite.state.groups.classic.requests import Joined, JoinedMember, Synced
from kafkalite.state.groups.classic.table import TRANSITIONS, ClassicEvent, ClassicState
from kafkalite.state.groups.member_memory import ShardMemory
from kafkalite.state.groups.records import CLASSIC, ClassicGroupMetadata
from kafkalite.state.groups.sessions import look_at_ms

__all__ = ["CONSUMER_PROTOCOL", "ClassicCommand", "ClassicGroupCore", "ClassicSettings"]

CONSUMER_PROTOCOL = "consumer"  # the protocol type whose subscriptions the broker can read


@dataclass(frozen=True, slots=True)
class ClassicSettings:
    """The broker's settings for classic groups (ms, members), and how to read a subscription.

    Arguments:
        topics_of: topics of a consumer's subscription bytes, None where they cannot be read.
        partitions_of: topics and partitions of a consumer's assignment bytes, None where they cannot be read.
        held_of: those that a consumer's subscription bytes say it still had when it joined, None as above.
        new_member_join_ms: how long a new member's join may be parked, since it cannot send heartbeats yet.
        trace: is told of each transition, heartbeats on the short way (`fast_heartbeat`) left out; for tests.
    """

    session_min_ms: int = 6_000
    session_max_ms: int = 1_800_000
    initial_delay_ms: int = 3_000
    members_max: int = 2**31 - 1
    new_member_join_ms: int = 300_000
    topics_of: Callable[[bytes], frozenset[str] | None] = lambda _: None
    partitions_of: Callable[[bytes], frozenset[tuple[str, int]] | None] = lambda _: None
    held_of: Callable[[bytes], frozenset[tuple[str, int]] | None] = lambda _: frozenset()
    trace: Callable[[str, ClassicState, ClassicEvent, ClassicState], None] | None = None


@dataclass(slots=True)
class ClassicCommand:
    """One command on its way through the group: when, by whom, and what it led to so far."""

    now: Now
    effects: Effects = field(default_factory=Effects)
    token: Token = None
    member: ClassicMember | None = None
    assignments: dict[str, bytes] = field(default_factory=dict)
    can_skip_assignment: bool = True
    replaced_id: str = ""  # of the static member that the request takes the place of


class ClassicGroupCore:
    """State and members of a group, and how it moves. `stored` is the last record that was applied."""

    __slots__ = (
        "delay",
        "generation",
        "grew",
        "initial",
        "members",
        "name",
        "protocol",
        "protocol_type",
        "reserved",
        "rewound",
        "settings",
        "state",
        "state_since_wall_ms",
        "stored",
        "topics",
    )

    def __init__(self, name: str, settings: ClassicSettings, state_since_wall_ms: int, account: ShardMemory) -> None:
        self.name = name
        self.settings = settings
        self.state = ClassicState.EMPTY
        self.state_since_wall_ms = state_since_wall_ms
        self.generation = 0
        self.reserved = 0  # a generation that only a restart leads to (`_unknown_record`): none begins with it
        self.rewound: frozenset[tuple[str, int]] = frozenset()  # in this generation: nobody commits these any more
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members = ClassicMembers(account)
        self.topics: frozenset[str] | None = None  # subscribed topics, None = cannot be known
        self.initial = False  # the rebalance that runs is the first one since the group was empty
        self.grew = False  # a member came during the initial delay
        self.delay = (0, 0)  # the initial delay that runs, and what may be added to it
        self.stored: ClassicGroupMetadata | None = None

    def transition(self, event: ClassicEvent, step: ClassicCommand) -> None:
        """Go where the table says and do what it says."""
        before = self.state
        row = TRANSITIONS[before, event]
        if self.settings.trace is not None:
            self.settings.trace(self.name, before, event, row.state)
        if before is ClassicState.COMPLETING and row.state is ClassicState.PREPARING:
            self._answer_syncs(KafkaErrorCode.REBALANCE_IN_PROGRESS, step)
        if before is not row.state:
            self.state = row.state
            self.state_since_wall_ms = step.now.wall_ms
        getattr(self, row.action)(step)

    def metadata_record(self) -> ClassicGroupMetadata:
        """The group as it is stored."""
        return ClassicGroupMetadata(
            self.name,
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.members.leader,
            self.state_since_wall_ms,
            tuple(member.stored(self.protocol) for member in self.members.all.values()),
        )

    def founding_record(self) -> ClassicGroupMetadata:
        """A new group before its first generation, as Kafka writes it."""
        return ClassicGroupMetadata(self.name, "", self.generation, None, None, self.state_since_wall_ms, ())

    @property
    def last_generation(self) -> int:
        """The highest that any member or record may know."""
        return max(self.generation, self.reserved)

    def restore(self, record: ClassicGroupMetadata) -> None:
        """Become what a record says, at replay: Stable with members, Empty without."""
        self.members = ClassicMembers(self.members.account)
        for stored in record.members:
            self.members.remove(stored.member_id)  # a damaged record may name a member twice
            self.members.remove(self.members.static.get(stored.group_instance_id or "", ""))
            self.members.add(ClassicMember.restored(stored, record.protocol or ""))
        self.members.leader = record.leader if record.leader in self.members.all else self.members.leader
        self.state = ClassicState.STABLE if self.members else ClassicState.EMPTY
        self.state_since_wall_ms = record.state_timestamp_ms
        self.generation = record.generation
        self.protocol_type = record.protocol_type or None
        self.protocol = record.protocol
        self.topics = self.subscribed_topics()

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members subscribe to; None when a subscription cannot be read."""
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        topics: set[str] = set()
        for member in self.members.all.values():
            of_member = self.settings.topics_of(member.metadata(self.protocol))
            if of_member is None:
                return None
            topics |= of_member
        return frozenset(topics)

    def _joined(self, member: ClassicMember, *, include_members: bool = True) -> Joined:
        leads = include_members and member.member_id == self.members.leader
        included = self.members.all.values() if leads else ()
        return Joined(
            0,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.members.leader or "",
            members=tuple(JoinedMember(m.member_id, m.group_instance_id, m.metadata(self.protocol)) for m in included),
        )

    def _keep_alive(self, member: ClassicMember, step: ClassicCommand, for_ms: int | None = None) -> None:
        over_ms = step.now.ms + (member.session_timeout_ms if for_ms is None else for_ms)
        member.session_over_ms = over_ms
        if member.timer_ms is None or over_ms < member.timer_ms:
            self._watch(member, step)

    def _watch(self, member: ClassicMember, step: ClassicCommand) -> None:
        member.timer_ms = look_at_ms(member.session_over_ms, step.now.ms)
        step.effects.set_timer(self._session_timer(member.member_id), member.timer_ms)

    def _remove(self, member_id: str, step: ClassicCommand) -> None:
        member = self.members.all.get(member_id)
        if member is not None:
            self._answer_parked(member, KafkaErrorCode.UNKNOWN_MEMBER_ID, "", step)
        step.effects.cancel_timer(self._session_timer(member_id))
        self.members.remove(member_id)

    def _answer_parked(self, member: ClassicMember, error: int, sent_member_id: str, step: ClassicCommand) -> None:
        join = self.members.unpark_join(member)
        if join is not None:
            step.effects.answer(join, Joined(error, sent_member_id))
        sync, member.sync = member.sync, None
        if sync is not None:
            step.effects.answer(sync, Synced(error))

    def _answer_syncs(self, error: int, step: ClassicCommand) -> None:
        for member in self.members.all.values():
            if error:
                member.assignment = b""
            token, member.sync = member.sync, None
            if token is None:
                continue
            good = Synced(0, self.protocol_type, self.protocol, member.assignment)
            step.effects.answer(token, Synced(error) if error else good)
            self._keep_alive(member, step)  # its session did not count while it was parked

    def _session_timer(self, member_id: str) -> TimerName:
        return (CLASSIC, self.name, "session", member_id)

    def _join_timer(self) -> TimerName:
        return (CLASSIC, self.name, "join")

    def _sync_timer(self) -> TimerName:
        return (CLASSIC, self.name, "sync")
