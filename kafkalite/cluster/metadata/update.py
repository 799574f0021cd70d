"""Computes the next image of the cluster from an UpdateMetadata request.

1. The request has all live brokers and the partitions that have changed. Partitions that it does not name stay as they
   are, unless it is full (`type` = 2): then they are removed.
2. A partition with leader -2 is removed; a topic without partitions, too. Only topics whose last partition was removed
   like that count as deleted: a full request may lack a topic because another tree was restored.
3. A topic with another id than before is another topic: nothing of the old one is kept. Apache Kafka keeps partitions
   that the request does not name.
4. Objects of the current image are kept where nothing changes, and equal new states are one object.
5. Older versions: one list of partitions without topics (v0-4), no topic ids (v0-6), endpoints without listener names
   (v0-2). Listeners are then named after their security protocols.

Sources: ZkMetadataCache.updateMetadata, UpdateMetadataRequest.normalize of Apache Kafka 3.9.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from kafkalite.cluster.metadata.image import (
    NO_PARTITION,
    UNASSIGNED_ID,
    ClusterImage,
    ClusterTables,
    PartitionImage,
    TopicImage,
)
from kafkalite.cluster.metadata.live_brokers import BrokerImage, LiveBrokers
from kafkalite.model import PARTITIONS_MAX, Endpoint
from kafkalite.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest
from kafkalite.state.topic_names import complaint

FULL = 2  # type of a request
LEADER_DURING_DELETE = -2
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")  # by their ids
SHARED_MAX = 4096

RequestBroker = UpdateMetadataRequest.UpdateMetadataBroker
PartitionState = UpdateMetadataPartitionState


class InvalidControllerRequestError(ValueError):
    """A request of the controller has impossible contents; nothing of it is applied."""


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """The result of an UpdateMetadata request.

    Arguments:
        image: the next image.
        changed: topics that are new, or whose id or number of partitions has changed.
        removed: topics that are not in the image any more.
        deleted: those of them whose last partition was deleted.
        deletions: the ids of all topics with a partition that is being deleted, by name; zeros = not known.
    """

    image: ClusterImage
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    deleted: tuple[str, ...]
    deletions: Mapping[str, bytes]


@lru_cache(maxsize=SHARED_MAX)
def shared_ids(ids: tuple[int, ...]) -> tuple[int, ...]:
    """The same object for equal lists of broker ids: most partitions have one of few lists."""
    return ids


def topics_of(request: UpdateMetadataRequest) -> Iterator[tuple[str, bytes, Iterable[PartitionState]]]:
    """The name, the id and the partitions of each topic in a request; a topic may occur several times."""
    for topic in request.topic_states:
        yield topic.topic_name, topic.topic_id, topic.partition_states
    for state in request.ungrouped_partition_states:
        yield state.topic_name, UNASSIGNED_ID, (state,)


def check_partition(topic: str, index: int) -> None:
    """Raise InvalidControllerRequestError for a partition that cannot exist."""
    if not 0 <= index < PARTITIONS_MAX:
        text = f"topic {topic}: partition is {index}, expected 0 to {PARTITIONS_MAX - 1}"
        raise InvalidControllerRequestError(text)


def check_name(topic: str) -> None:
    """Raise InvalidControllerRequestError for a name that no topic can have; it would be the name of a directory."""
    wrong = complaint(topic)
    if wrong:
        raise InvalidControllerRequestError(f"topic {topic!r}: {wrong}")


class MetadataUpdate:
    """One UpdateMetadata request, as it is applied.

    Arguments:
        image: the current image.
        request: accepted, see `controller.fence`.
    """

    def __init__(self, image: ClusterImage, request: UpdateMetadataRequest) -> None:
        self._image = image
        self._request = request
        self._full = request.type == FULL
        self._ids: dict[str, bytes] = {}
        self._partitions: dict[str, list[PartitionImage]] = {}  # of the topics in the request
        self._shared: dict[PartitionImage, PartitionImage] = {}
        self._deletions: dict[str, bytes] = {}

    def steps(self) -> Generator[None, None, MetadataChange]:
        """Return the change; yields after each partition. Raises InvalidControllerRequestError."""
        brokers = live_brokers(self._request.live_brokers)
        for name, topic_id, states in topics_of(self._request):
            partitions = self._begin(name, topic_id)
            for state in states:
                self._put(name, partitions, state)
                yield
        return (yield from self._change(self._image.brokers if brokers == self._image.brokers else brokers))

    def _begin(self, name: str, topic_id: bytes) -> list[PartitionImage]:
        """Return the partitions of a topic: a list that the request changes."""
        found = self._partitions.get(name)
        if found is None:
            check_name(name)
            old = self._image.topics.get(name)
            kept = old is not None and not self._full and topic_id in (old.topic_id, UNASSIGNED_ID)
            found = self._partitions[name] = list(old.partitions) if old is not None and kept else []
        self._ids[name] = topic_id
        return found

    def _put(self, name: str, partitions: list[PartitionImage], state: PartitionState) -> None:
        index = state.partition_index
        check_partition(name, index)
        if state.leader == LEADER_DURING_DELETE:
            self._deletions[name] = self._ids[name]
            if index < len(partitions):
                partitions[index] = NO_PARTITION
            return
        partitions.extend([NO_PARTITION] * (index + 1 - len(partitions)))
        partitions[index] = self._state(name, state)

    def _state(self, name: str, state: PartitionState) -> PartitionImage:
        found = PartitionImage(
            shared_ids(tuple(state.replicas)),
            shared_ids(tuple(state.isr)),
            state.leader,
            state.leader_epoch,
            state.zk_version,
            state.controller_epoch,
            shared_ids(tuple(state.offline_replicas)),
            eligible=shared_ids(tuple(state.eligible_replicas)),
        )
        old = self._image.topics.get(name)
        before = None if old is None else old.partition(state.partition_index)
        return before if before is not None and before == found else self._shared.setdefault(found, found)

    def _topic(self, name: str) -> TopicImage | None:
        """The next image of a topic in the request; None if it has no partitions."""
        partitions = self._partitions[name]
        while partitions and partitions[-1] is NO_PARTITION:
            partitions.pop()
        if not partitions:
            return None
        old = self._image.topics.get(name)
        if old is not None and old.topic_id == self._ids[name] and same_objects(old.partitions, partitions):
            return old
        return TopicImage(name, self._ids[name], tuple(partitions))

    def _change(self, brokers: LiveBrokers) -> Generator[None, None, MetadataChange]:
        image = self._image
        kept = ClusterImage(image.cluster_id, image.controller_id) if self._full else image
        tables = ClusterTables(image.cluster_id, self._request.controller_id, brokers)
        tables.swap(replace(kept, brokers=brokers, controller_id=self._request.controller_id))
        changed = []
        for name in self._partitions:
            old, topic = image.topics.get(name), self._topic(name)
            if topic is not None:
                tables.put(topic)
                if old is None or (old.topic_id, len(old.partitions)) != (topic.topic_id, len(topic.partitions)):
                    changed.append(name)
            elif name in tables.topics:
                tables.remove(name)
            yield
        following = replace(tables.image, controller_epoch=self._request.controller_epoch)
        named = image.topics if self._full else self._partitions
        removed = tuple([name for name in named if name in image.topics and name not in following.topics])
        deleted = tuple([name for name in removed if name in self._deletions])
        return MetadataChange(following, tuple(changed), removed, deleted, self._deletions)


def same_objects(before: tuple[PartitionImage, ...], after: list[PartitionImage]) -> bool:
    """Whether both contain the same objects."""
    return len(before) == len(after) and all(one is other for one, other in zip(before, after, strict=True))


def live_brokers(brokers: Iterable[RequestBroker]) -> LiveBrokers:
    """The brokers of a request. Raises InvalidControllerRequestError."""
    return LiveBrokers(BrokerImage(broker.id, endpoints_of(broker), broker.rack) for broker in brokers)


def endpoints_of(broker: RequestBroker) -> dict[str, Endpoint]:
    """The endpoints of a broker by listener name."""
    if not broker.endpoints and broker.v0_host:
        return {SECURITY_PROTOCOLS[0]: Endpoint(SECURITY_PROTOCOLS[0], broker.v0_host, broker.v0_port)}
    endpoints = {}
    for each in broker.endpoints:
        if not 0 <= each.security_protocol < len(SECURITY_PROTOCOLS):
            text = f"broker {broker.id}: security protocol is {each.security_protocol}, expected 0 to 3"
            raise InvalidControllerRequestError(text)
        protocol = SECURITY_PROTOCOLS[each.security_protocol]
        name = each.listener or protocol
        endpoints[name] = Endpoint(name, each.host, each.port, protocol)
    return endpoints
