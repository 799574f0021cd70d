"""Membership of consumer groups: join, fencing, leave, and the metadata of a member; `static_members` has the rest.

All functions work on a `Draft` and raise `CommandRejected`; records are in Kafka's order (GroupMetadataManager.java).
"""

from collections.abc import Iterable

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.groups.assignors import Assignment
from kafkalite.state.groups.consumer.draft import Draft
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.requests import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    CommandRejected,
    ConsumerGroupHeartbeat,
    TopicLookup,
)
from kafkalite.state.groups.consumer.static_members import check_static, join_static
from kafkalite.state.groups.consumer.subscribed_topics import SubscribedTopics
from kafkalite.state.groups.records import (
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupRegularExpression,
)


def add_member(draft: Draft, request: ConsumerGroupHeartbeat) -> str | None:
    """Add the sender of a heartbeat, or reject it; return the id of the static member that it replaces, if any."""
    group, member_id, joins = draft.group, request.member_id, request.member_epoch == JOIN_EPOCH
    if request.instance_id is None:
        if member_id not in group.members and not joins:
            raise unknown(member_id, group)
        _check_epoch(group, request)
        return None
    if joins:
        return join_static(draft, request.instance_id, member_id)
    check_static(group, request.instance_id, member_id)
    _check_epoch(group, request)
    return None


def unknown(member_id: str, group: ConsumerGroup) -> CommandRejected:
    """The error for an unknown member."""
    message = f"Member {member_id} is not a member of group {group.group_id}."
    return CommandRejected(KafkaErrorCode.UNKNOWN_MEMBER_ID, message)


def _check_epoch(group: ConsumerGroup, request: ConsumerGroupHeartbeat) -> None:
    """A member with the previous epoch may have missed a response, if it owns only partitions that it was assigned."""
    known, received = group.current(request.member_id), request.member_epoch
    if received in (JOIN_EPOCH, known.member_epoch):
        return
    if received == known.previous_member_epoch and received < known.member_epoch and _within(request.owned, known):
        return
    size = "greater" if received > known.member_epoch else "smaller"
    message = (
        f"The consumer group member has a {size} member epoch ({received}) than the one known by the group coordinator "
        f"({known.member_epoch}). The member must abandon all its partitions and rejoin."
    )
    raise CommandRejected(KafkaErrorCode.FENCED_MEMBER_EPOCH, message)


def _within(owned: Assignment | None, known: ConsumerGroupCurrentMemberAssignment) -> bool:
    return owned is not None and all(held <= known.assigned.get(topic, {}).keys() for topic, held in owned.items())


def describe_itself(draft: Draft, request: ConsumerGroupHeartbeat) -> tuple[bool, bool]:
    """Store the metadata of a member; returns whether its topics changed, and whether its pattern changed."""
    return note(draft, _updated(metadata_of(draft.group, request.member_id), request))


def metadata_of(group: ConsumerGroup, member_id: str) -> ConsumerGroupMemberMetadata:
    """The stored metadata of a member; a new member has none."""
    return group.members.get(member_id) or ConsumerGroupMemberMetadata(group.group_id, member_id)


def note(draft: Draft, after: ConsumerGroupMemberMetadata) -> tuple[bool, bool]:
    """Store the metadata of a member; returns whether its topics changed, and whether its pattern changed."""
    before = metadata_of(draft.group, after.member_id)
    if after != before or after.member_id not in draft.group.members:
        draft.add(after)
    new_pattern = after.subscribed_topic_regex != before.subscribed_topic_regex
    if new_pattern:
        _forget_patterns(draft, [before.subscribed_topic_regex])
    return after.subscribed_topic_names != before.subscribed_topic_names, new_pattern


def _updated(before: ConsumerGroupMemberMetadata, request: ConsumerGroupHeartbeat) -> ConsumerGroupMemberMetadata:
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return before._replace(
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        subscribed_topic_names=before.subscribed_topic_names if names is None else tuple(sorted(set(names))),
        subscribed_topic_regex=before.subscribed_topic_regex if pattern is None else pattern,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else max(timeout_ms, 0),
        server_assignor=before.server_assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def _forget_patterns(draft: Draft, patterns: Iterable[str]) -> None:
    """Delete the results of patterns to which no member subscribes."""
    wanted = draft.group.subscribed_patterns()
    for pattern in patterns:
        if pattern in draft.group.patterns and pattern not in wanted:
            draft.delete(ConsumerGroupRegularExpression, pattern)


def leaving_member(group: ConsumerGroup, request: ConsumerGroupHeartbeat) -> str:
    """Return the id of the leaving member; a static member is identified by its instance id."""
    if request.instance_id is not None:
        check_static(group, request.instance_id, request.member_id)
    elif request.member_id not in group.members:
        raise unknown(request.member_id, group)
    return request.member_id


def step_aside(draft: Draft, member_id: str) -> None:
    """A static member leaves temporarily: it keeps its partitions until its session expires."""
    current = draft.group.current(member_id)
    draft.add(current._replace(member_epoch=STATIC_LEAVE_EPOCH, pending_revocation={}))


def remove(draft: Draft, member_ids: Iterable[str], topics: TopicLookup) -> None:
    """Remove members from the group, which makes a new target assignment due."""
    patterns = []
    for member_id in member_ids:
        patterns.append(draft.group.members[member_id].subscribed_topic_regex)
        draft.delete_member(member_id)
    _forget_patterns(draft, dict.fromkeys(patterns))
    group = draft.group
    draft.add(ConsumerGroupMetadata(group.group_id, group.epoch + 1, SubscribedTopics(group, topics).hash()))
