"""What every part of the consumer groups of a shard works on: the groups, who was heard when, and what topics they saw.

Commands work on a `Draft`; what is durable changes when its records are applied. Sessions are kept in memory
(`consumer_sessions`): a timer that fires looks whether the member was heard meanwhile, so that hearing from a settled
member sets no timer and writes nothing.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.state import consumer_membership as membership
from kafkalite.state.assignors import Assignment
from kafkalite.state.consumer_patterns import Watch, want_resolved
from kafkalite.state.consumer_readers import ConsumerReaders
from kafkalite.state.consumer_reconciliation import MemberState, Situation, reconcile
from kafkalite.state.consumer_requests import ConsumerGroupSettings, Refused, Topics
from kafkalite.state.consumer_sessions import Calm, Session
from kafkalite.state.consumer_state import INITIAL_EPOCH, ConsumerGroup, Draft
from kafkalite.state.consumer_target import refresh_epoch, refresh_target
from kafkalite.state.consumer_topics import SubscribedTopics
from kafkalite.state.effects import Effects, Now, ResolvePatterns
from kafkalite.state.embedded_protocol import UNREADABLE, EmbeddedProtocol
from kafkalite.state.group_records import CONSUMER
from kafkalite.state.member_memory import ShardMemory
from kafkalite.state.sessions import look_at_ms

__all__ = ["JOIN", "REBALANCE", "SESSION", "SYNC", "GroupsCore", "Heard", "ToClassic"]

SESSION, REBALANCE, JOIN, SYNC = "session", "rebalance", "join", "sync"
"""Timers are named (CONSUMER, one of these, group, member). The last two watch members of the classic protocol."""

ToClassic = Callable[[ConsumerGroup, ConsumerGroup, Now], Effects | None]
"""Given a group before and after a command: what makes it a classic group; None = it stays what it is."""


class Heard(NamedTuple):
    """What was heard from a member in a heartbeat or a join.

    Arguments:
        owned: what it says it has, None = it says nothing.
        new_names, new_pattern: whether it has subscribed to other topics, or to another pattern.
        replaced: the static member whose place it took.
    """

    member_id: str
    session_ms: int
    owned: Assignment | None = None
    new_names: bool = False
    new_pattern: bool = False
    replaced: str | None = None


class GroupsCore:
    """The consumer groups of a shard, and how a member moves.

    Arguments:
        topics: the topics as they are at any time; `topics_changed` tells that they are others.
        settings: what holds for a group, by its id.
        embedded: how members of the classic protocol are understood.

    Attributes:
        memory: counts the memory of members of the classic protocol; set to that of the shard before the first record.
        to_classic: set by whoever can make a classic group of one whose last member of the consumer protocol has gone.
    """

    def __init__(
        self,
        topics: Topics,
        settings: Callable[[str], ConsumerGroupSettings],
        embedded: EmbeddedProtocol = UNREADABLE,
    ) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self.to_classic: ToClassic | None = None
        self.topics = topics
        self._settings = settings
        self._embedded = embedded
        self._sessions: dict[tuple[str, str], Session] = {}
        self._rejoining: set[tuple[str, str]] = set()  # members of the classic protocol that were told to join anew
        self._watches: dict[str, Watch] = {}
        self._readers = ConsumerReaders()
        self._topics_version = 0  # grows with each change of topics
        self._calms: dict[str, Calm] = {}
        self.memory = ShardMemory()

    def settings_of(self, group_id: str) -> ConsumerGroupSettings:
        """What holds for a group."""
        return self._settings(group_id)

    def _advance(self, effects: Effects, draft: Draft, heard: Heard, now: Now) -> None:
        """A new group epoch and a new target where they are due, and one step of this member towards its target."""
        group_id, member_id = draft.group.group_id, heard.member_id
        watch = self._watches.get(group_id) or Watch()
        unresolved = draft.group.members[member_id].subscribed_topic_regex not in {"", *draft.group.patterns}
        # a pattern that is still to be resolved starts an epoch when it is: one assignment instead of two
        bump = draft.group.epoch == INITIAL_EPOCH or heard.new_names or (heard.new_pattern and not unresolved)
        topics = SubscribedTopics(draft.group, self.topics)
        self._refresh(draft, topics, watch, now, bump=bump)
        self._reconcile(effects, draft, topics, heard, now)
        if heard.replaced is not None:
            self._forget(effects, group_id, heard.replaced)
        self._keep_session(effects, (group_id, member_id), heard.session_ms, now)
        self._watch(effects, draft.group, watch, now)

    def _refresh(self, draft: Draft, topics: SubscribedTopics, watch: Watch, now: Now, *, bump: bool = False) -> None:
        if bump or not watch.topics_seen:
            refresh_epoch(draft, topics, bump=bump)
        refresh_target(draft, topics, self._settings(draft.group.group_id), now)

    def _reconcile(self, effects: Effects, draft: Draft, topics: SubscribedTopics, heard: Heard, now: Now) -> None:
        group, member_id = draft.group, heard.member_id
        resubscribed = heard.new_names or heard.new_pattern
        if group.is_reconciled(member_id) and not resubscribed:
            return
        current = group.current(member_id)
        situation = Situation(
            target_epoch=group.assignment_epoch,
            target=group.targets.get(member_id, {}),
            subscribed=topics.ids_of(member_id),
            resubscribed=resubscribed,
            owned=heard.owned,
            owners=group.owners,
        )
        moved = reconcile(current, situation)
        if moved is None:
            message = "The consumer group member is in an unknown state. It must abandon all its partitions and rejoin."
            raise Refused(KafkaErrorCode.FENCED_MEMBER_EPOCH, message)
        if moved == current:
            return
        draft.add(moved)
        if group.members[member_id].classic is not None:
            return  # it is watched by the timers of its join and its sync
        timer = (CONSUMER, REBALANCE, group.group_id, member_id)
        if moved.state == MemberState.UNREVOKED_PARTITIONS:
            effects.set_timer(timer, now.ms + group.members[member_id].rebalance_timeout_ms)
        elif current.state == MemberState.UNREVOKED_PARTITIONS:
            effects.cancel_timer(timer)

    def _remove(self, effects: Effects, before: ConsumerGroup, member_ids: Sequence[str], now: Now) -> None:
        """Take members out of a group."""
        draft = Draft(before)
        membership.remove(draft, member_ids, self.topics)
        if not self._finish(effects, before, draft, now):
            for member_id in member_ids:
                self._forget(effects, before.group_id, member_id)

    def _finish(self, effects: Effects, before: ConsumerGroup, draft: Draft, now: Now) -> bool:
        """The records of a command, or those that make a classic group of it; answer whether it became one."""
        converted = self.to_classic(before, draft.group, now) if self.to_classic is not None else None
        if converted is None:
            effects.records += draft.records
            return False
        for member_id in before.members.keys() | draft.group.members.keys():
            self._forget(effects, before.group_id, member_id)
        effects.extend(converted)
        return True

    def _watch(self, effects: Effects, group: ConsumerGroup, watch: Watch, now: Now) -> None:
        """Last in a command, when nothing can refuse it any more: topics have been seen, patterns are asked for."""
        self._watches[group.group_id] = watch
        watch.topics_seen = True
        patterns = want_resolved(group, watch, self._settings(group.group_id), self._topics_version, now)
        if patterns:
            watch.resolving, watch.patterns_version = True, self._topics_version
            effects.questions.append(ResolvePatterns(group.group_id, patterns))

    def _keep_session(self, effects: Effects, name: tuple[str, str], timeout_ms: int, now: Now) -> None:
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = Session(now.ms, timeout_ms)
            self._watch_session(effects, name, session, now)
        session.heard_ms, session.timeout_ms = now.ms, timeout_ms
        if session.over_ms < session.timer_ms:
            self._watch_session(effects, name, session, now)

    def _watch_session(self, effects: Effects, name: tuple[str, str], session: Session, now: Now) -> None:
        session.timer_ms = look_at_ms(session.over_ms, now.ms)
        effects.set_timer((CONSUMER, SESSION, *name), session.timer_ms)

    def _end_calm(self, group_id: str) -> None:
        """A heartbeat may lead to something from now on."""
        calm = self._calms.pop(group_id, None)
        if calm is not None:
            calm.stands = False

    def _forget(self, effects: Effects, group_id: str, member_id: str) -> None:
        self._sessions.pop((group_id, member_id), None)
        self._rejoining.discard((group_id, member_id))
        for kind in (SESSION, REBALANCE, JOIN, SYNC):
            effects.cancel_timer((CONSUMER, kind, group_id, member_id))
