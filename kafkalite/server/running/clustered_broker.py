"""Defines `ClusteredBroker`, one of several brokers of a cluster.

Its image comes from UpdateMetadata, its partitions from LeaderAndIsr and StopReplica (`controller_requests`). It
coordinates the groups and transactions of those partitions of internal topics that it leads. Clients get the addresses
that brokers advertise for the listener of their connection.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from kafkalite._speedups.net.framing import Connection
from kafkalite.cluster.controller.fence import ControllerFence
from kafkalite.cluster.controller.invalid_nodes import InvalidPath
from kafkalite.cluster.metadata.image import ClusterImage, ClusterTables
from kafkalite.cluster.metadata.store import MetadataStore
from kafkalite.cluster.metadata.update import MetadataChange
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.topics.manager import TopicManager
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Node
from kafkalite.server.hosting.assigned_partitions import AssignedPartitions
from kafkalite.server.hosting.controller_requests import ControllerRequests, EpochReader, TopicConfigReader
from kafkalite.server.process.resources import BrokerResources
from kafkalite.server.requests.api import CLUSTER_ROWS
from kafkalite.server.running.coordinators import COORDINATORS, Coordinator
from kafkalite.server.running.internal_partitions import InternalPartitions, PartitionCounter
from kafkalite.server.running.running_broker import RunningBroker
from kafkalite.storage.dirs.log_directory import Identity
from kafkalite.storage.recovery.load_logs import LoadedDirectory


class TopicTreeReader(TopicConfigReader, PartitionCounter, Protocol):
    """Reads topics from the tree."""


class ClusteredBroker(RunningBroker):
    """A broker of a cluster; `RunningBroker` describes the other arguments.

    Arguments:
        reader: reads topics from the tree.
        epochs: reads the controller epoch from the tree.

    Attributes:
        controller_requests: applies the requests of the controller.
    """

    rows = (*RunningBroker.rows, *CLUSTER_ROWS)
    in_cluster = True

    def __init__(
        self,
        resources: BrokerResources,
        identity: Identity,
        config: BrokerConfig,
        group_configs: dict[str, dict[str, str]],
        store: MetadataStore,
        topics: TopicManager,
        reader: TopicTreeReader,
        epochs: EpochReader,
        loaded: list[LoadedDirectory],
    ) -> None:
        tables = ClusterTables(identity.cluster_id)
        hosting = AssignedPartitions(
            identity.broker_id,
            tables,
            self,
            config,
            resources.clock,
            resources.offload,
            resources.slicer,
            resources.replicas,
            resources.logs,
        )
        self.controller_requests = ControllerRequests(
            ControllerFence(), epochs, tables, hosting, reader, resources.slicer, resources.log
        )
        self._reader = reader
        self._internal_partitions = {
            name: InternalPartitions(name, reader, partial(self._counted, name)) for name in COORDINATORS
        }
        self.controller_requests.observers.append(self._metadata_changed)
        resources.replicas.elsewhere = self._elsewhere
        resources.replicas.offline_observers.append(hosting.logs_offline)
        super().__init__(resources, identity, config, group_configs, store, topics, tables, hosting, loaded)

    # The cluster.

    def nodes(self, image: ClusterImage, connection: Connection) -> Iterable[Node]:
        """Return the brokers with the listener of the client."""
        return image.brokers.nodes(connection.listener).values()

    def own_node(self, connection: Connection) -> Node:
        """Return this broker with its address in the image; with that of the connection before it is there."""
        known = self.image.brokers.nodes(connection.listener).get(self.broker_id)
        return known or super().own_node(connection)

    @property
    def coordination_suspended_ms(self) -> int:
        """How long the coordination service has been out of reach, in ms; -1 = it is connected."""
        return -1

    @property
    def invalid_nodes(self) -> list[InvalidPath]:
        """The nodes of the tree that this broker leaves out."""
        return []

    @property
    def pending_isr_changes(self) -> int:
        """Number of ISR changes that the controller has not answered."""
        return 0

    @property
    def replica_lag_max(self) -> int:
        """The largest lag of a partition that this broker follows, in records; 0 without any, -1 = unknown."""
        return 0

    def offline_partitions(self, topic_id: bytes) -> frozenset[int]:
        """Return nothing: offline replicas are in the image."""
        return frozenset()

    def count_partitions(self, topic: str, then: Callable[[int], object]) -> None:
        """Read it from the tree."""
        self._reader.count_partitions(topic, then)

    def _elsewhere(self, name: str, topic_id: bytes, index: int, by_id: bool) -> KafkaErrorCode | None:
        """The error of a partition that is not hosted here (ReplicaManager.getPartitionOrError)."""
        topic = self.image.topic(name, topic_id, by_id=by_id)
        if topic is None:
            return None
        if topic.partition(index) is None:
            return KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return KafkaErrorCode.NOT_LEADER_OR_FOLLOWER

    def _metadata_changed(self, change: MetadataChange) -> None:
        for name in change.removed:
            self.descriptions.remove(name)
        for name, partitions in self._internal_partitions.items():
            if name in change.changed or name in change.removed:
                partitions.image_changed(self.image.topics.get(name))
        for coordinator in self._coordinators:
            for name in change.changed:
                coordinator.topic_changed(name)
            for name in change.deleted:
                coordinator.topic_gone(name)
            coordinator.image_changed()

    # Groups and transactions.

    def _counted(self, topic: str, count: int) -> None:
        coordinator = self._coordinators.get(topic)
        if coordinator is not None:
            coordinator.partitions_changed(count)

    def _create_coordinator(self, topic: str) -> Coordinator:
        coordinator = super()._create_coordinator(topic)
        coordinator.partitions_changed(self._internal_partitions[topic].count)
        return coordinator

    def coordinators(self, connection: Connection, topic: str) -> Callable[[str], Node | None]:
        """Return a function that finds the leader of a key's partition of an internal topic in the image."""
        image, coordinator = self.image.topics.get(topic), self.coordinator_of(topic)
        nodes = self.image.brokers.nodes(connection.listener)

        def find(key: str) -> Node | None:
            state = None if image is None else image.partition(coordinator.partition_for(key))
            return None if state is None else nodes.get(state.leader)

        return find

    def elected(self, partition: Partition) -> None:
        """This broker leads a partition: it coordinates the keys of that partition of an internal topic."""
        if partition.topic in COORDINATORS:
            self.coordinator_of(partition.topic).elected(partition)

    def resigned(self, partition: Partition) -> None:
        """This broker leads a partition no more."""
        coordinator = self._coordinators.get(partition.topic)
        if coordinator is not None:
            coordinator.resigned(partition.index)
