"""The target assignment of a consumer group, and the group epoch that calls for a new one.

Source: TargetAssignmentBuilder.java. The group epoch grows with every change that matters to the assignment; a target
assignment is made for one group epoch, at most once per `assignment_interval_ms`, by the assignor that most members ask
for.
"""

from collections import Counter

from kafkalite.state.assignors import ASSIGNORS, Assignment, MemberSpec
from kafkalite.state.consumer_requests import ConsumerGroupSettings
from kafkalite.state.consumer_state import ConsumerGroup, Draft
from kafkalite.state.consumer_topics import SubscribedTopics
from kafkalite.state.effects import Now
from kafkalite.state.group_records import (
    ConsumerGroupMetadata,
    ConsumerGroupPartitionMetadata,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
)

__all__ = ["assignor_of", "refresh_epoch", "refresh_target"]


def refresh_epoch(draft: Draft, topics: SubscribedTopics, *, bump: bool) -> None:
    """Start a new group epoch where the command asks for one, or where the topics have changed."""
    metadata_hash = topics.hash()
    if bump or metadata_hash != draft.group.metadata_hash:
        draft.add(ConsumerGroupMetadata(draft.group.group_id, draft.group.epoch + 1, metadata_hash))
    if draft.group.has_partition_metadata:
        draft.delete(ConsumerGroupPartitionMetadata)


def refresh_target(draft: Draft, topics: SubscribedTopics, settings: ConsumerGroupSettings, now: Now) -> None:
    """Make a target assignment for the group epoch, unless there is one, or the last one is too young."""
    group = draft.group
    # a wall clock that was set back must not hold up the group
    too_young = 0 <= now.wall_ms - group.assignment_timestamp_ms < settings.assignment_interval_ms
    if group.epoch <= group.assignment_epoch or too_young:
        return
    targets = _assign(group, topics, settings)
    for member_id in sorted(group.members):
        if group.targets.get(member_id) != targets[member_id]:
            draft.add(ConsumerGroupTargetAssignmentMember(group.group_id, member_id, targets[member_id]))
    draft.add(ConsumerGroupTargetAssignmentMetadata(group.group_id, group.epoch, now.wall_ms))


def _assign(group: ConsumerGroup, topics: SubscribedTopics, settings: ConsumerGroupSettings) -> dict[str, Assignment]:
    members = {
        member_id: MemberSpec(
            topics.ids_of(member_id), group.targets.get(member_id, {}), member.instance_id, member.rack_id
        )
        for member_id, member in group.members.items()
    }
    assign = ASSIGNORS[assignor_of(group, settings)]
    return assign(members, {topic.topic_id: topic.partitions for _, topic in sorted(topics.found.items())})


def assignor_of(group: ConsumerGroup, settings: ConsumerGroupSettings) -> str:
    """Answer the assignor that most members ask for; the first of the settings where none asks, or two are level."""
    asked = Counter(member.server_assignor for member in group.members.values())
    return max(settings.assignors, key=lambda name: asked[name])
