"""Immutable images of the cluster metadata: brokers, topics, partitions and leaders.

A handler uses one image for a whole request, so that a response never mixes two states of the cluster. `ClusterTables`
collects changes and creates the images.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from kafkalite.model import Node
from kafkalite.state.topic_names import folded

NO_LEADER = -1
FIRST_EPOCH = 0
UNASSIGNED_ID = bytes(16)


def nothing() -> Mapping[Any, Any]:
    """An empty table."""
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """The replicas of one partition. `replicas`, `isr`: broker ids, the preferred leader first."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int


@lru_cache(maxsize=1024)
def new_partition(replicas: tuple[int, ...]) -> PartitionImage:
    """A new partition: its preferred replica leads, all replicas are in sync.

    One object for all partitions with the same replicas: a topic may have thousands.
    """
    return PartitionImage(replicas=replicas, isr=replicas, leader=replicas[0], leader_epoch=FIRST_EPOCH)


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic: its name, 16-byte id, partitions by index, and the configs set on it."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The cluster at one moment. `controller_id` is the broker for admin requests."""

    cluster_id: str
    controller_id: int
    brokers: tuple[Node, ...] = ()
    topics: Mapping[str, TopicImage] = field(default_factory=nothing)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=nothing)
    topics_by_folded_name: Mapping[str, TopicImage] = field(
        default_factory=nothing
    )  # by names as in metrics, where `.` equals `_`: finds collisions


class ClusterTables:
    """The cluster metadata with the latest changes; decisions about changes look single topics up here.

    Arguments:
        cluster_id, controller_id, brokers: as in the image.
        topics: the existing topics.
    """

    def __init__(
        self, cluster_id: str, controller_id: int, brokers: tuple[Node, ...], topics: Iterable[TopicImage] = ()
    ) -> None:
        self.brokers = brokers
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_folded_name: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self._bare = ClusterImage(cluster_id, controller_id, brokers)
        self._image: ClusterImage | None = None
        for topic in topics:
            self.put(topic)

    @property
    def image(self) -> ClusterImage:
        """The image of the current state. The tables are copied at the first access after a change, because one request
        may change thousands of topics.
        """
        if self._image is None:
            self._image = replace(
                self._bare,
                topics=MappingProxyType(dict(self.topics)),
                topics_by_id=MappingProxyType(dict(self.topics_by_id)),
                topics_by_folded_name=MappingProxyType(dict(self.topics_by_folded_name)),
            )
        return self._image

    def put(self, topic: TopicImage) -> None:
        """Add a topic, or replace the topic of its name."""
        self._image = None
        old = self.topics.get(topic.name)
        if old is not None:
            del self.topics_by_id[old.topic_id]
        self.topics[topic.name] = self.topics_by_id[topic.topic_id] = topic
        self.topics_by_folded_name[folded(topic.name)] = topic

    def remove(self, name: str) -> None:
        """Remove a topic. Raises KeyError if it does not exist."""
        self._image = None
        gone = self.topics.pop(name)
        del self.topics_by_id[gone.topic_id]
        if self.topics_by_folded_name[folded(name)] is gone:
            del self.topics_by_folded_name[folded(name)]
