"""The consumer groups of one shard (KIP-848): a pure machine, `(command, now) -> Effects`.

Members are served in `groups/consumer/heartbeat`, those of the classic protocol in `groups/consumer/classic_members`.
For a group that reads many topics a timer computes the target assignment after the heartbeat that makes it due
(KIP-1263). Source: GroupMetadataManager.java of Apache Kafka 4.3.
"""

from collections.abc import Callable, Collection, Iterator, Mapping

from kafkalite.state.effects import Effects, Now, TimerName, Token
from kafkalite.state.groups.classic.requests import Leave
from kafkalite.state.groups.consumer.classic_member_memory import growth_by, memory_of_group
from kafkalite.state.groups.consumer.classic_members import ClassicProtocolMembers
from kafkalite.state.groups.consumer.description import describe
from kafkalite.state.groups.consumer.draft import Draft
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.group_steps import (
    JOIN,
    REBALANCE,
    SESSION,
    SYNC,
    TARGET,
    TARGET_CALLED,
    TOPICS_AT_ONCE,
    GroupSteps,
)
from kafkalite.state.groups.consumer.heartbeat import Heartbeats
from kafkalite.state.groups.consumer.reconciliation import MemberState
from kafkalite.state.groups.consumer.requests import (
    STATIC_LEAVE_EPOCH,
    ConsumerGroupSettings,
    GroupDescription,
    TopicLookup,
)
from kafkalite.state.groups.consumer.subscribed_regex import RegexWatch, take_over
from kafkalite.state.groups.consumer_protocol import UNREADABLE, ConsumerProtocol
from kafkalite.state.groups.group import GroupType
from kafkalite.state.groups.records import (
    CONSUMER,
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupPartitionMetadata,
    ConsumerGroupRegularExpression,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    ConsumerGroupTombstone,
    GroupDeleted,
)
from kafkalite.state.groups.sessions import SESSIONS_AT_ONCE


