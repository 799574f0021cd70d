"""Defines `RunningBroker`: a broker from its recovery to its stop, with all its parts as attributes.

Order of the stop: delayed requests are completed, listeners closed, partitions flushed, the session with the
coordination service closed, logs closed with a clean-shutdown mark, executors ended, log directories unlocked.
"""

import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from typing import TYPE_CHECKING

from kafkalite._speedups.net.framing import Connection
from kafkalite._speedups.net.heartbeats import Heartbeats
from kafkalite.clock import Clock, Offload, Outcome, await_outcome
from kafkalite.cluster.changes import Refusal, attempt, refusal_of
from kafkalite.cluster.configs.writes import ConfigChange, Texts, Written, broker_node, group_node
from kafkalite.cluster.metadata.image import NO_LEADER, ClusterImage, ClusterTables, FinalizedFeatures
from kafkalite.cluster.metadata.store import MetadataStore
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.producer_ids import ProducerIds
from kafkalite.cluster.topics.internal_topics import OFFSETS, TRANSACTION_STATE
from kafkalite.cluster.topics.manager import TopicManager
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.describe_and_alter import not_in_force
from kafkalite.config.listeners import PLAINTEXT
from kafkalite.config.stored import read_broker_config
from kafkalite.coordination.errors import CoordinationError, NoNodeError
from kafkalite.coordination.znodes import QUOTA_ROOTS, ZnodeError
from kafkalite.metrics import Registry
from kafkalite.model import Endpoint, Node
from kafkalite.server.configs.config_resources import ConfigResources
from kafkalite.server.hosting.partition_hosting import PartitionHosting
from kafkalite.server.process.listeners import Listeners, creation_rates
from kafkalite.server.process.resources import BrokerResources, StartError
from kafkalite.server.requests.api import ROWS, Row
from kafkalite.server.requests.context import StateController
from kafkalite.server.requests.deferred_free import empty_in_steps
from kafkalite.server.requests.description_cache import DescriptionCache
from kafkalite.server.requests.dispatch import BrokerService, Dispatcher
from kafkalite.server.running.coordinators import COORDINATORS, Coordinator, CoordinatorTable
from kafkalite.state.fetch_sessions import FetchSessions
from kafkalite.storage.dirs.log_directory import Identity
from kafkalite.storage.recovery.load_logs import LoadedDirectory

if TYPE_CHECKING:
    from kafkalite.cluster.broker_peers import BrokerPeers
    from kafkalite.cluster.credentials.store import ScramCredentials
    from kafkalite.cluster.partition.verification import TransactionChecks
    from kafkalite.cluster.tokens.store import DelegationTokens
    from kafkalite.coordination.backend import Coordination
    from kafkalite.coordinators.group.coordinator import GroupCoordinator
    from kafkalite.coordinators.group.service import GroupService
    from kafkalite.coordinators.transaction.coordinator import TransactionCoordinator
    from kafkalite.coordinators.transaction.service import TransactionService
    from kafkalite.server.authentication.key_refresh import KeyRefresh
    from kafkalite.server.hosting.marker_writer import MarkerWriter
    from kafkalite.server.hosting.replica_moves import ReplicaMoves
    from kafkalite.server.requests.first_image import FirstImage
    from kafkalite.server.running.quota_limits import QuotaLimits
    from kafkalite.server.security.audit_log import AuditLog
    from kafkalite.server.security.authorization import AuditedAuthorizer

LOGGER = logging.getLogger("kafkalite.server")
SESSION_ID_MAX = 2**31 - 1
LATE_CHECK_S = 60.0  # after the start, when the check of late transactions is imported


