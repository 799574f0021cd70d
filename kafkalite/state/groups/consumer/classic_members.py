"""Members of the classic protocol in a consumer group (KIP-848, online migration): JoinGroup, SyncGroup, Heartbeat and
LeaveGroup, served from the assignment that the broker makes.

A join is the classic form of a full heartbeat: it has the member's subscription and partitions, moves the member one
step towards its target, and is answered at once; its generation is the member epoch. There is no leader.
`groups/consumer/classic_table` has the responses; after REBALANCE_IN_PROGRESS a member has its rebalance timeout to
join, and after a join the same time to fetch its assignment. Otherwise it is removed.
Difference from Kafka: an unknown member id may join only if it owns nothing. Kafka accepts the partitions it names.
Source: GroupMetadataManager.java (classicGroup...ToConsumerGroup) of Apache Kafka 4.3.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, Token, answer_only
from kafkalite.state.groups.assignors import Assignment
from kafkalite.state.groups.classic.requests import (
    ErrorOnly,
    Heartbeat,
    Join,
    Joined,
    Leave,
    LeaveOf,
    Left,
    LeftMember,
    Sync,
    Synced,
    distinct_protocols,
    fresh_member_id,
)
from kafkalite.state.groups.classic.settings import CONSUMER_PROTOCOL
from kafkalite.state.groups.consumer import membership
from kafkalite.state.groups.consumer.classic_member_memory import memory_of_member
from kafkalite.state.groups.consumer.classic_responses import (
    ClassicMemberRequest,
    ClassicRequest,
    keep_alive,
    protocol_of,
)
from kafkalite.state.groups.consumer.classic_table import serve
from kafkalite.state.groups.consumer.draft import Draft
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.group_steps import JOIN, REBALANCE, SYNC, GroupSteps, MemberReport
from kafkalite.state.groups.consumer.requests import CommandRejected, MigrationPolicy
from kafkalite.state.groups.consumer.static_members import check_static, replace
from kafkalite.state.groups.consumer.subscribed_regex import RegexWatch
from kafkalite.state.groups.consumer.subscribed_topics import SubscribedTopics
from kafkalite.state.groups.consumer_protocol import Subscription
from kafkalite.state.groups.records import CONSUMER, ClassicMemberMetadata, ConsumerGroupMemberMetadata


class ClassicProtocolMembers:
    """Serves the requests of classic-protocol members of a consumer group that exists.

    Arguments:
        steps: the steps that commands share.
    """

    def __init__(self, steps: GroupSteps) -> None:
        self._steps = steps

    def join(self, request: Join, token: Token, now: Now) -> Effects:
        """Join or rejoin; the result is a `Joined`.

        Without a result this join has converted the group to a classic group: the member, whose id there is its own or
        `fresh_member_id`, must join it.
        """
        effects = Effects()
        try:
            joined = self._join(effects, request, now)
        except CommandRejected as refused:
            fenced = refused.code == KafkaErrorCode.FENCED_MEMBER_EPOCH
            code = KafkaErrorCode.UNKNOWN_MEMBER_ID if fenced else refused.code
            effects, joined = Effects(), Joined(code, request.member_id)
        if joined is not None:
            effects.answer(token, joined)
        return effects

    def sync(self, request: Sync, token: Token, now: Now) -> Effects:
        """Return the assignment; the result is a `Synced`."""
        group, member_id = self._steps.groups[request.group], request.member_id
        error = _refusal(group, member_id, request.group_instance_id, request.generation)
        if not error:
            supported = (None, protocol_of(group.members[member_id])[0])
            if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol not in supported:
                error = KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error:
            return answer_only(token, Synced(error))
        effects = Effects()
        sync, member = ClassicMemberRequest.SYNC, group.members[member_id]
        serve(ClassicRequest(self._steps, effects, token, group, member, sync, now))
        return effects

    def heartbeat(self, request: Heartbeat, token: Token, now: Now) -> Effects:
        """Extend the session of a member; the result is an `ErrorOnly`. Every heartbeat also checks the topics."""
        group, effects = self._steps.groups[request.group], Effects()
        error = _refusal(group, request.member_id, request.group_instance_id, request.generation)
        if error:
            return answer_only(token, ErrorOnly(error))
        draft, watch = Draft(group), self._steps.watches.get(request.group) or RegexWatch()
        self._steps.refresh(draft, SubscribedTopics(draft.group, self._steps.topics), watch, now)
        self._steps.watch(effects, draft.group, watch, now)
        effects.records += draft.records
        heartbeat, member = ClassicMemberRequest.HEARTBEAT, group.members[request.member_id]
        keep_alive(self._steps, effects, member, now)
        serve(ClassicRequest(self._steps, effects, token, draft.group, member, heartbeat, now))
        return effects

    def leave(self, request: Leave, token: Token, now: Now) -> Effects:
        """Remove members that leave, or that are named by their instance ids; the result is a `Left`."""
        group, effects = self._steps.groups[request.group], Effects()
        gone: dict[str, None] = {}
        left = []
        for leaver in request.members:
            error = _leave_refusal(group, leaver, gone)
            if not error:
                gone[_member_of(group, leaver)] = None
            left.append(LeftMember(leaver.member_id, leaver.group_instance_id, error))
        if gone:
            self._steps.remove(effects, group, list(gone), now)
        effects.answer(token, Left(members=tuple(left)))
        return effects

    # joining

    def _join(self, effects: Effects, request: Join, now: Now) -> Joined | None:
        before = self._steps.groups[request.group]
        subscription = self._validated(before, request)
        if not request.member_id and request.group_instance_id is None and request.member_id_required:
            return Joined(KafkaErrorCode.MEMBER_ID_REQUIRED, fresh_member_id(request))
        draft, member_id = Draft(before), request.member_id or fresh_member_id(request)
        replaced = _admit(draft, request, member_id, subscription)
        known = membership.metadata_of(draft.group, member_id)
        after = _described(known, request, subscription)
        if not self._steps.memory.accepts(memory_of_member(after) - memory_of_member(known)):
            raise CommandRejected(
                KafkaErrorCode.GROUP_MAX_SIZE_REACHED, "Group members use all memory that is reserved for them."
            )
        new_names, new_pattern = membership.note(draft, after)
        owned = self._owned(subscription)
        report = MemberReport(member_id, request.session_timeout_ms, owned, new_names, new_pattern, replaced)
        self._steps.advance(effects, draft, report, now)
        if self._steps.finish(effects, before, draft, now):
            return None
        self.cancel_timers(effects, request.group, member_id)
        effects.cancel_timer((CONSUMER, REBALANCE, request.group, member_id))
        effects.set_timer((CONSUMER, SYNC, request.group, member_id), now.ms + after.rebalance_timeout_ms)
        epoch = draft.group.current(member_id).member_epoch
        return Joined(0, member_id, epoch, CONSUMER_PROTOCOL, protocol_of(after)[0])

    def _validated(self, group: ConsumerGroup, request: Join) -> Subscription:
        """What the member subscribes to, where it may join."""
        settings, instance = self._steps.settings_of(group.group_id), request.group_instance_id
        holder = group.static_members.get(instance) if instance is not None else None
        known = holder is not None or request.member_id in group.members
        subscriptions = [self._steps.embedded.subscription(metadata) for _, metadata in request.protocols]
        understood = request.protocol_type == CONSUMER_PROTOCOL and None not in subscriptions
        if settings.migration is MigrationPolicy.DISABLED:
            raise CommandRejected(
                KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                "group.consumer.migration.policy does not allow the conversion.",
            )
        if len(group.members) >= settings.max_size and not known:
            raise CommandRejected(KafkaErrorCode.GROUP_MAX_SIZE_REACHED, "The consumer group is full.")
        if not understood or not _agrees(group, request, {holder, request.member_id}):
            raise CommandRejected(KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL, "Not all members support the protocol.")
        found = subscriptions[0]
        assert found is not None
        return found

    def _owned(self, subscription: Subscription) -> Assignment:
        owned: dict[bytes, set[int]] = {}
        for name, partition in subscription.owned:
            topic = self._steps.topics.by_name(name)
            if topic is not None:
                owned.setdefault(topic.topic_id, set()).add(partition)
        return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}

    def cancel_timers(self, effects: Effects, group_id: str, member_id: str) -> None:
        """The member has joined, or has changed to the consumer protocol."""
        self._steps.rejoining.discard((group_id, member_id))
        for kind in (JOIN, SYNC):
            effects.cancel_timer((CONSUMER, kind, group_id, member_id))

    def keep_alive_all(self, effects: Effects, group: ConsumerGroup, now: Now) -> None:
        """The members of a classic group have their whole sessions from its conversion on."""
        for member in group.members.values():
            if member.classic is not None:
                keep_alive(self._steps, effects, member, now)


def _admit(draft: Draft, request: Join, member_id: str, subscription: Subscription) -> str | None:
    """Reject an invalid sender of a join; replace the static member with its instance id, and return its id."""
    group, instance = draft.group, request.group_instance_id
    if instance is not None and request.member_id:
        check_static(group, instance, member_id)
    elif instance is not None and instance in group.static_members:
        return replace(draft, group.static_members[instance], member_id)
    elif member_id not in group.members and subscription.owned:
        raise membership.unknown(member_id, group)  # it was removed, and must drop its partitions
    return None


def _agrees(group: ConsumerGroup, request: Join, leaving: set[str | None]) -> bool:
    """Whether all other members of the classic protocol support one of these protocols."""
    common = {name for name, _ in request.protocols}
    for member_id, member in group.members.items():
        if member.classic is not None and member_id not in leaving:
            common &= {name for name, _ in member.classic.protocols}
    return bool(common)


def _described(
    before: ConsumerGroupMemberMetadata, request: Join, subscription: Subscription
) -> ConsumerGroupMemberMetadata:
    return before._replace(
        instance_id=before.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        subscribed_topic_regex="",
        rebalance_timeout_ms=max(0, request.rebalance_timeout_ms),
        classic=ClassicMemberMetadata(request.session_timeout_ms, distinct_protocols(request.protocols)),
    )


def _refusal(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> int:
    if instance_id is not None:
        holder = group.static_members.get(instance_id)
        if holder is not None and holder != member_id:
            return KafkaErrorCode.FENCED_INSTANCE_ID
        member_id = holder or ""
    if not group.speaks_classic(member_id):
        return KafkaErrorCode.UNKNOWN_MEMBER_ID
    matches = generation == group.current(member_id).member_epoch
    return KafkaErrorCode.NONE if matches else KafkaErrorCode.ILLEGAL_GENERATION


def _member_of(group: ConsumerGroup, leaver: LeaveOf) -> str:
    """The id of who leaves; an administrator names only the instance."""
    if leaver.group_instance_id is None:
        return leaver.member_id
    return group.static_members.get(leaver.group_instance_id, "")


def _leave_refusal(group: ConsumerGroup, leaver: LeaveOf, gone: dict[str, None]) -> int:
    found = _member_of(group, leaver)
    if found not in group.members or found in gone:
        return KafkaErrorCode.UNKNOWN_MEMBER_ID
    return KafkaErrorCode.NONE if leaver.member_id in ("", found) else KafkaErrorCode.FENCED_INSTANCE_ID
