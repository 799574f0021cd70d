"""The target assignment of a consumer group, and the group epoch that calls for a new one.

Source: TargetAssignmentBuilder.java. The group epoch grows with every change that matters to the assignment; a target
assignment is made for one group epoch, at most once per `assignment_interval_ms`, by the assignor that most members ask
for.
"""

from collections import Counter

from kafkalite.state.effects import Now
from kafkalite.state.groups.assignors import ASSIGNORS, Assignment, MemberSpec
from kafkalite.state.groups.consumer.draft import Draft
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.requests import ConsumerGroupSettings
from kafkalite.state.groups.consumer.subscribed_topics import SubscribedTopics
from kafkalite.state.groups.records import (
    ConsumerGroupMetadata,
    ConsumerGroupPartitionMetadata,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
)


def refresh_epoch(draft: Draft, topics: SubscribedTopics, *, bump: bool) -> None:
    """Start a new group epoch where the command asks for one, or where the topics have changed."""
    metadata_hash = topics.hash()
    if bump or metadata_hash != draft.group.metadata_hash:
        draft.add(ConsumerGroupMetadata(draft.group.group_id, draft.group.epoch + 1, metadata_hash))
    if draft.group.has_partition_metadata:
        draft.delete(ConsumerGroupPartitionMetadata)


def is_due(group: ConsumerGroup, settings: ConsumerGroupSettings, now: Now) -> bool:
    """Whether a target assignment is to be made: there is none for the group epoch, and the last one is old enough."""
    return deferred_ms(group, settings, now) == 0


def deferred_ms(group: ConsumerGroup, settings: ConsumerGroupSettings, now: Now) -> int | None:
    """How long the target assignment for the group epoch is deferred, 0 = it is due; None = it exists."""
    if group.epoch <= group.assignment_epoch:
        return None
    age_ms = now.wall_ms - group.assignment_timestamp_ms
    # a wall clock that was set back must not hold up the group
    return max(settings.assignment_interval_ms - age_ms, 0) if age_ms >= 0 else 0


def make_target(draft: Draft, topics: SubscribedTopics, settings: ConsumerGroupSettings, now: Now) -> None:
    """Make the target assignment for the group epoch."""
    group = draft.group
    targets = _assign(group, topics, settings)
    for member_id in sorted(group.members):
        if group.targets.get(member_id) != targets[member_id]:
            draft.add(ConsumerGroupTargetAssignmentMember(group.group_id, member_id, targets[member_id]))
    # A target without topics costs nothing: it does not defer that of the pattern which is being resolved.
    timestamp_ms = now.wall_ms if topics.found else 0
    draft.add(ConsumerGroupTargetAssignmentMetadata(group.group_id, group.epoch, timestamp_ms))


def _assign(group: ConsumerGroup, topics: SubscribedTopics, settings: ConsumerGroupSettings) -> dict[str, Assignment]:
    members = {
        member_id: MemberSpec(
            topics.ids_of(member_id), group.targets.get(member_id, {}), member.instance_id, member.rack_id
        )
        for member_id, member in group.members.items()
    }
    assign = ASSIGNORS[assignor_of(group, settings)]
    in_order = map(topics.found.__getitem__, sorted(topics.found))
    return assign(members, {topic.topic_id: topic.partitions for topic in in_order})


def assignor_of(group: ConsumerGroup, settings: ConsumerGroupSettings) -> str:
    """Return the assignor that most members prefer; among equals the first in the settings."""
    asked = Counter(member.server_assignor for member in group.members.values())
    return max(settings.assignors, key=lambda name: asked[name])