class RunningBroker(ABC):
    """The parts of a broker: `AloneBroker` and `ClusteredBroker` have their own views of the cluster.

    Arguments:
        resources: clock, executors and logs.
        identity: cluster id and broker id.
        config: with the dynamic configs of this broker; replaced whole when one of them changes.
        group_configs: dynamic configs by group.
        store: the cluster metadata.
        topics: creates and changes topics.
        tables: the topics of the cluster.
        hosting: the partitions of this broker.
        loaded: what recovery found in each log directory.

    Attributes:
        closing: what `stop` closes last, whatever is raised before.
        rows: the served API keys.
        in_cluster: whether this broker is one of a cluster.
        peers: the other brokers of the cluster; None: the broker is alone.
        first_image: for requests that wait for it; None: the broker knows its cluster.
    """

    rows: tuple[Row, ...] = ROWS
    in_cluster = False
    peers: "BrokerPeers | None" = None
    first_image: "FirstImage | None" = None

    def __init__(
        self,
        resources: BrokerResources,
        identity: Identity,
        config: BrokerConfig,
        group_configs: dict[str, dict[str, str]],
        store: MetadataStore,
        topics: TopicManager,
        tables: ClusterTables,
        hosting: PartitionHosting,
        loaded: list[LoadedDirectory],
    ) -> None:
        self._resources = resources
        self.cluster_id = identity.cluster_id
        self.broker_id = identity.broker_id
        self.config = config
        self.config_problems = resources.config_problems
        self.group_configs = group_configs
        for group, texts in group_configs.items():
            self.config_problems.report_group(group, texts)
        self.store = store
        self.config_writer = store.configs
        self.tables = tables
        self.hosting = hosting
        self.loaded = loaded
        self.clock: Clock = resources.clock
        self.random = resources.random
        self.slicer = resources.slicer
        self.offload: Offload = resources.offload
        self.disk = resources.disk
        self.logs = resources.logs
        self.replicas = resources.replicas
        self.read_ahead = resources.read_ahead
        self.metrics = Registry()
        self._replica_moves: ReplicaMoves | None = None
        self.topics = topics
        self.configs = ConfigResources(self)
        self.descriptions = DescriptionCache()
        self.producer_ids = ProducerIds(store.take_producer_ids)
        self.fetch_sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots,
            config.kafkalite_fetch_session_memory_max_bytes,
            lambda: 1 + self.random.below(SESSION_ID_MAX),
            lambda partitions: self.slicer.run(empty_in_steps(partitions), Outcome.result),
        )
        self.dispatcher = Dispatcher(self, self.rows, resources.log, config.listeners_between_brokers)
        self._limit_principals()
        self.heartbeats = Heartbeats()
        service = self._with_logins(BrokerService(self.dispatcher, self.replicas, self.heartbeats, self.fetch_sessions))
        self.listening = Listeners(resources.loop, service, config, resources.ports.listen)
        self.closing = ExitStack()
        self._stopping = False
        self._coordinators = CoordinatorTable(self._create_coordinator)
        self.replicas.make_checks = self._create_checks
        self.metrics.gauge(
            "kafkalite_duplicate_batches",
            "Repeated batches of idempotent producers that were answered with their first offset.",
            lambda: self.logs.duplicates,
        )

    def _limit_principals(self) -> None:
        if self.config.limits_principals:
            from kafkalite.server.requests.limits.principal_limits import PrincipalLimits  # most brokers have none

            self.dispatcher.limits = limits = PrincipalLimits(self, self._resources.log)
            self.fetch_sessions.limit(limits.fetch_sessions, limits.is_exempt)

    @cached_property
    def authorizer(self) -> "AuditedAuthorizer | None":
        """The authorizer of all requests; None: they are all allowed. Raises StartError."""
        if not self.config.authorizer_class_name:
            return None
        from kafkalite.server.security.authorizers import create_authorizer  # most brokers have none

        try:
            return create_authorizer(self.config, self.store.session, self.clock, notify=self.in_cluster)
        except ValueError as error:
            raise StartError(str(error)) from error

    @cached_property
    def audit_log(self) -> "AuditLog":
        """The audit log of changed users and quotas: that of the authorizer, if there is one."""
        if self.authorizer is not None:
            return self.authorizer.audit_log
        from kafkalite.server.security.audit_log import AuditLog  # with the first change

        return AuditLog(self.clock)

    async def _load_rights(self) -> None:
        """Read the ACLs, the users and the tokens before the first connection. Raises StartError."""
        try:
            await self._read_rights()
            await self._load_token_keys()
        except (CoordinationError, ZnodeError) as error:
            raise StartError(f"ACLs, users, delegation tokens or quotas cannot be read: {error}") from error

    async def _read_rights(self) -> None:
        """Read ACLs, users, tokens and quotas; it can be repeated. Raises CoordinationError, ZnodeError."""
        if self.authorizer is not None and self.authorizer.acls is not None:
            (await await_outcome(self.authorizer.acls.load)).result()
        if self.credentials is not None:
            await self.credentials.load(self.metadata, self.random)
        if self.tokens is not None:
            (await await_outcome(self.tokens.load)).result()
        if creation_rates(self.config) or await self._has_quotas():
            await self.quotas.load()

    async def _load_token_keys(self) -> None:
        """Read the keys that verify tokens of OAUTHBEARER. Raises StartError."""
        try:
            for keys in self.token_keys.values():
                await keys.load()
        except ValueError as error:
            raise StartError(f"sasl.oauthbearer.jwks.endpoint.url: {error}") from error

    async def _has_quotas(self) -> bool:
        """Whether there may be client quotas. Raises CoordinationError."""
        for root in QUOTA_ROOTS:
            outcome = await await_outcome(partial(self.metadata.children, root))
            if not isinstance(outcome.error, NoNodeError) and outcome.result()[0]:
                return True
        return False

    def _with_logins(self, service: BrokerService) -> BrokerService:
        """Let clients authenticate on the listeners with SASL, or with a user-defined principal builder."""
        config = self.config
        if config.principal_builders() or any(each.security_protocol != PLAINTEXT for each in config.listeners):
            from kafkalite.server.authentication.setup import require_logins  # not for brokers in plaintext

            serve, users = self.dispatcher.request, self.credentials
            try:
                require_logins(
                    service, lambda: self.config, self._resources, serve, users, self.token_keys, self.tokens
                )
            except ValueError as error:
                raise StartError(str(error)) from error
        return service

    @cached_property
    def tokens(self) -> "DelegationTokens | None":
        """The delegation tokens, which `open` loads; None: they are disabled."""
        config = self.config
        secret_key = config.delegation_token_secret_key
        if secret_key is None:
            secret_key = config.delegation_token_master_key
        if not secret_key:
            return None
        from kafkalite.cluster.tokens.store import DelegationTokens  # most brokers have none
        from kafkalite.state.delegation_tokens import TokenTimes

        times = TokenTimes(config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms)
        session, owned_max = self.store.session, config.kafkalite_delegation_token_max_per_owner
        return DelegationTokens(session, self.clock, secret_key, times, notify=self.in_cluster, owned_max=owned_max)

    def _start_token_expiry(self) -> None:
        if self.tokens is not None:
            from kafkalite.cluster.tokens.expiry import TokenExpiry

            interval_ms = self.config.delegation_token_expiry_check_interval_ms
            TokenExpiry(self.tokens, self.clock, interval_ms, lambda: self.is_controller).start()

    @cached_property
    def credentials(self) -> "ScramCredentials | None":
        """The credentials of SCRAM users, which `open` loads; None: no listener offers SCRAM."""
        if all(endpoint.security_protocol == PLAINTEXT for endpoint in self.config.listeners):
            return None
        from kafkalite.server.authentication.setup import credentials_of

        return credentials_of(self.config)

    @cached_property
    def token_keys(self) -> "Mapping[str, KeyRefresh]":
        """What reads the keys of tokens, by listener with OAUTHBEARER; `open` reads them first."""
        if all(endpoint.security_protocol == PLAINTEXT for endpoint in self.config.listeners):
            return {}
        from kafkalite.server.authentication.setup import token_keys_of

        return token_keys_of(self.config, self._resources)

    @cached_property
    def quotas(self) -> "QuotaLimits":
        """The client quotas, and the rates of new connections."""
        from kafkalite.server.running.quota_limits import QuotaLimits  # most brokers have none

        return QuotaLimits(self)

    def log_levels_changed(self) -> None:
        """Apply levels of loggers that a request has changed."""
        self.dispatcher.forget_loaded()

    @property
    def address(self) -> str:
        """HOST:PORT of the first listener."""
        endpoint = self.addresses[0]
        return f"[{endpoint.host}]:{endpoint.port}" if ":" in endpoint.host else f"{endpoint.host}:{endpoint.port}"

    @property
    def addresses(self) -> list[Endpoint]:
        """The address of each listener."""
        return self.listening.addresses

    @property
    def partitions_count(self) -> int:
        """Number of hosted partitions."""
        return sum(len(topic.partitions) for topic in self.replicas)

    async def open(self, inherited: Sequence[tuple[str, socket.socket]]) -> None:
        """Start the periodic work and accept connections at every address, or at none; raises OSError, StartError."""
        try:
            await self._load_rights()
            self._resources.start_cleaner(self.config)
            self._resources.start_housekeeping(self.config, in_cluster=self.in_cluster)
            self._start_token_expiry()
            self.clock.call_at(self.clock.monotonic() + LATE_CHECK_S, self._watch_transactions)
            for topic in COORDINATORS:
                if topic in self.tables.topics:
                    self.coordinator_of(topic).topic_changed(topic)
            self.listening.watch_certificates(self.clock, self.offload)
            self.listening.open(list(inherited))
            if self.logs.interrupted:
                self.replica_moves.begin_again()
        except BaseException:
            self._close_coordinators()
            await self.listening.close(0)
            raise
        if not self.in_cluster:
            self._encrypt_passwords_again()
        self.store.finish_deletions()
        self.store.delete_expired()

    async def stop(self, grace_s: float = 5.0) -> None:
        """Stop cleanly; open responses have `grace_s` seconds to leave. A second call does nothing."""
        if self._stopping:
            return
        with self.closing:
            if self.dispatcher.quotas is not None:
                self.dispatcher.quotas.muted.release()
            self.replicas.complete_delayed_fetches()  # their clients would delay the end of the listeners
            self._close_coordinators()
            await self.listening.close(grace_s)
            self.replicas.write_pending()
            self.hosting.close()
            self._resources.finish_flushes()
            await self._close_session()
            self._close_logs()

    def _close_logs(self) -> bool:
        """Close the logs; return whether each log directory has its clean-shutdown mark."""
        return self._resources.close_logs()

    async def _close_session(self) -> None:
        service = self._resources.coordination
        if service is None or service.failure is not None:
            return
        try:
            await self.store.close()
        except CoordinationError as error:  # a full disk, for example: the logs are closed all the same
            LOGGER.warning("cannot close the session, the next start closes it: %s", error)

    # The cluster.

    @property
    def image(self) -> ClusterImage:
        """The current state of the cluster."""
        return self.tables.image

    @property
    def features(self) -> FinalizedFeatures:
        """The finalized features of the cluster."""
        return self.tables.features

    @abstractmethod
    def nodes(self, image: ClusterImage, connection: Connection) -> Iterable[Node]:
        """Return the brokers of an image with the addresses at which the client of this connection reaches them."""

    def own_node(self, connection: Connection) -> Node:
        """Return this broker with the address at which the client of this connection reaches it."""
        return self.listening.own_node(self.broker_id, self.config.broker_rack, connection)

    @abstractmethod
    def offline_partitions(self, topic_id: bytes) -> frozenset[int]:
        """Return the partitions of a topic that cannot be served, as far as the image does not show it."""

    @property
    def metadata(self) -> "Coordination":
        """The session with the service that stores the cluster metadata."""
        return self.store.session

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller; a broker that is alone always is."""
        return True

    @property
    def local_controller(self) -> StateController | None:
        """The controller of the cluster, if this broker is elected; None = this broker takes part in no election."""
        return None

    def replica_lag(self, _partition: Partition) -> int:
        """Return how many records this replica is behind its leader: none on a broker that is alone."""
        return 0

    @property
    def replica_moves(self) -> "ReplicaMoves":
        """The moves between log directories, imported with the first one."""
        if self._replica_moves is None:
            from kafkalite.server.hosting.replica_moves import ReplicaMoves

            self._replica_moves = ReplicaMoves(self.replicas, self.logs, self.hosting)
        return self._replica_moves

    @abstractmethod
    def count_partitions(self, topic: str, then: Callable[[int], object]) -> None:
        """Call `then` once with the number of partitions of a topic in the tree, 0 = it does not exist."""

    @cached_property
    def marker_writer(self) -> "MarkerWriter":
        """Writes markers of transactions, imported with the first one."""
        from kafkalite.server.hosting.marker_writer import MarkerWriter

        return MarkerWriter(self)

    # Groups and transactions.

    @abstractmethod
    def coordinators(self, connection: Connection, topic: str) -> Callable[[str], Node | None]:
        """Return a function that finds the coordinator of a key of an internal topic, with its address for the client
        of this connection; None = not available.
        """

    def coordinator_of(self, topic: str) -> Coordinator:
        """The coordinator of an internal topic, which is imported and created on first use."""
        coordinator: Coordinator = self._coordinators.of(topic)
        return coordinator

    @property
    def transactions(self) -> "TransactionService":
        """The transactions that this broker coordinates."""
        coordinator: TransactionCoordinator = self._coordinators.of(TRANSACTION_STATE.name)
        return coordinator.transactions

    @property
    def groups(self) -> "GroupService":
        """The groups that this broker coordinates."""
        return self.group_coordinator.groups

    @property
    def group_coordinator(self) -> "GroupCoordinator":
        """The group coordinator, which is imported and created on first use: many brokers never have a group."""
        coordinator: GroupCoordinator = self._coordinators.of(OFFSETS.name)
        return coordinator

    def _watch_transactions(self) -> None:
        """Start to look for late transactions."""
        from kafkalite.server.running.transaction_metrics import LateTransactions

        LateTransactions(self.replicas, self.clock, lambda: self.config.transaction_max_timeout_ms).start(self.metrics)

    def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the broker that coordinates a transactional id, NO_LEADER if none is known."""
        topic = self.image.topics.get(TRANSACTION_STATE.name)
        if topic is None:
            return NO_LEADER
        state = topic.partition(self.coordinator_of(topic.name).partition_for(transactional_id))
        return NO_LEADER if state is None else state.leader

    def _create_checks(self) -> "TransactionChecks":
        from kafkalite.server.hosting.transaction_checks import TransactionChecks

        checks = TransactionChecks(self)
        name = "kafkalite_transaction_verification_failures"
        self.metrics.gauge(name, "Transactional batches that a coordinator has rejected.", lambda: checks.failures)
        return checks

    def _create_coordinator(self, topic: str) -> Coordinator:
        return COORDINATORS[topic](self)

    def _close_coordinators(self) -> None:
        """Complete all delayed requests of coordinators, and create none that serves any more."""
        self._stopping = True
        self.replicas.close_checks()
        self._coordinators.close()

    # Dynamic configs.

    def change_broker_configs(
        self, all_brokers: bool, change: ConfigChange, validate_only: bool, then: Callable[[Refusal | None], None]
    ) -> None:
        """Change the dynamic configs of this broker or of all brokers, and apply them once they are durable.

        Arguments:
            all_brokers: they are the defaults of all brokers.
            change: returns the new texts from the stored ones, or raises ConfigError.
            validate_only: nothing is changed.
            then: called with None, or with the reason why they were not stored.
        """

        def changed(written: Written) -> None:
            if not written.error and not validate_only:
                attempt(partial(self.broker_configs_changed, written.texts, all_brokers=all_brokers), then)
            then(refusal_of(written.error))

        node = broker_node(None if all_brokers else self.broker_id)
        self.config_writer.change(node, change, changed, validate_only=validate_only)

    def broker_configs_changed(self, texts: Texts, *, all_brokers: bool) -> None:
        """Apply dynamic configs that this broker has stored."""
        other = self.config.stored_texts(all_brokers=not all_brokers)
        self.apply_configs(*((texts, other) if all_brokers else (other, texts)))

    def apply_configs(self, default: Texts | None, own: Texts | None) -> None:
        """Apply stored dynamic configs: those of all brokers, and those of this one. None: they cannot be read, so
        those in force stay.
        """
        before = self.config
        stored = read_broker_config(before, default, own)
        self.config = stored.config
        self.config_problems.report_broker(stored)
        after = self.config
        for line in not_in_force(
            {**before.dynamic_default, **before.dynamic}, {**after.dynamic_default, **after.dynamic}
        ):
            LOGGER.warning("%s", line)
        self.hosting.configure(self.config)
        self.listening.configure(self.config)
        self.quotas.configure()
        if self.in_cluster:
            self._encrypt_passwords_again()
        self.logs.upkeep.producer_silent_ms = self.config.producer_id_expiration_ms

    def _encrypt_passwords_again(self) -> None:
        """Store the passwords that only `password.encoder.old.secret` decrypts with the present secret."""
        passwords = self.config.passwords
        if passwords is None or not passwords.of_former_secret(self.config.dynamic.values()):
            return

        def ended(refusal: Refusal | None) -> None:
            if refusal is not None:
                LOGGER.warning("stored passwords are not encrypted again: %s", refusal.message)

        self.change_broker_configs(False, lambda texts: passwords.with_present_secret(texts or {}), False, ended)

    def change_group_configs(
        self, group: str, change: ConfigChange, validate_only: bool, then: Callable[[Refusal | None], None]
    ) -> None:
        """Change the dynamic configs of a group, and apply them once they are durable.

        Arguments:
            group: its name.
            change: returns the new texts from the stored ones, or raises ConfigError.
            validate_only: nothing is changed.
            then: called with None, or with the reason why they were not stored.
        """

        def changed(written: Written) -> None:
            if not written.error and not validate_only:
                attempt(partial(self.apply_group_configs, group, written.texts), then)
            then(refusal_of(written.error))

        self.config_writer.change(group_node(group), change, changed, validate_only=validate_only)

    def apply_group_configs(self, group: str, texts: Texts) -> None:
        """Apply stored dynamic configs of a group; an empty mapping removes them."""
        self.config_problems.report_group(group, texts)
        if texts:
            self.group_configs[group] = dict(texts)
        else:
            self.group_configs.pop(group, None)
