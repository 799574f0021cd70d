"""Defines `RegisteredBroker`, a broker that has joined its cluster: `ClusteredBroker` with its sessions."""

import logging
import socket
from collections.abc import Sequence
from functools import partial

from kafkalite.clock import Outcome, await_outcome
from kafkalite.cluster.broker_peers import BrokerPeers
from kafkalite.cluster.configs.writes import Texts
from kafkalite.cluster.controller.epoch import ControllerEpochReader
from kafkalite.cluster.controller.invalid_nodes import InvalidPath
from kafkalite.cluster.fetchers.replica_fetchers import ReplicaFetchers, register_metrics
from kafkalite.cluster.isr.isr_requests import IsrRequests
from kafkalite.cluster.metadata.store import MetadataStore
from kafkalite.cluster.metadata.update import MetadataChange
from kafkalite.cluster.partition.follower import Follower
from kafkalite.cluster.partition.leader import Leader
from kafkalite.cluster.partition.leader_epoch_raise import LeaderEpochRaise
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.topics.controlled_topics import ControlledTopics
from kafkalite.cluster.topics.manager import TopicManager
from kafkalite.config.broker import BrokerConfig
from kafkalite.model import Endpoint
from kafkalite.server.hosting.assigned_partitions import AssignedPartitions
from kafkalite.server.process.resources import BrokerResources
from kafkalite.server.requests.first_image import FirstImage
from kafkalite.server.running.broker_listener import endpoint_for_brokers, peer_dial, warn_if_shared
from kafkalite.server.running.cluster_participant import WAIT_FACTOR, ClusterParticipant
from kafkalite.server.running.clustered_broker import ClusteredBroker
from kafkalite.server.running.controlled_shutdown import ControlledShutdown
from kafkalite.server.running.controller_calls import CallsToController
from kafkalite.server.running.controller_metrics import register_controller_metrics
from kafkalite.server.running.fetching_broker import FetchingBroker
from kafkalite.server.running.local_controller import LocalController
from kafkalite.server.running.log_directory_reports import LogDirectoryReports
from kafkalite.server.running.replica_metrics import register_replica_metrics
from kafkalite.state.replica_sessions import ReplicaSessions
from kafkalite.storage.dirs.log_directory import Identity
from kafkalite.storage.recovery.load_logs import LoadedDirectory

LOGGER = logging.getLogger("kafkalite.server")


