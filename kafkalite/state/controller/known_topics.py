"""The controller's memory of a topic and of its partitions: what the tree contains, and what is being written."""

from kafkalite.model import ZERO_UUID, TopicPartition
from kafkalite.state.controller.effects import Operation
from kafkalite.state.controller.states import PartitionState, TopicState
from kafkalite.state.controller.values import NO_EPOCH, LeaderAndIsr, Replicas

NO_BROKERS: frozenset[int] = frozenset()


class Topic:
    """A name below `/brokers/topics` or `/admin/delete_topics`.

    Attributes:
        name, topic_id: zeros until the topic is read.
        created_zxid, version: of the node that was read.
        partitions: by index.
        has_partitions_node: whether the node above the partitions exists or is being created.
        published: number of the partitions that this broker's image has with a leader.
        stopping: partitions, by broker, whose log the broker is deleting or will be asked to delete.
        unavailable: the same for brokers that are not alive, and for log directories that failed.
        removal: the transactions that delete its nodes; the next one is the last of the list.
        has_config: whether the node of its configs exists; known to be false after a rejected deletion only.
        write_id: of the transaction in flight; results of others are obsolete.
    """

    __slots__ = (
        *("created_zxid", "has_config", "has_partitions_node", "name", "partitions", "published", "removal"),
        *("state", "stopping", "topic_id", "unavailable", "version", "write_id"),
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.topic_id = ZERO_UUID
        self.created_zxid = 0
        self.version = -1
        self.state = TopicState.UNREAD
        self.partitions: dict[int, Partition] = {}
        self.has_partitions_node = False
        self.published = 0
        self.stopping: dict[int, set[int]] = {}
        self.unavailable: dict[int, set[int]] = {}
        self.removal: list[tuple[Operation, ...]] = []
        self.has_config = True
        self.write_id = 0

    @property
    def is_creating(self) -> bool:
        """Whether the first state of a partition is being written."""
        return any(each.state is PartitionState.CREATING for each in self.partitions.values())

    def waits_for(self, index: int, broker: int) -> bool:
        """Whether the log of a partition on a broker must be deleted and is not."""
        return index in self.stopping.get(broker, ()) or index in self.unavailable.get(broker, ())


class Partition:
    """A partition of a topic.

    Attributes:
        key: topic and index.
        replicas, adding, removing: its assignment.
        current, version: the state in the tree and its version; None = there is none.
        wanted: the state that is being written.
        offline: brokers whose log directory of this partition failed.
        has_node: whether the node of the partition, above its state, exists.
        restarted: the brokers in its ISR that have registered again since the state was written, and the eligible ones
            that have lost records.
        lossy: those of `restarted` that have lost records.
        published: whether this broker's image has the partition with a leader.
    """

    __slots__ = (
        *("adding", "current", "has_node", "key", "lossy", "offline", "published", "removing", "replicas", "restarted"),
        *("state", "topic", "version", "wanted"),
    )

    def __init__(
        self, topic: Topic, index: int, replicas: Replicas, adding: Replicas = (), removing: Replicas = ()
    ) -> None:
        self.topic = topic
        self.key = TopicPartition(topic.name, index)
        self.replicas = replicas
        self.adding = adding
        self.removing = removing
        self.state = PartitionState.READING
        self.current: LeaderAndIsr | None = None
        self.version = -1
        self.wanted: LeaderAndIsr | None = None
        self.offline = NO_BROKERS
        self.has_node = False
        self.restarted = NO_BROKERS
        self.lossy = NO_BROKERS
        self.published = False

    @property
    def leader_epoch(self) -> int:
        """The leader epoch in the tree; -1 without a state."""
        return NO_EPOCH if self.current is None else self.current.leader_epoch
