"""The consumer groups of one shard (KIP-848): a pure machine, `(command, now) -> Effects`.

A heartbeat does four things in a row: it takes note of the member, starts a new group epoch where its subscription or
the topics changed, makes a new target assignment where the group epoch is ahead of it, and moves the member one step
towards its target (`consumer_reconciliation`). Nobody else moves: each member finds out by its own heartbeat.
Sessions are kept in memory: a timer that fires looks whether a heartbeat came meanwhile, so that a heartbeat of a
settled member sets no timer and writes nothing. After a replay every session starts anew.
Source: GroupMetadataManager.consumerGroupHeartbeat of Apache Kafka 4.3.
"""

from collections.abc import Callable, Collection, Mapping

from kafkalite.errors import KafkaErrorCode
from kafkalite.state import consumer_membership as membership
from kafkalite.state import consumer_queries as queries
from kafkalite.state.consumer_messages import (
    STATIC_LEAVE_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupSettings,
    GroupDescription,
    HeartbeatResult,
    Refused,
    Topics,
    check_heartbeat,
)
from kafkalite.state.consumer_patterns import Watch, take_over, want_resolved
from kafkalite.state.consumer_reconciliation import MemberState, Situation, reconcile
from kafkalite.state.consumer_state import INITIAL_EPOCH, ConsumerGroup, Draft
from kafkalite.state.consumer_target import refresh_epoch, refresh_target, subscribed_ids
from kafkalite.state.effects import Effects, Now, ResolvePatterns, TimerName, Token
from kafkalite.state.group_records import CONSUMER, ConsumerGroupTombstone, GroupDeleted

__all__ = ["REBALANCE", "SESSION", "ConsumerGroups"]

SESSION, REBALANCE = "session", "rebalance"
"""Timers are named (CONSUMER, one of these, group, member)."""


