"""A user-defined assignor of aiokafka as one of the engine."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from kafkalite.model import TopicPartition
from kafkalite_sdk.compat.aiokafka.cluster import ClusterMetadata
from kafkalite_sdk.compat.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafkalite_sdk.compat.aiokafka.coordinator.assignors.range import RangePartitionAssignor
from kafkalite_sdk.compat.aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafkalite_sdk.compat.aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafkalite_sdk.compat.aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from kafkalite_sdk.compat.aiokafka.settings import reject_arguments
from kafkalite_sdk.membership.assignors import Assignment, ClassicAssignor, MemberSubscription
from kafkalite_sdk.membership.user_data import by_topic

Assignors = Sequence[type[AbstractPartitionAssignor]]
BUILT_IN = (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)


class UserAssignor:
    """Calls the class methods of an assignor.

    Arguments:
        assignor: of the application.
        name: of the assignor.
        topics: returns the topics that the consumer reads.
    """

    cooperative = False

    def __init__(
        self, assignor: type[AbstractPartitionAssignor], name: str, topics: Callable[[], Iterable[str]]
    ) -> None:
        self.name = name
        self._assignor = assignor
        self._topics = topics
        self._data: dict[str, bytes] = {}

    def user_data(self, owned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """The user data of the subscription."""
        return self._assignor.metadata(sorted(self._topics())).user_data

    def assign(self, members: Mapping[str, MemberSubscription], partitions: Mapping[str, int]) -> Assignment:
        """Assign all partitions."""
        subscriptions = {
            member_id: ConsumerProtocolMemberMetadata(member.version, sorted(member.topics), member.user_data or b"")
            for member_id, member in members.items()
        }
        found = self._assignor.assign(ClusterMetadata(partitions), subscriptions)
        self._data = {member_id: each.user_data for member_id, each in found.items()}
        return {member_id: frozenset(each.partitions()) for member_id, each in found.items()}

    def assignment_data(self, member_id: str) -> bytes | None:
        """The user data of a member's assignment."""
        return self._data.get(member_id)

    def on_assignment(self, partitions: frozenset[TopicPartition], user_data: bytes | None) -> None:
        """Report an assignment of this member."""
        assigned = list(by_topic(partitions).items())
        self._assignor.on_assignment(ConsumerProtocolMemberAssignment(0, assigned, user_data or b""))


def engine_assignors(assignors: Assignors, topics: Callable[[], Iterable[str]]) -> list[str | ClassicAssignor]:
    """Return the assignors as the engine accepts them: names of its own, objects of others.

    Arguments:
        assignors: classes of aiokafka or of the application.
        topics: returns the topics that the consumer reads.

    Raises: ValueError for those that are not supported.
    """
    return [_engine_assignor(each, topics) for each in assignors]


def _engine_assignor(
    assignor: type[AbstractPartitionAssignor], topics: Callable[[], Iterable[str]]
) -> str | ClassicAssignor:
    name: object = getattr(assignor, "name", None)
    if not isinstance(assignor, type) or not issubclass(assignor, AbstractPartitionAssignor):
        raise reject_arguments(f"the assignor {assignor!r}", "pass a subclass of AbstractPartitionAssignor")
    if not isinstance(name, str) or not name:
        raise reject_arguments(f"the assignor {assignor!r} with the name {name!r}", "set `name` to a text")
    if assignor in BUILT_IN:
        return name
    if issubclass(assignor, StickyPartitionAssignor):
        raise reject_arguments(f"{assignor!r}, a subclass of StickyPartitionAssignor,", "derive from another assignor")
    return UserAssignor(assignor, name, topics)
