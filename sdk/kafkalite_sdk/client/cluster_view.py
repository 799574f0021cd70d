"""The brokers, topics and partition leaders of a cluster as Metadata, Produce and Fetch responses report them.

Pure: no I/O, no clock. Invariants:
1. The leader of a partition never goes back to an older leader epoch of the same topic (KIP-320).
2. A topic whose id has changed was deleted and created again: nothing known about its partitions is kept, and
   `recreated` names it.
3. A topic keeps its partitions while a response reports an error for it that a later response may resolve.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kafkalite.errors import error_class
from kafkalite.model import ZERO_UUID, Node
from kafkalite.protocol.messages.metadata import MetadataResponse

NO_LEADER = -1
NO_EPOCH = -1


class PartitionView(NamedTuple):
    """The leader of a partition.

    Attributes:
        leader: its broker id, NO_LEADER = none.
        leader_epoch: NO_EPOCH = the broker does not report it.
    """

    leader: int
    leader_epoch: int


class TopicView:
    """A topic.

    Attributes:
        name: of the topic.
        topic_id: 16 bytes, zeros = the broker has no topic ids.
        internal: an internal topic of Kafka, such as `__consumer_offsets`; patterns do not match it.
        partitions: by number, without gaps.
    """

    __slots__ = ("internal", "name", "partitions", "topic_id")

    def __init__(self, name: str) -> None:
        self.name = name
        self.topic_id = ZERO_UUID
        self.internal = False
        self.partitions: list[PartitionView] = []


class MetadataChanges(NamedTuple):
    """The changes by a Metadata response.

    Attributes:
        grown: topics with more partitions than before, new ones included.
        recreated: topics that were deleted and created again.
        leaders: whether the leader of any partition has changed.
        failed: error code by topic; the topic has no partitions, or did not get any.
    """

    grown: list[str]
    recreated: list[str]
    leaders: bool
    failed: dict[str, int]


class ClusterView:
    """The cluster as the client knows it.

    Attributes:
        brokers: by id.
        topics: by name.
        controller_id: broker id of the controller, -1 = unknown.
        cluster_id: None = the broker does not report it.
        errors: code by topic, of those whose last response was an error.
    """

    def __init__(self) -> None:
        self.brokers: dict[int, Node] = {}
        self.topics: dict[str, TopicView] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        self.errors: dict[str, int] = {}
        self._names: dict[bytes, str] = {}

    def leader(self, topic: str, partition: int) -> int:
        """Return the broker id of a partition's leader; NO_LEADER if it has none or the partition is unknown."""
        view = self.topics.get(topic)
        if view is None or not 0 <= partition < len(view.partitions):
            return NO_LEADER
        return view.partitions[partition].leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the leader epoch of a partition; NO_EPOCH if the partition or its epoch is unknown."""
        view = self.topics.get(topic)
        if view is None or not 0 <= partition < len(view.partitions):
            return NO_EPOCH
        return view.partitions[partition].leader_epoch

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, None = the id is unknown."""
        return self._names.get(topic_id)

    def update(self, response: MetadataResponse) -> MetadataChanges:
        """Apply a Metadata response. Its brokers replace all known ones; topics that it does not name are kept."""
        self.update_brokers(response)
        changes = MetadataChanges([], [], False, {})
        for topic in response.topics:
            name = topic.name if topic.name is not None else self._names.get(topic.topic_id)
            if name is not None:
                changes = self._update_topic(name, topic, changes)
        return changes

    def update_brokers(self, response: MetadataResponse) -> None:
        """Apply the brokers and the controller of a Metadata response, without its topics."""
        nodes = (Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers)
        self.brokers = {node.broker_id: node for node in nodes if node.broker_id >= 0}
        self.controller_id = response.controller_id
        self.cluster_id = response.cluster_id

    def _update_topic(
        self, name: str, topic: MetadataResponse.MetadataResponseTopic, changes: MetadataChanges
    ) -> MetadataChanges:
        if topic.error_code:
            changes.failed[name] = topic.error_code
            if not error_class(topic.error_code).retriable:
                self.forget(name)
            self.errors[name] = topic.error_code
            return changes
        self.errors.pop(name, None)
        view = self.topics.get(name)
        if view is not None and ZERO_UUID not in (view.topic_id, topic.topic_id) and view.topic_id != topic.topic_id:
            changes.recreated.append(name)
            self.forget(name)
            view = None
        if view is None:
            view = self.topics[name] = TopicView(name)
        if topic.topic_id != ZERO_UUID:
            view.topic_id = topic.topic_id
            self._names[topic.topic_id] = name
        view.internal = topic.is_internal
        before = len(view.partitions)
        if len(topic.partitions) > before:
            changes.grown.append(name)
            view.partitions += [PartitionView(NO_LEADER, NO_EPOCH)] * (len(topic.partitions) - before)
        moved = False
        for each in topic.partitions:
            moved |= self._set_leader(view, each.partition_index, PartitionView(each.leader_id, each.leader_epoch))
        return changes._replace(leaders=changes.leaders or moved)

    def _set_leader(self, view: TopicView, partition: int, leader: PartitionView) -> bool:
        """Set a leader unless it is of an older epoch; return whether the leader has changed."""
        if not 0 <= partition < len(view.partitions):
            return False
        before = view.partitions[partition]
        if -1 < leader.leader_epoch < before.leader_epoch:
            return False
        view.partitions[partition] = leader
        return before.leader != leader.leader

    def leader_changed(self, topic: str, partition: int, leader: PartitionView, endpoints: Iterable[Node]) -> bool:
        """Apply the new leader that a Produce or Fetch response names (KIP-951).

        Arguments:
            topic, partition: the partition whose request failed.
            leader: its new leader; NO_LEADER = the response does not name one.
            endpoints: addresses of new leaders.

        Returns: whether the leader of the partition has changed.
        """
        view = self.topics.get(topic)
        if view is None or leader.leader == NO_LEADER:
            return False
        self.brokers.update((each.broker_id, each) for each in endpoints)
        return leader.leader in self.brokers and self._set_leader(view, partition, leader)

    def keep(self, topics: Iterable[str | None]) -> None:
        """Forget all topics but these: a response about every topic of the cluster has named them."""
        for topic in (self.topics.keys() | self.errors.keys()) - set(topics):
            self.forget(topic)

    def forget(self, topic: str) -> None:
        """Forget a topic that the client no longer uses."""
        self.errors.pop(topic, None)
        view = self.topics.pop(topic, None)
        if view is not None:
            self._names.pop(view.topic_id, None)
