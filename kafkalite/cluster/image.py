"""What this broker knows of the cluster: brokers, topics, partitions, who leads. Immutable; swapped whole on change.

Handlers read one image for a whole request, so that an answer never mixes two states of the cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from kafkalite.model import Node

NO_LEADER = -1
UNASSIGNED_ID = bytes(16)


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
    topics: Mapping[str, TopicImage] = field(default_factory=lambda: MappingProxyType({}))
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=lambda: MappingProxyType({}))

    def with_topics(self, changed: list[TopicImage]) -> "ClusterImage":
        """Answer the image in which these topics are new or replaced."""
        topics, by_id = dict(self.topics), dict(self.topics_by_id)
        for topic in changed:
            old = topics.get(topic.name)
            if old is not None:
                del by_id[old.topic_id]
            topics[topic.name] = topic
            by_id[topic.topic_id] = topic
        return replace(self, topics=MappingProxyType(topics), topics_by_id=MappingProxyType(by_id))

    def without_topic(self, name: str) -> "ClusterImage":
        """Answer the image in which this topic is gone; KeyError when it was not there."""
        topics, by_id = dict(self.topics), dict(self.topics_by_id)
        del by_id[topics.pop(name).topic_id]
        return replace(self, topics=MappingProxyType(topics), topics_by_id=MappingProxyType(by_id))
