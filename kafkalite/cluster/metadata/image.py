"""Immutable images of the cluster metadata: brokers, topics, partitions and leaders.

A handler uses one image for a whole request, so that a response never mixes two states of the cluster. `ClusterTables`
collects changes and creates the images. In a cluster, UpdateMetadata requests of the controller change the tables
(`update`); a broker that is alone changes them itself.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from kafkalite.cluster.metadata.live_brokers import LiveBrokers
from kafkalite.state.topic_names import fold

NO_LEADER = -1
NO_CONTROLLER = -1
FIRST_EPOCH = 0
UNASSIGNED_ID = bytes(16)


def nothing() -> Mapping[Any, Any]:
    """An empty table."""
    return MappingProxyType({})


class PartitionImage(NamedTuple):
    """The state of one partition, as UpdateMetadata and LeaderAndIsr carry it.

    Equal states are one object where possible: a topic may have thousands of partitions.

    Arguments:
        replicas, isr: broker ids, the preferred leader first.
        leader: broker id, -1 = none.
        leader_epoch: of the leader.
        partition_epoch: the version of the state znode.
        controller_epoch: of the controller that wrote the state.
        offline_replicas: replicas on dead brokers or in failed log directories.
        adding_replicas, removing_replicas: of a reassignment; only LeaderAndIsr has them.
        eligible: replicas outside the ISR that have every acknowledged record; nothing is committed meanwhile.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int = 0
    controller_epoch: int = 0
    offline_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()


NO_PARTITION = PartitionImage((), (), NO_LEADER, leader_epoch=-1, partition_epoch=-1)
"""Fills the gaps of a topic of which the controller has sent only some partitions. Compared with `is`."""


@lru_cache(maxsize=1024)
def new_partition(replicas: tuple[int, ...]) -> PartitionImage:
    """A new partition: its preferred replica leads, all replicas are in sync.

    One object for all partitions with the same replicas: a topic may have thousands.
    """
    return PartitionImage(replicas=replicas, isr=replicas, leader=replicas[0], leader_epoch=FIRST_EPOCH)


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic.

    Arguments:
        name: of the topic.
        topic_id: 16 bytes; zeros if the controller does not know one.
        partitions: by index; `NO_PARTITION` = not known.
        configs: set on the topic. Only a broker that is alone has them here: in a cluster they are read from the tree.
            None: they are invalid.
    """

    name: str
    topic_id: bytes
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str] | None = field(default_factory=nothing)

    def partition(self, index: int) -> PartitionImage | None:
        """The state of a partition, None if it is not known."""
        found = self.partitions[index] if 0 <= index < len(self.partitions) else NO_PARTITION
        return None if found is NO_PARTITION else found


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The cluster at one moment.

    Arguments:
        cluster_id: of the cluster.
        controller_id: the broker for admin requests, -1 = not known.
        brokers: the live brokers.
        topics, topics_by_id: by name, and by id where they have one.
        topics_by_folded_name: by names as in metrics, where `.` equals `_`: finds collisions.
        controller_epoch: of the controller that sent the metadata.
    """

    cluster_id: str
    controller_id: int = NO_CONTROLLER
    brokers: LiveBrokers = field(default_factory=LiveBrokers)
    topics: Mapping[str, TopicImage] = field(default_factory=nothing)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=nothing)
    topics_by_folded_name: Mapping[str, TopicImage] = field(default_factory=nothing)
    controller_epoch: int = 0

    def topic(self, name: str, topic_id: bytes, *, by_id: bool) -> TopicImage | None:
        """A topic by `topic_id` if `by_id`, else by `name`; None if it is not known."""
        return self.topics_by_id.get(topic_id) if by_id else self.topics.get(name)


TRANSACTION_VERSION = "transaction.version"
SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = MappingProxyType({TRANSACTION_VERSION: (0, 2)})
"""The lowest and the highest level of each feature."""


class FinalizedFeatures:
    """The finalized features of the cluster: `transaction.version`, the level of transactions (KIP-890, KIP-1022).

    The level is 2 unless a request has changed it: clients that see it use TV2. 1 and 0 are TV1; with 0 the records of
    `__transaction_state` have version 0. Open transactions keep their version: it is that of their client.

    Attributes:
        levels: by feature; 0 = it is not finalized.
        epoch: it grows with each change; -1 = the levels are not read yet.
        observers: called after each change.
    """

    def __init__(self) -> None:
        self.levels: Mapping[str, int] = {name: last for name, (_, last) in SUPPORTED_FEATURES.items()}
        self.epoch = -1
        self.observers: list[Callable[[], object]] = []

    @property
    def transaction_version(self) -> int:
        """The level of transactions: 0, 1 or 2."""
        return self.levels[TRANSACTION_VERSION]

    def replace(self, levels: Mapping[str, int], epoch: int) -> None:
        """Apply other levels."""
        self.levels, self.epoch = levels, epoch
        for observer in self.observers:
            observer()


class ClusterTables:
    """The cluster metadata with the latest changes; decisions about changes look single topics up here.

    Arguments:
        cluster_id, controller_id, brokers: as in the image.
        topics: the existing topics.

    Attributes:
        features: the finalized features.
    """

    def __init__(
        self,
        cluster_id: str,
        controller_id: int = NO_CONTROLLER,
        brokers: LiveBrokers | None = None,
        topics: Iterable[TopicImage] = (),
    ) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_folded_name: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self._bare = ClusterImage(cluster_id, controller_id, brokers or LiveBrokers())
        self._image: ClusterImage | None = None
        self.features = FinalizedFeatures()
        for topic in topics:
            self.put(topic)

    @property
    def brokers(self) -> LiveBrokers:
        """The live brokers."""
        return self._bare.brokers

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
            self.topics_by_id.pop(old.topic_id, None)
        self.topics[topic.name] = topic
        if topic.topic_id != UNASSIGNED_ID:
            self.topics_by_id[topic.topic_id] = topic
        self.topics_by_folded_name[fold(topic.name)] = topic

    def remove(self, name: str) -> None:
        """Remove a topic. Raises KeyError if it does not exist."""
        self._image = None
        gone = self.topics.pop(name)
        self.topics_by_id.pop(gone.topic_id, None)
        if self.topics_by_folded_name[fold(name)] is gone:
            del self.topics_by_folded_name[fold(name)]

    def swap(self, image: ClusterImage) -> None:
        """Replace everything by another image."""
        self._bare = image
        self._image = image
        self.topics = dict(image.topics)
        self.topics_by_id = dict(image.topics_by_id)
        self.topics_by_folded_name = dict(image.topics_by_folded_name)
