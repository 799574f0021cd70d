"""The steps that commands of consumer groups share: they extend sessions, compute targets, and reconcile a member.

Commands work on a `Draft`; durable state changes when its records are applied. Sessions are in memory
(`groups/sessions`): a timer that fires checks whether a heartbeat has extended the session, so that the
heartbeat of a stable member sets no timer and writes nothing.
"""

from collections.abc import Callable, Container, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, ResolvePatterns
from kafkalite.state.groups.assignors import Assignment
from kafkalite.state.groups.consumer import membership
from kafkalite.state.groups.consumer.draft import Draft
from kafkalite.state.groups.consumer.group import INITIAL_EPOCH, ConsumerGroup
from kafkalite.state.groups.consumer.heartbeat_interval import WaitingMembers
from kafkalite.state.groups.consumer.reconciliation import MemberState, Situation, reconcile
from kafkalite.state.groups.consumer.requests import CommandRejected, ConsumerGroupSettings, TopicLookup
from kafkalite.state.groups.consumer.subscribed_groups import SubscribedGroups
from kafkalite.state.groups.consumer.subscribed_regex import RegexWatch, want_resolved
from kafkalite.state.groups.consumer.subscribed_topics import SubscribedTopics
from kafkalite.state.groups.consumer.target_assignment import is_due, make_target, refresh_epoch
from kafkalite.state.groups.consumer_protocol import UNREADABLE, ConsumerProtocol
from kafkalite.state.groups.member_memory import MachineMemory
from kafkalite.state.groups.records import CONSUMER
from kafkalite.state.groups.sessions import MemberSession

SESSION, REBALANCE, JOIN, SYNC = "session", "rebalance", "join", "sync"
"""Timers are named (CONSUMER, one of these, group, member). The last two are for members of the classic protocol."""

TARGET_CALLED, TARGET = "target called", "target"
"""The timer (CONSUMER, TARGET, group, "") computes the target assignment of a group that reads many topics. A heartbeat
that makes it due sets (CONSUMER, TARGET_CALLED, group, ""), which sets the other: loops run timers that are due before
they read from sockets, so other clients are served between the two.
"""

TOPICS_AT_ONCE = 1_000
"""A target assignment of more topics is a command of its own: with 5,000 topics it takes 25 ms of the loop."""

ToClassic = Callable[[ConsumerGroup, ConsumerGroup, Now], Effects | None]
"""Returns the effects that convert a group to a classic one, given the group before and after a command; None = it is
not converted."""


class MemberReport(NamedTuple):
    """The report of a member in a heartbeat or a join.

    Arguments:
        owned: the partitions that it reports, None = not reported.
        new_names, new_pattern: whether its topics, or its pattern, have changed.
        replaced: the id of the static member that it replaces.
    """

    member_id: str
    session_ms: int
    owned: Assignment | None = None
    new_names: bool = False
    new_pattern: bool = False
    replaced: str | None = None


