"""What this broker knows of the cluster: brokers, topics, partitions, who leads. Immutable; swapped whole on change.

Handlers read one image for a whole request, so that an answer never mixes two states of the cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from kafkalite.model import Node
from kafkalite.state.topic_names import folded

NO_LEADER = -1
UNASSIGNED_ID = bytes(16)


def nothing() -> Mapping[Any, Any]:
    """An empty table."""
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """Where one partition lives. `replicas`, `isr`: broker ids, the preferred leader first."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic: its name, 16-byte id, partitions by index, and the configs set on it."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """Everything at one moment. `controller_id` is the broker that admin requests should go to."""

    cluster_id: str
    controller_id: int
    brokers: tuple[Node, ...] = ()
    topics: Mapping[str, TopicImage] = field(default_factory=nothing)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=nothing)
    topics_by_folded_name: Mapping[str, TopicImage] = field(
        default_factory=nothing
    )  # as metrics show names: what collides is found by it

    def with_topics(self, changed: list[TopicImage]) -> "ClusterImage":
        """Answer the image in which these topics are new or replaced."""
        topics, by_id, by_folded = dict(self.topics), dict(self.topics_by_id), dict(self.topics_by_folded_name)
        for topic in changed:
            old = topics.get(topic.name)
            if old is not None:
                del by_id[old.topic_id]
            topics[topic.name] = by_id[topic.topic_id] = by_folded[folded(topic.name)] = topic
        return self._having(topics, by_id, by_folded)

    def without_topic(self, name: str) -> "ClusterImage":
        """Answer the image in which this topic is gone; KeyError when it was not there."""
        topics, by_id, by_folded = dict(self.topics), dict(self.topics_by_id), dict(self.topics_by_folded_name)
        gone = topics.pop(name)
        del by_id[gone.topic_id]
        if by_folded[folded(name)] is gone:
            del by_folded[folded(name)]
        return self._having(topics, by_id, by_folded)

    def _having(
        self, topics: dict[str, TopicImage], by_id: dict[bytes, TopicImage], by_folded: dict[str, TopicImage]
    ) -> "ClusterImage":
        return replace(
            self,
            topics=MappingProxyType(topics),
            topics_by_id=MappingProxyType(by_id),
            topics_by_folded_name=MappingProxyType(by_folded),
        )
