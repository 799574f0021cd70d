"""ConsumerGroupHeartbeat in a consumer group (KIP-848): a member joins, leaves, or extends its session.

A heartbeat has four steps: it updates the member, bumps the group epoch if its subscription or the topics have changed,
computes a new target assignment if the group epoch is ahead of the last one, and moves the member one step towards its
target (`groups/consumer/reconciliation`). Other members move with their own heartbeats.
Source: GroupMetadataManager.consumerGroupHeartbeat of Apache Kafka 4.3.
"""

from collections.abc import Sequence

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.consumer import membership
from kafkalite.state.groups.consumer.classic_members import ClassicProtocolMembers
from kafkalite.state.groups.consumer.draft import Draft
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.group_steps import REBALANCE, GroupSteps, MemberReport
from kafkalite.state.groups.consumer.requests import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    CommandRejected,
    ConsumerGroupHeartbeat,
    ConsumerGroupSettings,
    HeartbeatResult,
    check_heartbeat,
)
from kafkalite.state.groups.records import CONSUMER


class Heartbeats:
    """The heartbeats of all consumer groups of a shard.

    Arguments:
        steps: of commands, with the groups and sessions.
        classic: the members of the classic protocol: one that sends this heartbeat changes to the consumer protocol.
    """

    __slots__ = ("_classic", "_steps")

    def __init__(self, steps: GroupSteps, classic: ClassicProtocolMembers) -> None:
        self._steps = steps
        self._classic = classic

    def heartbeat(
        self, request: ConsumerGroupHeartbeat, token: Token, now: Now, founding: Sequence[object] = ()
    ) -> Effects:
        """A member joins, leaves or extends its session. The result is a `HeartbeatResult`.

        Arguments:
            request: of the member.
            token: of the response.
            now: the time.
            founding: the records that convert a classic group; they precede those of the heartbeat.
        """
        effects = Effects()
        try:
            settings = self._steps.settings_of(request.group)
            check_heartbeat(request, settings)
            if request.member_epoch < 0:
                result = self._leave(effects, request, now)
            else:
                result = self._beat(effects, request, founding, settings, now)
        except CommandRejected as refused:
            effects, result = Effects(), HeartbeatResult(refused.code, refused.message)
        effects.answer(token, result)
        return effects

    def fast_heartbeat(
        self, name: str, member_id: str, instance_id: str | None, epoch: int, client: tuple[str, str], now_ms: int
    ) -> int | None:
        """Extend the session of a member if `heartbeat` would do only that and return no error.

        Arguments:
            name: of the group.
            member_id, instance_id, epoch: as in the request.
            client: its id and host.
            now_ms: on the monotonic clock.

        Returns: the heartbeat interval of the response, in ms; None if the heartbeat does more: nothing has changed.
        """
        steps = self._steps
        group, watch = steps.groups.get(name), steps.watches.get(name)
        if group is None or watch is None or watch.has_patterns or not watch.topics_seen:
            return None
        if not group.is_stable_member(member_id, instance_id, epoch, client):
            return None
        settings, session = steps.settings_of(name), steps.sessions.get((name, member_id))
        if session is None or session.timeout_ms != settings.session_timeout_ms:
            return None
        session.over_ms = now_ms + session.timeout_ms  # the timer of the same timeout fires early enough
        return settings.heartbeat_interval_ms

    def _beat(
        self,
        effects: Effects,
        request: ConsumerGroupHeartbeat,
        founding: Sequence[object],
        settings: ConsumerGroupSettings,
        now: Now,
    ) -> HeartbeatResult:
        group_id, member_id = request.group, request.member_id
        draft = Draft(self._group(request))
        for record in founding:
            draft.add(record)
        if len(draft.group.members) >= settings.max_size and member_id not in draft.group.members:
            message = f"The consumer group has reached its maximum capacity of {settings.max_size} members."
            raise CommandRejected(KafkaErrorCode.GROUP_MAX_SIZE_REACHED, message)
        was_classic = draft.group.speaks_classic(member_id)
        replaced = membership.add_member(draft, request)
        before = draft.group.current(member_id)
        new_names, new_pattern = membership.describe_itself(draft, request)
        report = MemberReport(member_id, settings.session_timeout_ms, request.owned, new_names, new_pattern, replaced)
        self._steps.advance(effects, draft, report, now)
        if was_classic:
            self._classic.cancel_timers(effects, group_id, member_id)
        if founding:
            self._classic.keep_alive_all(effects, draft.group, now)
        effects.records += draft.records
        current = draft.group.current(member_id)
        progressed = current.assigned != before.assigned
        includes_assignment = request.member_epoch == JOIN_EPOCH or request.is_full or progressed
        assignment = (
            {topic: frozenset(epochs) for topic, epochs in current.assigned.items()} if includes_assignment else None
        )
        subscribes = request.member_epoch == JOIN_EPOCH or new_names or new_pattern
        interval_ms = self._steps.waiting.interval_ms(
            draft.group, member_id, settings, now, subscribes=subscribes, progressed=progressed
        )
        return HeartbeatResult(KafkaErrorCode.NONE, None, member_id, current.member_epoch, interval_ms, assignment)

    def _group(self, request: ConsumerGroupHeartbeat) -> ConsumerGroup:
        """The group of a request. A join creates it: its first record adds it to the shard."""
        group = self._steps.groups.get(request.group)
        if group is None and request.member_epoch != 0:
            raise CommandRejected(KafkaErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group} not found.")
        return group or ConsumerGroup(request.group, self._steps)

    def _leave(self, effects: Effects, request: ConsumerGroupHeartbeat, now: Now) -> HeartbeatResult:
        before = self._group(request)
        draft = Draft(before)
        member_id = membership.leaving_member(draft.group, request)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            membership.step_aside(draft, member_id)
            effects.cancel_timer((CONSUMER, REBALANCE, request.group, member_id))
            effects.records += draft.records
        else:
            self._steps.remove(effects, before, [member_id], now)
        return HeartbeatResult(KafkaErrorCode.NONE, None, member_id, request.member_epoch)
