"""Static members of a consumer group: they have an instance id, and may restart with another member id.

All functions work on a `Draft` or a group and raise `CommandRejected`. Classic groups: `groups/classic/static_members`.
Sources: KIP-345, KIP-848; GroupMetadataManager.java.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.groups.consumer.draft import Draft
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.requests import JOIN_EPOCH, STATIC_LEAVE_EPOCH, CommandRejected
from kafkalite.state.groups.records import ConsumerGroupTargetAssignmentMember


def join_static(draft: Draft, instance_id: str, member_id: str) -> str | None:
    """A member with an instance id joins; returns the id of the member that it replaces, if any."""
    holder = draft.group.static_members.get(instance_id)
    if holder is None or holder == member_id:
        return None
    _check_released(draft.group, holder, member_id)
    return replace(draft, holder, member_id)


def check_static(group: ConsumerGroup, instance_id: str, member_id: str) -> None:
    """Reject a sender that is not the current member of this instance id."""
    holder = group.static_members.get(instance_id)
    if holder is None:
        raise CommandRejected(KafkaErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder != member_id:
        message = f"Static member {member_id} with instance id {instance_id} was fenced by member {holder}."
        raise CommandRejected(KafkaErrorCode.FENCED_INSTANCE_ID, message)


def _check_released(group: ConsumerGroup, holder: str, member_id: str) -> None:
    """A member of the consumer protocol announces a temporary leave; one of the classic protocol cannot."""
    if group.speaks_classic(holder) or group.current(holder).member_epoch == STATIC_LEAVE_EPOCH:
        return
    message = f"Static member {member_id} cannot join the group: its instance id is owned by member {holder}."
    raise CommandRejected(KafkaErrorCode.UNRELEASED_INSTANCE_ID, message)


def replace(draft: Draft, holder: str, member_id: str) -> str:
    """Replace a static member that rejoins with a new member id; returns the old member id."""
    group = draft.group
    metadata, target, current = group.members[holder], group.targets.get(holder, {}), group.current(holder)
    draft.delete_member(holder)
    draft.add(metadata._replace(member_id=member_id))
    draft.add(ConsumerGroupTargetAssignmentMember(group.group_id, member_id, target))
    draft.add(current._replace(member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH))
    return holder
