"""The leader of a classic group: assigns the partitions of all topics that members read.

Pure. A leader serves members of any client: subscriptions are decoded in versions 0 to 3, and each member receives its
assignment in the version of its subscription. A malformed subscription counts as one without topics.
"""

from collections import Counter
from collections.abc import Iterable

from kafkalite.errors import DecodeError
from kafkalite.protocol.messages.join_group import JoinGroupResponse
from kafkalite_sdk.membership.assignors import AssignmentData, ClassicAssignor, MemberSubscription, without_transfers
from kafkalite_sdk.membership.consumer_protocol import decode_assignment, decode_subscription, encode_assignment
from kafkalite_sdk.membership.topics import GroupTopics


class GroupLeader:
    """The leader of one generation.

    Arguments:
        assignor: of the generation.
        joined: the response to the leader's JoinGroup.

    Attributes:
        assignor: of the generation.
        topics: that the members read.
        skips: the group keeps its assignment: the leader is a static member that has restarted (KIP-814).
    """

    def __init__(self, assignor: ClassicAssignor, joined: JoinGroupResponse) -> None:
        self.assignor = assignor
        self.skips = joined.skip_assignment
        self._members = {
            member.member_id: _subscription(assignor.name, member.metadata, member.group_instance_id)
            for member in joined.members
        }
        self.topics = frozenset().union(*(member.topics for member in self._members.values()))
        self._assigned: dict[str, int] | None = None

    def assign(self, topics: GroupTopics) -> dict[str, bytes]:
        """The assignment of every member, as SyncGroup sends it; none if the group keeps its assignment.

        Raises: ValueError if the assignor returns an impossible assignment, and what a user-defined assignor raises.
        """
        self._assigned = topics.counts(self.topics)
        if self.skips:
            return {}
        assigned = self.assignor.assign(self._members, self._assigned)
        if self.assignor.cooperative:
            assigned = without_transfers(self._members, assigned)
        owners = Counter(partition for partitions in assigned.values() for partition in partitions)
        repeated = sorted(partition for partition, count in owners.items() if count > 1)
        unknown = sorted(assigned.keys() - self._members.keys())
        if repeated or unknown:
            problem = f"{repeated[0]} has two owners" if repeated else f"{unknown[0]} is no member"
            raise ValueError(f"impossible assignment: {problem}")
        return {
            member_id: encode_assignment(assigned.get(member_id, ()), member.version, self._data(member_id))
            for member_id, member in self._members.items()
        }

    def _data(self, member_id: str) -> bytes | None:
        assignor = self.assignor
        return assignor.assignment_data(member_id) if isinstance(assignor, AssignmentData) else None

    def covers(self, assignments: Iterable[bytes]) -> bool:
        """Whether the assignments of the members, which an earlier leader may have computed, contain all partitions."""
        try:
            assigned = {partition for data in assignments for partition in decode_assignment(data)[0]}
        except DecodeError:
            return False
        wanted = {(topic, number) for topic, count in (self._assigned or {}).items() for number in range(count)}
        return wanted <= assigned

    def is_outdated(self, topics: GroupTopics) -> bool:
        """Whether topics were created, deleted or have grown since the assignment."""
        return self._assigned is not None and topics.counts(self.topics) != self._assigned


def _subscription(assignor: str, metadata: bytes, instance_id: str | None) -> MemberSubscription:
    try:
        return decode_subscription(assignor, metadata, instance_id)
    except DecodeError:
        return MemberSubscription(frozenset(), instance_id=instance_id, version=0)
