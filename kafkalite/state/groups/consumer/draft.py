"""The group that a command works on: the group as it will be when the records of the command are applied."""

from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.records import (
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTombstone,
)


class Draft:
    """A copy of a group, with the records of the current command applied. The group itself changes in `apply` only.

    Attributes:
        group: the copy; the group itself while there are no records.
        records: of the command so far.
    """

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[object] = []

    def add(self, record: object) -> None:
        """Add a record and apply it to the copy."""
        if not self.records:
            self.group = self.group.copy()
        self.records.append(record)
        self.group.apply(record)

    def delete(self, of: type, key: str = "") -> None:
        """Add the tombstone of a record of class `of`; `key` as in `ConsumerGroupTombstone`."""
        self.add(ConsumerGroupTombstone(self.group.group_id, of, key))

    def delete_member(self, member_id: str) -> None:
        """Add the tombstones of all records of a member."""
        self.delete(ConsumerGroupCurrentMemberAssignment, member_id)
        self.delete(ConsumerGroupTargetAssignmentMember, member_id)
        self.delete(ConsumerGroupMemberMetadata, member_id)
