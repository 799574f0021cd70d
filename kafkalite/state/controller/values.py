"""The values that the controller exchanges with its runtime: brokers, and what the znodes of topics contain.

They are equal to the contents of the znodes, without their JSON: `coordination/znodes` converts them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kafkalite.model import Endpoint, TopicPartition

Token = object  # the pending request of a client; the machine only keeps it and returns it
TimerName = tuple[str, object]
Replicas = tuple[int, ...]  # broker ids, the preferred leader first

NO_LEADER = -1
NO_EPOCH = -1  # the leader epoch of a partition without a state, the broker epoch of a broker that is not alive
LEADER_DURING_DELETE = -2  # in UpdateMetadata: the partition does not exist any more (LeaderAndIsr.scala)
EPOCH_DURING_DELETE = -2  # in StopReplica: the topic is being deleted
FIRST_LEADER_EPOCH = 0


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What an elected controller is given once.

    Arguments:
        broker_id: of the broker that is the controller.
        epoch: the controller epoch that its election wrote. The runtime keeps the version of that node for fencing.
        delete_topic_enable: `delete.topic.enable`; if false, requests to delete topics are removed from the tree.
        retry_backoff_ms: until a failed request to a broker is repeated; doubled up to `retry_backoff_max_ms`.
        path_prefix_bytes: length of the chroot, which every path in a transaction has.
        rebalance_ms: how often leadership moves back to preferred replicas; None = never.
        imbalance_max: the share of the preferred replicas of a broker that may not lead, until it is moved.
        min_insync_replicas: of topics that do not set it; `ConfigsChanged` may replace it.
    """

    broker_id: int
    epoch: int
    delete_topic_enable: bool = True
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    path_prefix_bytes: int = 0
    rebalance_ms: int | None = None
    imbalance_max: float = 0.1
    min_insync_replicas: int = 1


class Broker(NamedTuple):
    """A registered broker.

    Arguments:
        epoch: the czxid of the registration; a broker that registers again has a higher one.
        endpoints: the advertised listeners.
        rack: None = no rack.
        features: lowest and highest supported version by feature.
        unclean_since: the epoch of its first registration since it has started after a power failure, when it may have
            lost what was not flushed; 0 = this one, -1 = there was no such start.
    """

    broker_id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = {}
    unclean_since: int = -1

    def has_lost(self, complete_epoch: int) -> bool:
        """Whether the broker may lack records that it had in an earlier registration.

        Arguments:
            complete_epoch: the epoch in which it had every acknowledged record, -1 = unknown.
        """
        return self.unclean_since >= 0 and complete_epoch < (self.unclean_since or self.epoch)


class LeaderAndIsr(NamedTuple):
    """The content of a partition's state node; the fields of `znodes.PartitionState` in their order.

    Arguments:
        leader: broker id, -1 = none.
        isr: the in-sync replicas; kept when the last of them fails.
        controller_epoch: of the controller that wrote the state.
        recovering: whether the leader was elected from outside the ISR and has not recovered yet.
        isr_epochs: the broker epochs of the in-sync replicas when the state was chosen; of those that were not alive,
            the ones of the state before. -1 = unknown. () = the state has none.
        eligible: replicas outside the ISR that have every acknowledged record: they have left the ISR while it was
            below the minimum, and nothing is committed as long as there are any (KIP-966).
        eligible_epochs: their broker epochs, as `isr_epochs`.
    """

    leader: int
    leader_epoch: int
    isr: Replicas
    controller_epoch: int
    recovering: bool = False
    isr_epochs: tuple[int, ...] = ()
    eligible: Replicas = ()
    eligible_epochs: tuple[int, ...] = ()

    def complete_epoch(self, broker_id: int) -> int:
        """The broker epoch in which a replica had every acknowledged record; -1 = unknown."""
        known = dict(zip((*self.eligible, *self.isr), (*self.eligible_epochs, *self.isr_epochs), strict=False))
        return known.get(broker_id, NO_EPOCH)


class StoredState(NamedTuple):
    """A state as it was read.

    Arguments:
        version: of its node, which is the partition epoch.
        zxid: of the transaction that wrote it.
    """

    state: LeaderAndIsr
    version: int
    zxid: int


class PartitionOutcome(NamedTuple):
    """The result of a request to change the state of a partition.

    Arguments:
        partition: None = there is no topic with the id of the request.
        error: a Kafka error code, 0 = the state is as requested.
        state, version: the state in the tree then, and its version; None = there is none, or it is not known.
    """

    partition: TopicPartition | None
    error: int
    state: LeaderAndIsr | None = None
    version: int = -1


class InvalidNode(NamedTuple):
    """A node exists, but its content is invalid. The controller does not change it; the runtime has logged it."""

    reason: str


class TopicNodes(NamedTuple):
    """A topic as it was read from the tree.

    Arguments:
        topic_id: 16 bytes; None in nodes of Kafka before 2.8 and of tools that write topics themselves.
        version: of the topic's node.
        replicas: the assigned brokers by partition.
        adding, removing: of a reassignment that an Apache Kafka controller began.
        states: by partition; a partition without a state node is missing.
        partition_nodes: the partitions whose node exists; None = the node `partitions` above them does not exist.
        created_zxid: the czxid of the topic's node: another one is another topic.
        min_insync_replicas: that is set on the topic; None = it is not set, or not read because no partition has
            several replicas.
    """

    topic_id: bytes | None
    version: int
    replicas: Mapping[int, Replicas]
    adding: Mapping[int, Replicas] = {}
    removing: Mapping[int, Replicas] = {}
    states: Mapping[int, StoredState | InvalidNode] = {}
    partition_nodes: frozenset[int] | None = None
    created_zxid: int = 0
    min_insync_replicas: int | None = None


class FeaturesNode(NamedTuple):
    """`/feature`: the finalized features, which apply only if `enabled`; `version` is that of the node."""

    enabled: bool
    levels: Mapping[str, int]
    version: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The tree as an elected controller reads it, in the session that was elected: it shows every write of earlier
    controllers, and no later one, because those are fenced.

    Arguments:
        brokers: the valid registrations.
        topics: all topics by name.
        deletions: the names below `/admin/delete_topics`; they need not exist as topics.
        features: None = there is no such node.
        reassignment: of `/admin/reassign_partitions`, None = no node. Read at start only, as the next one.
        preferred_election: of `/admin/preferred_replica_election`, None = no node.
        log_dir_events, isr_changes: names of the notifications that exist; they are obsolete and deleted.
    """

    brokers: tuple[Broker, ...]
    topics: Mapping[str, TopicNodes | InvalidNode]
    deletions: frozenset[str] = frozenset()
    features: FeaturesNode | None = None
    reassignment: Mapping[TopicPartition, Replicas] | None = None
    preferred_election: tuple[TopicPartition, ...] | None = None
    log_dir_events: tuple[str, ...] = ()
    isr_changes: tuple[str, ...] = ()
