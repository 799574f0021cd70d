"""A consumer group as ConsumerGroupDescribe shows it. Source: ConsumerGroup.asDescribedGroup of Apache Kafka."""

from kafkalite.state.groups.assignors import Assignment
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.requests import ConsumerGroupSettings, GroupDescription, MemberDescription
from kafkalite.state.groups.consumer.target_assignment import assignor_of
from kafkalite.state.groups.records import ConsumerGroupCurrentMemberAssignment, ConsumerGroupMemberMetadata


def describe(group: ConsumerGroup, settings: ConsumerGroupSettings) -> GroupDescription:
    """Return the description of the group, members in order of their ids."""
    return GroupDescription(
        group=group.group_id,
        state=group.state.value,
        epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=assignor_of(group, settings),
        members=tuple(_describe_member(group, group.members[member_id]) for member_id in sorted(group.members)),
    )


def _describe_member(group: ConsumerGroup, member: ConsumerGroupMemberMetadata) -> MemberDescription:
    current = group.current(member.member_id)
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=current.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_topic_names,
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_owned(current),
        target_assignment=group.targets.get(member.member_id, {}),
        speaks_classic=member.classic is not None,
    )


def _owned(current: ConsumerGroupCurrentMemberAssignment) -> Assignment:
    topics = sorted(current.assigned.keys() | current.pending_revocation.keys())
    return {
        topic_id: frozenset(current.assigned.get(topic_id, {}).keys() | current.pending_revocation.get(topic_id, {}))
        for topic_id in topics
    }