class ConsumerGroups:
    """All consumer groups of a shard.

    Arguments:
        topics: the topics as they are at any time; `topics_changed` tells that they are others.
        settings: what holds for a group, by its id.
    """

    def __init__(self, topics: Topics, settings: Callable[[str], ConsumerGroupSettings]) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self.topics = topics
        self._settings = settings
        self._sessions: dict[tuple[str, str], int] = {}  # when each is over, on the monotonic clock
        self._watches: dict[str, Watch] = {}

    def heartbeat(self, token: Token, request: ConsumerGroupHeartbeat, now: Now) -> Effects:
        """A member says that it lives, joins or leaves; answered by a `HeartbeatResult`."""
        effects = Effects()
        try:
            settings = self._settings(request.group)
            check_heartbeat(request, settings)
            if request.member_epoch < 0:
                result = self._leave(effects, request)
            else:
                result = self._beat(effects, request, settings, now)
        except Refused as refused:
            effects, result = Effects(), HeartbeatResult(refused.code, refused.message)
        effects.answer(token, result)
        return effects

    def _beat(
        self, effects: Effects, request: ConsumerGroupHeartbeat, settings: ConsumerGroupSettings, now: Now
    ) -> HeartbeatResult:
        group_id, member_id = request.group, request.member_id
        draft = Draft(self._group(request))
        if len(draft.group.members) >= settings.max_size and member_id not in draft.group.members:
            message = f"The consumer group has reached its maximum capacity of {settings.max_size} members."
            raise Refused(KafkaErrorCode.GROUP_MAX_SIZE_REACHED, message)
        replaced = membership.admit(draft, request)
        before = draft.group.current(member_id)
        new_names, new_pattern = membership.describe_itself(draft, request)
        unresolved = draft.group.members[member_id].subscribed_topic_regex not in {"", *draft.group.patterns}
        watch = self._watches.get(group_id) or Watch()
        # a pattern that is still to be resolved starts an epoch when it is: one assignment instead of two
        bump = draft.group.epoch == INITIAL_EPOCH or new_names or (new_pattern and not unresolved)
        if bump or not watch.topics_seen:
            refresh_epoch(draft, self.topics, bump=bump)
        refresh_target(draft, self.topics, settings, now)
        self._reconcile(effects, draft, request, resubscribed=new_names or new_pattern, now=now)
        if replaced is not None:
            self._forget(effects, group_id, replaced)
        self._keep_session(effects, group_id, member_id, now.ms + settings.session_timeout_ms)
        self._watch(effects, draft.group, watch, now)
        effects.records += draft.records
        current = draft.group.current(member_id)
        told = request.member_epoch == 0 or request.is_full or current.assigned != before.assigned
        assignment = {topic: frozenset(epochs) for topic, epochs in current.assigned.items()} if told else None
        return HeartbeatResult(
            KafkaErrorCode.NONE, None, member_id, current.member_epoch, settings.heartbeat_interval_ms, assignment
        )

    def _group(self, request: ConsumerGroupHeartbeat) -> ConsumerGroup:
        """Whoever joins may find a group that is not there yet: its first record makes it."""
        group = self.groups.get(request.group)
        if group is None and request.member_epoch != 0:
            raise Refused(KafkaErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group} not found.")
        return group or ConsumerGroup(request.group)

    def _reconcile(
        self, effects: Effects, draft: Draft, request: ConsumerGroupHeartbeat, *, resubscribed: bool, now: Now
    ) -> None:
        group, member_id = draft.group, request.member_id
        if group.is_reconciled(member_id) and not resubscribed:
            return
        current = group.current(member_id)
        situation = Situation(
            target_epoch=group.assignment_epoch,
            target=group.targets.get(member_id, {}),
            subscribed=subscribed_ids(group, member_id, self.topics),
            resubscribed=resubscribed,
            owned=request.owned,
            owners=group.owners,
        )
        moved = reconcile(current, situation)
        if moved is None:
            message = "The consumer group member is in an unknown state. It must abandon all its partitions and rejoin."
            raise Refused(KafkaErrorCode.FENCED_MEMBER_EPOCH, message)
        if moved == current:
            return
        draft.add(moved)
        timer = (CONSUMER, REBALANCE, group.group_id, member_id)
        if moved.state == MemberState.UNREVOKED_PARTITIONS:
            effects.set_timer(timer, now.ms + group.members[member_id].rebalance_timeout_ms)
        elif current.state == MemberState.UNREVOKED_PARTITIONS:
            effects.cancel_timer(timer)

    def _leave(self, effects: Effects, request: ConsumerGroupHeartbeat) -> HeartbeatResult:
        draft = Draft(self._group(request))
        member_id = membership.leaving_member(draft.group, request)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            membership.step_aside(draft, member_id)
            effects.cancel_timer((CONSUMER, REBALANCE, request.group, member_id))
        else:
            membership.remove(draft, [member_id], self.topics)
            self._forget(effects, request.group, member_id)
        effects.records += draft.records
        return HeartbeatResult(KafkaErrorCode.NONE, None, member_id, request.member_epoch)

    def expired(self, name: TimerName, now: Now) -> Effects:
        """A timer of this machine has fired."""
        _, kind, group_id, member_id = name
        effects = Effects()
        group = self.groups.get(group_id)
        if group is None or member_id not in group.members:
            return effects
        over_at_ms = self._sessions.get((group_id, member_id), now.ms)
        if kind == SESSION and over_at_ms > now.ms:
            effects.set_timer(name, over_at_ms)
        elif kind == SESSION or _is_revoking(group, member_id):
            draft = Draft(group)
            membership.remove(draft, [member_id], self.topics)
            self._forget(effects, group_id, member_id)
            effects.records += draft.records
        return effects

    def loaded(self, now: Now) -> Effects:
        """The shard has been replayed: every member has a whole session, or rebalance timeout, from now on."""
        effects = Effects()
        for group_id, group in self.groups.items():
            session_ms = self._settings(group_id).session_timeout_ms
            for member_id, member in group.members.items():
                self._keep_session(effects, group_id, member_id, now.ms + session_ms)
                if _is_revoking(group, member_id):
                    effects.set_timer((CONSUMER, REBALANCE, group_id, member_id), now.ms + member.rebalance_timeout_ms)
        return effects

    def topics_changed(self, names: Collection[str]) -> None:
        """Topics came, went or grew: the groups concerned look at them with the next heartbeat of any member."""
        concerned = set(names)
        for group_id, watch in self._watches.items():
            group = self.groups.get(group_id)
            watch.patterns_seen = False
            if group is None or not concerned.isdisjoint(group.subscribed_topics()):
                watch.topics_seen = False

    def _watch(self, effects: Effects, group: ConsumerGroup, watch: Watch, now: Now) -> None:
        """Last in a heartbeat, when nothing can refuse it any more: topics have been seen, patterns are asked for."""
        self._watches[group.group_id] = watch
        watch.topics_seen = True
        patterns = want_resolved(group, watch, self._settings(group.group_id), now)
        if patterns:
            watch.resolving = watch.patterns_seen = True
            effects.questions.append(ResolvePatterns(group.group_id, patterns))

    def patterns_resolved(self, group_id: str, found: Mapping[str, Collection[str]], version: int, now: Now) -> Effects:
        """The answer to `ResolvePatterns`: names of topics by pattern, in the metadata of `version`."""
        effects = Effects()
        group = self.groups.get(group_id)
        if group is None:
            return effects
        watch = self._watches.setdefault(group_id, Watch())
        watch.resolving, watch.resolved_at_ms = False, now.ms
        draft = Draft(group)
        take_over(draft, found, version, self.topics, now)
        effects.records += draft.records
        return effects

    def patterns_failed(self, group_id: str) -> None:
        """The question could not be answered; the next heartbeat asks again."""
        watch = self._watches.get(group_id)
        if watch is not None:
            watch.resolving = watch.patterns_seen = False

    def settings_of(self, group_id: str) -> ConsumerGroupSettings:
        """What holds for a group."""
        return self._settings(group_id)

    def describe(self, group_id: str) -> GroupDescription | None:
        """What ConsumerGroupDescribe shows; None where there is no such group."""
        group = self.groups.get(group_id)
        return None if group is None else queries.describe(group, self._settings(group_id))

    def check_fetch(self, name: str, member_id: str | None, member_epoch: int) -> KafkaErrorCode:
        """Whether this sender may fetch offsets; of a group that is not there nothing is to be protected."""
        group = self.groups.get(name)
        return KafkaErrorCode.NONE if group is None else queries.check_fetch(group, member_id, member_epoch)

    def apply(self, record: object) -> None:
        """Take over one record, in replay and in life alike."""
        group_id: str = record.group  # type: ignore[attr-defined]
        if isinstance(record, GroupDeleted):
            assert record.kind == CONSUMER, "the caller gives each machine its own records"
            self.groups.pop(group_id, None)
            self._watches.pop(group_id, None)
            return
        group = self.groups.get(group_id)
        if group is None:
            if isinstance(record, ConsumerGroupTombstone):
                return
            group = self.groups[group_id] = ConsumerGroup(group_id)
        group.apply(record)

    def _keep_session(self, effects: Effects, group_id: str, member_id: str, over_at_ms: int) -> None:
        if (group_id, member_id) not in self._sessions:
            effects.set_timer((CONSUMER, SESSION, group_id, member_id), over_at_ms)
        self._sessions[group_id, member_id] = over_at_ms

    def _forget(self, effects: Effects, group_id: str, member_id: str) -> None:
        self._sessions.pop((group_id, member_id), None)
        effects.cancel_timer((CONSUMER, SESSION, group_id, member_id))
        effects.cancel_timer((CONSUMER, REBALANCE, group_id, member_id))


def _is_revoking(group: ConsumerGroup, member_id: str) -> bool:
    """Whether the member must give partitions up in time; a static one that is away has done so."""
    current = group.current(member_id)
    return current.state == MemberState.UNREVOKED_PARTITIONS and current.member_epoch != STATIC_LEAVE_EPOCH