class RegisteredBroker(ClusteredBroker):
    """A broker of a cluster.

    Arguments:
        resources, identity, config, group_configs, store, loaded: as of `RunningBroker`.
        participant: the part of this broker in its cluster.
    """

    def __init__(
        self,
        resources: BrokerResources,
        identity: Identity,
        config: BrokerConfig,
        group_configs: dict[str, dict[str, str]],
        store: MetadataStore,
        participant: ClusterParticipant,
        loaded: list[LoadedDirectory],
    ) -> None:
        control = ControlledTopics(self, participant.controller, resources.clock)
        topics = TopicManager(self, participant.writer, control)
        epochs = ControllerEpochReader(participant.session, resources.clock)
        super().__init__(resources, identity, config, group_configs, store, topics, participant.topics, epochs, loaded)
        self.participant = participant
        self.configs.reader = participant.topics
        self.config_writer = participant.writer.configs
        participant.attach(self)
        self.controller_requests.raise_epochs = LeaderEpochRaise(
            participant.session, participant.counters.epochs_behind
        )
        resources.peer_dial = peer_dial(resources, self.listening, lambda: self.config)
        peers = partial(BrokerPeers, self._peer_endpoints, str(self.broker_id), resources.peer_dial, resources.clock)
        self.peers: BrokerPeers | None = peers(lambda: self.config.kafkalite_group_peer_timeout_ms)
        controller = peers(lambda: self.config.controller_socket_timeout_ms)
        self._calls = CallsToController(participant.controller, self.tables, controller, resources.clock)
        fetching = FetchingBroker(
            resources, self.broker_id, lambda: self.config, lambda: self.registered_epoch, self._peer_endpoints
        )
        self.fetchers = ReplicaFetchers(fetching)
        self._failed_directories = LogDirectoryReports(participant.session, resources.clock, self.broker_id)
        resources.replicas.offline_observers.append(lambda _logs: self._failed_directories.report())
        assert isinstance(self.hosting, AssignedPartitions)
        self.hosting.roles.fetchers = self.fetchers
        self.hosting.roles.request_states = self._failed_directories.report
        self.hosting.roles.answer_followers = self._answer_followers
        register_metrics(self.metrics, self.fetchers)
        self._shutdown = ControlledShutdown(self, self._calls, participant.session, resources.clock)
        self._isr_requests = self.hosting.isr_requests = IsrRequests(
            resources.clock,
            self._calls,
            self.broker_id,
            lambda: self.registered_epoch,
            lambda: self.hosting.replica_lag_max_ms,
            self.metrics,
        )
        register_replica_metrics(self.metrics, self.replicas, self.fetch_sessions)
        register_controller_metrics(self.metrics, participant.controller)

    async def open(self, inherited: Sequence[tuple[str, socket.socket]]) -> None:
        """Accept connections, join the cluster, and wait until the controller has described it: for at most twice the
        session timeout, in which a dead controller is replaced. Raises OSError, StartError.
        """
        wait_s = WAIT_FACTOR * self.config.zookeeper_session_timeout_ms / 1000
        self.first_image = first = FirstImage(self.clock)
        warn_if_shared(self.config)
        try:
            await super().open(inherited)
        except BaseException:
            await self.participant.close()
            raise
        try:
            await self.participant.join()
            first.expect(wait_s)
            await await_outcome(lambda then: first.wait(partial(then, Outcome())))
            self.first_image = None
        except BaseException:
            await self.stop(0)
            raise
        if not self.image.brokers.ids:
            text = "no controller has described the cluster within %.0f s (twice zookeeper.session.timeout.ms)"
            LOGGER.warning(text, wait_s)

    async def _read_rights(self) -> None:
        """Read the rights; if its session ends, retry in another one. Raises StartError, CoordinationError."""
        await self.participant.retry(super()._read_rights)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Move the leaderships to other brokers, then stop as `RunningBroker`. A second call ends the first step."""
        if self._shutdown.in_progress:
            self._shutdown.end()
            return
        try:
            if not self._stopping:
                await await_outcome(self._shutdown.begin)
        finally:
            self._shutdown.end()
            try:
                self.controller_requests.stop_replicas()
            finally:
                await super().stop(grace_s)

    def _answer_followers(self) -> None:
        """Followers that fetch other partitions from here can fetch the one that this broker begins to lead."""
        sessions = self.fetch_sessions.of_replicas
        if isinstance(sessions, ReplicaSessions):
            sessions.answer_waiting()

    @property
    def controller_id(self) -> int:
        """The controller in the image, -1 = not known."""
        return self.image.controller_id

    @property
    def registered_epoch(self) -> int:
        """The epoch of this broker's registration; -1 while it has none."""
        epoch = self.controller_requests.fence.broker_epoch
        return -1 if epoch is None else epoch

    @property
    def is_replicated(self) -> bool:
        """Whether another replica of a hosted partition is alive in the image."""
        others = self.image.brokers.ids - {self.broker_id}
        return bool(others) and any(others.intersection(self._replicas_of(each)) for each in self._replicated)

    @property
    def _replicated(self) -> list[Partition]:
        assert isinstance(self.hosting, AssignedPartitions)
        return self.hosting.replicated

    def _replicas_of(self, partition: Partition) -> tuple[int, ...]:
        topic = self.image.topics.get(partition.topic)
        state = None if topic is None else topic.partition(partition.index)
        return () if state is None else state.replicas

    def other_members(self) -> set[int]:
        """The other members of the ISRs that this broker leads."""
        led = (each.isr for each in self._replicated if isinstance(each.role, Leader))
        return {member for isr in led for member in isr} - {self.broker_id}

    def _metadata_changed(self, change: MetadataChange) -> None:
        super()._metadata_changed(change)
        assert isinstance(self.hosting, AssignedPartitions)
        self.hosting.roles.fetchers.brokers_changed()
        self._calls.image_changed()
        if self.peers is not None:
            self.peers.brokers_changed()
        self._shutdown.image_changed()
        if self.first_image is not None:
            self.first_image.end()

    @property
    def coordination_suspended_ms(self) -> int:
        """How long the coordination service has been out of reach, in ms; -1 = it is connected."""
        return self.participant.suspended_ms

    @property
    def invalid_nodes(self) -> list[InvalidPath]:
        """The nodes of the tree that this broker leaves out: as the controller, or because no one can be elected."""
        return self.participant.controller.invalid_nodes

    @property
    def pending_isr_changes(self) -> int:
        """Number of ISR changes that the controller has not answered."""
        return len(self._isr_requests.sender)

    @property
    def replica_lag_max(self) -> int:
        """The largest lag of a partition that this broker follows, in records; 0 without any, -1 = unknown."""
        return self.fetchers.max_lag

    def replica_lag(self, partition: Partition) -> int:
        """Return how many records this replica is behind the leader's high watermark, -1 = unknown."""
        return self.fetchers.lag_of(partition) if isinstance(partition.role, Follower) else 0

    @property
    def local_controller(self) -> LocalController:
        """The controller of the cluster, if this broker is elected."""
        return self.participant.controller

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the elected controller."""
        return self.participant.controller.active

    def _peer_endpoints(self) -> dict[int, Endpoint]:
        """The address at which brokers reach each live broker."""
        found = (
            (each.broker_id, endpoint_for_brokers(each.endpoints.values(), self.config)) for each in self.image.brokers
        )
        return {broker_id: endpoint for broker_id, endpoint in found if endpoint is not None}

    def _close_coordinators(self) -> None:
        super()._close_coordinators()
        if self.first_image is not None:
            self.first_image.end()
        if self.peers is not None:
            self.peers.close()
        assert isinstance(self.hosting, AssignedPartitions)
        self.hosting.roles.close()
        self._failed_directories.close()
        self._isr_requests.close()
        self._calls.close()

    async def _close_session(self) -> None:
        await self.participant.close()

    def _close_logs(self) -> bool:
        is_clean = super()._close_logs()
        if is_clean:
            self.participant.logs_closed()
        return is_clean

    def broker_configs_changed(self, texts: Texts, *, all_brokers: bool) -> None:
        """Every broker applies them when it is notified."""

    @property
    def hosted_topics(self) -> list[str]:
        """The topics with a partition on this broker, and those that are being hosted."""
        assert isinstance(self.hosting, AssignedPartitions)
        return [*(hosted.name for hosted in self.replicas), *self.hosting.initializing]

    def configure_topic(self, name: str, overrides: Texts | None) -> None:
        """Apply the configs of a topic that were read from the tree."""
        assert isinstance(self.hosting, AssignedPartitions)
        self.hosting.configure_topic(name, overrides)
        self.participant.controller.topic_configured(name)

    def apply_configs(self, default: Texts | None, own: Texts | None) -> None:
        """Apply stored dynamic configs, see `RunningBroker.apply_configs`."""
        super().apply_configs(default, own)
        assert isinstance(self.hosting, AssignedPartitions)
        self.hosting.roles.fetchers.configure()
        self.participant.controller.configure(self.config)