class ConsumerGroups(GroupType):
    """All consumer groups of a shard.

    Arguments: those of `GroupSteps`.

    Attributes:
        heartbeats: serves ConsumerGroupHeartbeat.
        classic: serves their members of the classic protocol.
    """

    name = CONSUMER
    record_types = (
        ConsumerGroupMetadata,
        ConsumerGroupPartitionMetadata,
        ConsumerGroupMemberMetadata,
        ConsumerGroupTargetAssignmentMetadata,
        ConsumerGroupTargetAssignmentMember,
        ConsumerGroupCurrentMemberAssignment,
        ConsumerGroupRegularExpression,
        ConsumerGroupTombstone,
    )

    def __init__(
        self,
        topics: TopicLookup,
        settings: Callable[[str], ConsumerGroupSettings],
        embedded: ConsumerProtocol = UNREADABLE,
        topics_at_once: int = TOPICS_AT_ONCE,
    ) -> None:
        self.steps = GroupSteps(topics, settings, embedded, topics_at_once)
        self.classic = ClassicProtocolMembers(self.steps)
        self.heartbeats = Heartbeats(self.steps, self.classic)
        self.groups = self.steps.groups
        self._settings = settings
        self._sessions = self.steps.sessions
        self._watches = self.steps.watches

    def leave(self, request: Leave, token: Token, now: Now) -> Effects:
        """Members of the classic protocol leave, or an administrator removes static members; the result is a `Left`."""
        return self.classic.leave(request, token, now)

    def fire_timer(self, name: TimerName, now: Now) -> Effects:
        """A timer of this machine has fired."""
        _, kind, group_id, member_id = name
        if kind == TARGET:
            return self.steps.make_scheduled_target(group_id, now)
        effects = Effects()
        if kind == TARGET_CALLED:
            effects.set_timer((CONSUMER, TARGET, group_id, ""), now.ms)
            return effects
        group = self.groups.get(group_id)
        if group is None or member_id not in group.members:
            self.steps.drop_session((group_id, member_id))
            return effects
        session = self._sessions.get((group_id, member_id))
        if kind == SESSION and session is not None and not session.timer_fired(name, effects, now):
            return effects
        if kind in (SESSION, JOIN, SYNC) or _is_revoking(group, member_id):
            self.steps.remove(effects, group, [member_id], now)
        return effects

    def starts_rebalance(self, record: object) -> bool:
        """Whether the record begins a group epoch."""
        return isinstance(record, ConsumerGroupMetadata)

    def start_timers(self, now: Now) -> Iterator[Effects]:
        """The log was replayed: every member gets a full session timeout, or rebalance timeout."""
        effects = Effects()
        for group_id, group in self.groups.items():
            session_ms = self._settings(group_id).session_timeout_ms
            for member_id, member in group.members.items():
                own_ms = session_ms if member.classic is None else member.classic.session_timeout_ms
                self.steps.keep_session(effects, (group_id, member_id), own_ms, now)
                if _is_revoking(group, member_id):
                    effects.set_timer((CONSUMER, REBALANCE, group_id, member_id), now.ms + member.rebalance_timeout_ms)
                if len(effects.timers) >= SESSIONS_AT_ONCE:
                    yield effects
                    effects = Effects()
        yield effects

    def topics_changed(self, names: Collection[str]) -> Collection[str]:
        """Topics were created, deleted or extended: groups that read them check them with the next heartbeat."""
        self.steps.topics_version += 1
        for group_id in self.steps.readers.of_any(frozenset(names)):
            watch = self._watches.get(group_id)
            if watch is not None:
                watch.topics_seen = False
        return ()

    def patterns_resolved(self, group_id: str, found: Mapping[str, Collection[str]], now: Now) -> Effects:
        """The result of `ResolvePatterns`: topic names by pattern."""
        effects = Effects()
        group = self.groups.get(group_id)
        if group is None:
            return effects
        watch = self._watches.setdefault(group_id, RegexWatch())
        watch.resolving = False
        draft = Draft(group)
        take_over(draft, found, self.steps.topics, now)
        effects.records += draft.records
        return effects

    def patterns_failed(self, group_id: str) -> None:
        """`ResolvePatterns` failed; the next heartbeat asks again."""
        watch = self._watches.get(group_id)
        if watch is not None:
            watch.resolving, watch.resolved_at_ms = False, None

    def describe(self, group_id: str) -> GroupDescription | None:
        """The group for ConsumerGroupDescribe; None if it does not exist."""
        group = self.groups.get(group_id)
        return None if group is None else describe(group, self._settings(group_id))

    def apply(self, record: object) -> None:
        """Apply a record, in replay and in normal operation."""
        group_id: str = record.group  # type: ignore[attr-defined]
        if isinstance(record, GroupDeleted):
            assert record.group_type == CONSUMER, "the shard passes each group type its own records"
            deleted = self.groups.pop(group_id, None)
            if deleted is not None:
                self.steps.readers.forget(deleted)
                self.steps.memory.charge(-memory_of_group(deleted))
            self._watches.pop(group_id, None)
            return
        group = self.groups.get(group_id)
        if group is None:
            if isinstance(record, ConsumerGroupTombstone):
                return
            group = self.groups[group_id] = ConsumerGroup(group_id, self.steps)
        self.steps.memory.charge(growth_by(group, record))
        group.apply(self.steps.readers.follow(group, record))


def _is_revoking(group: ConsumerGroup, member_id: str) -> bool:
    """Whether the member has its rebalance timeout to revoke partitions. A static member that is away has revoked them;
    a member of the classic protocol has a timeout from the response that makes it rejoin.
    """
    current = group.current(member_id)
    away = current.member_epoch == STATIC_LEAVE_EPOCH or group.speaks_classic(member_id)
    return current.state == MemberState.UNREVOKED_PARTITIONS and not away
