"""ConsumerGroupDescribe, key 69, v0-1: describes consumer groups and their members (KIP-848).

Version notes: v1 reports whether a member uses the classic or the consumer protocol (KIP-1099). A group that does not
exist or is a classic group fails with GROUP_ID_NOT_FOUND.
"""

from functools import partial
from typing import TYPE_CHECKING

from kafkalite.cluster.metadata.image import ClusterImage
from kafkalite.errors import KafkaErrorCode, shorten
from kafkalite.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kafkalite.server.requests.authorized_operations import group_operations
from kafkalite.server.requests.call import GroupCall
from kafkalite.server.requests.group_responses import answer_each
from kafkalite.state.authorizer.acls import AclOperation, AclResourceType
from kafkalite.state.groups.assignors import Assignment
from kafkalite.state.groups.consumer.requests import GroupDescription, MemberDescription
from kafkalite.state.groups.machine import GroupMachine

if TYPE_CHECKING:  # imported with an authorizer
    from kafkalite.server.security.authorization import Authorization

HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1

Group = ConsumerGroupDescribeResponse.DescribedGroup
Member = Group.Member
AssignmentMessage = Member.Assignment
TopicPartitions = AssignmentMessage.TopicPartitions


def consumer_group_describe(
    call: GroupCall, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse | None:
    """Describe each group independently."""
    names = list(dict.fromkeys(request.group_ids))  # each once: a response may be far longer than a name
    if "consumer" not in call.context.config.group_coordinator_rebalance_protocols:
        return ConsumerGroupDescribeResponse(
            groups=[refuse(each, KafkaErrorCode.UNSUPPORTED_VERSION) for each in names]
        )
    query = partial(describe, call, call.context.image, request.include_authorized_operations)
    answer_each(call, names, query, refuse, ConsumerGroupDescribeResponse)
    return None


def describe(call: GroupCall, image: ClusterImage, asked: bool, name: str, machine: GroupMachine) -> Group:
    """Describe a group from its shard.

    Arguments:
        call: of the request.
        image: the cluster.
        asked: whether the client asks for the operations that it is authorized for.
        name: of the group.
        machine: of its shard.
    """
    if not name:
        return refuse(name, KafkaErrorCode.INVALID_GROUP_ID)
    described = machine.consumers.describe(name)
    if described is not None:
        group = convert_group(image, described)
        if call.authorization is not None and not may_describe_topics(call.authorization, group):
            return refuse(name, KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN_TOPICS)
        if asked:
            group.authorized_operations = group_operations(call, name)
        return group
    is_classic = name in machine.registry or name in machine.offsets
    text = f"Group {name} is not a consumer group." if is_classic else f"Group {name} not found."
    return refuse(name, KafkaErrorCode.GROUP_ID_NOT_FOUND, text)


def may_describe_topics(authorization: "Authorization", group: Group) -> bool:
    """Return whether a client may describe all topics that the members of a group read."""
    names: set[str] = set()
    for member in group.members:
        names.update(member.subscribed_topic_names)
        for assignment in (member.assignment, member.target_assignment):
            names.update(each.topic_name for each in assignment.topic_partitions)
    return len(authorization.allowed_names(AclOperation.DESCRIBE, AclResourceType.TOPIC, names)) == len(names)


def convert_group(image: ClusterImage, group: GroupDescription) -> Group:
    """Convert a group to the response."""
    return Group(
        group_id=group.group,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[convert_member(image, member) for member in group.members],
    )


def convert_member(image: ClusterImage, member: MemberDescription) -> Member:
    """Convert a member to the response."""
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex or None,
        assignment=convert_assignment(image, member.assignment),
        target_assignment=convert_assignment(image, member.target_assignment),
        member_type=CLASSIC_MEMBER if member.speaks_classic else CONSUMER_MEMBER,
    )


def convert_assignment(image: ClusterImage, assignment: Assignment) -> AssignmentMessage:
    """Group partitions by topic, without topics that were deleted meanwhile."""
    topics = []
    for topic_id, partitions in assignment.items():
        topic = image.topics_by_id.get(topic_id)
        if topic is not None:
            topics.append(TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions)))
    return AssignmentMessage(topic_partitions=topics)


def refuse(name: str, error: int, message: str | None = None) -> Group:
    """Return the response of a group that cannot be described."""
    return Group(
        error_code=error,
        error_message=None if message is None else shorten(message),
        group_id=name,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
