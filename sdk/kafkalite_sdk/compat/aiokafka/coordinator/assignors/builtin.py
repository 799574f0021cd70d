"""The assignors of the engine as classes of aiokafka."""

from collections.abc import Iterable, Mapping

from kafkalite_sdk.compat.aiokafka.cluster import ClusterMetadata
from kafkalite_sdk.compat.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafkalite_sdk.compat.aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from kafkalite_sdk.membership.assignors import BUILT_IN, MemberSubscription
from kafkalite_sdk.membership.user_data import by_topic


class BuiltinPartitionAssignor(AbstractPartitionAssignor):
    """An assignor of the engine. The methods are for subclasses that change its result."""

    name: str = ""

    @classmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Assign as the engine does."""
        algorithm = next(each for each in cls.__mro__ if BuiltinPartitionAssignor in each.__bases__).__dict__["name"]
        subscriptions = {
            member_id: MemberSubscription(frozenset(member.subscription)) for member_id, member in members.items()
        }
        counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in cluster.topics()}
        assigned = BUILT_IN[algorithm].assign(subscriptions, counts)
        return {
            member_id: ConsumerProtocolMemberAssignment(0, list(by_topic(partitions).items()), b"")
            for member_id, partitions in assigned.items()
        }

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return a subscription without user data."""
        return ConsumerProtocolMemberMetadata(0, list(topics), b"")

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Do nothing."""