@dataclass(eq=False)
class GroupSteps:
    """The steps of commands, and what a shard knows of its consumer groups beside their records.

    Arguments:
        topics: the current topics; `topics_changed` is called when they change.
        settings_of: returns the settings of a group by its id.
        embedded: decodes subscriptions of members of the classic protocol.
        topics_at_once: heartbeats compute the target assignment of groups that read at most this number of topics.

    Attributes:
        groups: by name.
        sessions: by group and member.
        rejoining: classic members that have received REBALANCE_IN_PROGRESS.
        waiting: members of the consumer protocol that wait for partitions.
        watches: what the groups have seen of their topics.
        topics_version: grows with each change of topics.
        readers: the groups that read each topic.
        memory: counts the memory of members of the classic protocol; set to that of the shard before the first record.
        to_classic: converts a group whose last member of the consumer protocol has left; set by the registry.
    """

    topics: TopicLookup
    settings_of: Callable[[str], ConsumerGroupSettings]
    embedded: ConsumerProtocol = UNREADABLE
    topics_at_once: int = TOPICS_AT_ONCE
    groups: dict[str, ConsumerGroup] = field(default_factory=dict)
    to_classic: ToClassic | None = None
    sessions: dict[tuple[str, str], MemberSession] = field(default_factory=dict)
    rejoining: set[tuple[str, str]] = field(default_factory=set)
    waiting: WaitingMembers = field(default_factory=WaitingMembers)
    watches: dict[str, RegexWatch] = field(default_factory=dict)
    readers: SubscribedGroups = field(default_factory=SubscribedGroups)
    topics_version: int = 0
    memory: MachineMemory = field(default_factory=MachineMemory)

    def topics_read(self, group_id: str) -> Container[str]:
        """The topics that members of a group read."""
        return self.readers.topics_of(group_id)

    def advance(self, effects: Effects, draft: Draft, report: MemberReport, now: Now) -> None:
        """Bump the group epoch and compute a target if due, then move this member one step towards its target."""
        group_id, member_id = draft.group.group_id, report.member_id
        watch = self.watches.get(group_id) or RegexWatch()
        pattern = draft.group.members[member_id].subscribed_topic_regex
        unresolved = pattern and pattern not in draft.group.patterns
        # a pattern that is still to be resolved starts an epoch when it is: one assignment instead of two
        bump = draft.group.epoch == INITIAL_EPOCH or report.new_names or (report.new_pattern and not unresolved)
        topics = SubscribedTopics(draft.group, self.topics)
        self.refresh(draft, topics, watch, now, bump=bump)
        self._reconcile(effects, draft, topics, report, now)
        if report.replaced is not None:
            self.forget(effects, group_id, report.replaced)
        self.keep_session(effects, (group_id, member_id), report.session_ms, now)
        self.watch(effects, draft.group, watch, now)

    def refresh(
        self, draft: Draft, topics: SubscribedTopics, watch: RegexWatch, now: Now, *, bump: bool = False
    ) -> None:
        """Begin a group epoch if the topics have changed, and compute the target if it is due.

        Arguments:
            draft: receives the records.
            topics: of the group.
            watch: what the group has seen of its topics.
            now: the time.
            bump: begin an epoch in any case.
        """
        if bump or not watch.topics_seen:
            refresh_epoch(draft, topics, bump=bump)
        settings = self.settings_of(draft.group.group_id)
        due = is_due(draft.group, settings, now) and not watch.target_scheduled
        if due and len(topics.found) <= self.topics_at_once:
            make_target(draft, topics, settings, now)

    def make_scheduled_target(self, group_id: str, now: Now) -> Effects:
        """The timer of a target assignment fired. Members receive it with their next heartbeats."""
        group, watch, settings = self.groups.get(group_id), self.watches.get(group_id), self.settings_of(group_id)
        if watch is not None:
            watch.target_scheduled = False
        if group is None or not group.members or not is_due(group, settings, now):
            return Effects()
        draft = Draft(group)
        make_target(draft, SubscribedTopics(group, self.topics), settings, now)
        return Effects(records=draft.records)

    def _reconcile(
        self, effects: Effects, draft: Draft, topics: SubscribedTopics, report: MemberReport, now: Now
    ) -> None:
        group, member_id = draft.group, report.member_id
        resubscribed = report.new_names or report.new_pattern
        if group.is_reconciled(member_id) and not resubscribed:
            return
        current = group.current(member_id)
        situation = Situation(
            target_epoch=group.assignment_epoch,
            target=group.targets.get(member_id, {}),
            subscribed=self._subscribed(group, topics, report),
            resubscribed=resubscribed,
            owned=report.owned,
            owners=group.owners,
        )
        moved = reconcile(current, situation)
        if moved is None:
            message = "The consumer group member is in an unknown state. It must abandon all its partitions and rejoin."
            raise CommandRejected(KafkaErrorCode.FENCED_MEMBER_EPOCH, message)
        if moved == current:
            return
        draft.add(moved)
        if group.members[member_id].classic is not None:
            return  # it has timers for its join and its sync
        timer = (CONSUMER, REBALANCE, group.group_id, member_id)
        if moved.state == MemberState.UNREVOKED_PARTITIONS:
            effects.set_timer(timer, now.ms + group.members[member_id].rebalance_timeout_ms)
        elif current.state == MemberState.UNREVOKED_PARTITIONS:
            effects.cancel_timer(timer)

    def _subscribed(self, group: ConsumerGroup, topics: SubscribedTopics, report: MemberReport) -> Set[bytes]:
        """Ids of the topics to which a member is subscribed; for a large target those of the target suffice.

        All topics of a target are subscribed, as long as the subscription is that for which it was computed.
        """
        target, member = group.targets.get(report.member_id, {}), group.members[report.member_id]
        unchanged = group.epoch == group.assignment_epoch and not report.new_names and not report.new_pattern
        if len(target) > self.topics_at_once and unchanged and not member.subscribed_topic_regex:
            return target.keys()
        return topics.ids_of(report.member_id)

    def remove(self, effects: Effects, before: ConsumerGroup, member_ids: Sequence[str], now: Now) -> None:
        """Remove members from a group."""
        draft = Draft(before)
        membership.remove(draft, member_ids, self.topics)
        if not self.finish(effects, before, draft, now):
            for member_id in member_ids:
                self.forget(effects, before.group_id, member_id)

    def finish(self, effects: Effects, before: ConsumerGroup, draft: Draft, now: Now) -> bool:
        """Add the records of a command, or those of a conversion to a classic group; returns whether it converts."""
        converted = self.to_classic(before, draft.group, now) if self.to_classic is not None else None
        if converted is None:
            effects.records += draft.records
            return False
        for member_id in before.members.keys() | draft.group.members.keys():
            self.forget(effects, before.group_id, member_id)
        effects.extend(converted)
        return True

    def watch(self, effects: Effects, group: ConsumerGroup, watch: RegexWatch, now: Now) -> None:
        """The last step of a command, after which it cannot be rejected: the topics count as seen, patterns are
        resolved, and a target assignment that is still due is scheduled.
        """
        self.watches[group.group_id] = watch
        watch.topics_seen = True
        settings = self.settings_of(group.group_id)
        if is_due(group, settings, now) and not watch.target_scheduled:
            watch.target_scheduled = True
            effects.set_timer((CONSUMER, TARGET_CALLED, group.group_id, ""), now.ms)
        patterns = want_resolved(group, watch, settings, self.topics_version, now)
        if patterns:
            effects.questions.append(ResolvePatterns(group.group_id, patterns))

    def keep_session(self, effects: Effects, name: tuple[str, str], timeout_ms: int, now: Now) -> None:
        """Extend the session of a member; `name` is its group and member id."""
        session = self.sessions.get(name)
        if session is None:
            session = self.sessions[name] = MemberSession(timeout_ms)
        session.timeout_ms = timeout_ms
        session.extend((CONSUMER, SESSION, *name), effects, now)

    def drop_session(self, name: tuple[str, str]) -> None:
        """Drop what is in memory of a member; `name` is its group and member id."""
        self.sessions.pop(name, None)
        self.rejoining.discard(name)
        self.waiting.forget(name)

    def forget(self, effects: Effects, group_id: str, member_id: str) -> None:
        """End the session and the timers of a member."""
        self.drop_session((group_id, member_id))
        for kind in (SESSION, REBALANCE, JOIN, SYNC):
            effects.cancel_timer((CONSUMER, kind, group_id, member_id))
