"""The cluster as assignors of aiokafka read it."""

from collections.abc import Mapping
from typing import NoReturn

from kafkalite_sdk.compat.aiokafka.installation import missing


class ClusterMetadata:
    """The topics of a group.

    Arguments:
        partitions: number of partitions by topic, of those that exist.
    """

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._partitions = partitions

    def __getattr__(self, name: str) -> NoReturn:
        raise missing(f"aiokafka.cluster.ClusterMetadata.{name}")

    def topics(self) -> set[str]:
        """Return the topics that the members of the group read."""
        return set(self._partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of a topic; None = it does not exist."""
        count = self._partitions.get(topic)
        return None if count is None else set(range(count))

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the same: assignors assign partitions without a leader, too."""
        return self.partitions_for_topic(topic)
