"""Memory of members of the classic protocol in consumer groups, for the bound of `groups/member_memory`.

Members of the consumer protocol have no metadata of their own making, and do not count. Apache Kafka has no such bound.
"""

from kafkalite.state.groups.classic.members import memory_of
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.member_memory import MEMBER_BYTES
from kafkalite.state.groups.records import ConsumerGroupMemberMetadata, ConsumerGroupTombstone


def memory_of_member(member: ConsumerGroupMemberMetadata | None) -> int:
    """Bytes that a member holds; 0 without a member, or if it uses the consumer protocol."""
    if member is None or member.classic is None:
        return 0
    names = (member.member_id, member.client_id, member.client_host, member.instance_id)
    return MEMBER_BYTES + sum(len(name) for name in names if name) + memory_of(member.classic.protocols)


def memory_of_group(group: ConsumerGroup) -> int:
    """Bytes that the members of a group hold."""
    return sum(memory_of_member(member) for member in group.members.values())


def growth_by(group: ConsumerGroup, record: object) -> int:
    """Bytes that a record of the group will add; negative = bytes that it releases."""
    if isinstance(record, ConsumerGroupMemberMetadata):
        return memory_of_member(record) - memory_of_member(group.members.get(record.member_id))
    if isinstance(record, ConsumerGroupTombstone) and record.of is ConsumerGroupMemberMetadata:
        return -memory_of_member(group.members.get(record.key))
    return 0
