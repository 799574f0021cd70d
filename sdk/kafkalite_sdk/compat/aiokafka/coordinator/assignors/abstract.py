"""The base class of aiokafka's assignors."""

import abc
from collections.abc import Iterable, Mapping

from kafkalite_sdk.compat.aiokafka.cluster import ClusterMetadata
from kafkalite_sdk.compat.aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)


class AbstractPartitionAssignor(abc.ABC):
    """Assigns the partitions of a group to its members; programs override all methods. Instances are not created."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name in the group protocol, the same in all members."""

    @classmethod
    @abc.abstractmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Assign the partitions; called in the leader of the group.

        Arguments:
            cluster: the topics.
            members: subscriptions by member id.

        Returns: the assignment of each member.
        """

    @classmethod
    @abc.abstractmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return the subscription of this member, of which the engine sends the user data.

        Arguments:
            topics: that it reads.
        """

    @classmethod
    @abc.abstractmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Called with each assignment of this member."""
