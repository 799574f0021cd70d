"""The parts of the broker that request handlers may use: one protocol per concern; handlers declare `Call[CONTEXT]`.

`RunningBroker` implements all of them (`HandlerContext`). This module imports neither the broker nor the handlers, so
the imports have no cycle: broker -> table of API keys -> handlers -> call -> context.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kafkalite._speedups.net.framing import Connection, Reply
from kafkalite.clock import Clock, Offload, Random
from kafkalite.cluster.metadata.image import ClusterImage, ClusterTables, FinalizedFeatures
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.partition.read_ahead import ReadAhead
from kafkalite.cluster.producer_ids import ProducerIds
from kafkalite.cluster.replicas import Replicas
from kafkalite.cluster.topics.manager import TopicManager
from kafkalite.config.broker import BrokerConfig
from kafkalite.model import Node, TopicPartition
from kafkalite.server.configs.config_resources import ConfigResources
from kafkalite.server.requests.api import Row
from kafkalite.server.requests.description_cache import DescriptionCache
from kafkalite.slicing import Slicer
from kafkalite.state.fetch_sessions import FetchSessions
from kafkalite.storage.manager import LogManager

if TYPE_CHECKING:  # imported with the first request of a group, or only in a cluster
    from kafkalite.cluster.broker_peers import BrokerPeers
    from kafkalite.cluster.configs.client_quotas import QuotaEntity
    from kafkalite.cluster.controller.invalid_nodes import InvalidPath
    from kafkalite.cluster.credentials.store import ScramCredentials
    from kafkalite.cluster.tokens.store import DelegationTokens
    from kafkalite.coordination.backend import Coordination
    from kafkalite.coordinators.group.service import GroupService
    from kafkalite.coordinators.transaction.service import TransactionService
    from kafkalite.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from kafkalite.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
    from kafkalite.server.hosting.controller_requests import ControllerRequests
    from kafkalite.server.hosting.marker_writer import MarkerWriter
    from kafkalite.server.hosting.replica_moves import ReplicaMoves
    from kafkalite.server.requests.first_image import FirstImage
    from kafkalite.server.security.audit_log import AuditLog
    from kafkalite.server.security.authorization import AuditedAuthorizer
    from kafkalite.state.controller.effects import Completion


class ProducerIdCounts(Protocol):
    """The limits of principals, as far as a handler counts what they hold."""

    def count_producer_id(self, connection: Connection) -> None:
        """Count a producer id without a transactional id that is being issued to the client of a connection."""

    def uncount_producer_id(self, connection: Connection) -> None:
        """The producer id that was counted last is not issued."""


class RequestDispatcher(Protocol):
    """The part of the dispatcher that a call uses."""

    @property
    def limits(self) -> ProducerIdCounts | None: ...
    def rows_on(self, listener: str) -> Sequence[Row]:
        """Return the API keys that are served on a listener."""

    def is_between_brokers(self, reply: Reply) -> bool:
        """Whether a request came over the listener between brokers."""

    def refuse_key(self, reply: Reply, key: int) -> None:
        """Close a connection that sent what is not served on its listener."""

    def unforeseen(self, call: Any, error: Exception) -> None:
        """End a request in which an unexpected exception was raised."""


class CallContext(Protocol):
    """The context of every call: time slices, pending writes, failures, and this broker's address."""

    broker_id: int
    replicas: Replicas
    slicer: Slicer

    @property
    def authorizer(self) -> "AuditedAuthorizer | None":
        """The authorizer of all requests; None: they are all allowed."""

    @property
    def features(self) -> FinalizedFeatures:
        """The finalized features of the cluster."""

    @property
    def dispatcher(self) -> RequestDispatcher: ...

    def own_node(self, connection: Connection) -> Node:
        """Return this broker with the address at which the client of this connection reaches it."""


class LeaderContext(CallContext, Protocol):
    """The leaders of partitions that other brokers host."""

    @property
    def in_cluster(self) -> bool:
        """Whether this broker is one of a cluster."""

    @property
    def image(self) -> ClusterImage: ...

    def nodes(self, image: ClusterImage, connection: Connection) -> Iterable[Node]:
        """Return the brokers of an image with the addresses at which the client of this connection reaches them."""


class ClusterContext(LeaderContext, Protocol):
    """The cluster: topics, brokers and the settings of this broker."""

    config: BrokerConfig
    descriptions: DescriptionCache
    first_image: "FirstImage | None"  # None: the image is known
    tables: ClusterTables

    def offline_partitions(self, topic_id: bytes) -> frozenset[int]:
        """Return the partitions of a topic that cannot be served, as far as the image does not show it: none in a
        cluster, whose image has the offline replicas.
        """


class StateController(Protocol):
    """The elected controller on this broker; each `then` is called once with the response."""

    def alter_partition(
        self, request: "AlterPartitionRequest", then: "Callable[[AlterPartitionResponse], object]"
    ) -> None: ...

    def controlled_shutdown(
        self, request: "ControlledShutdownRequest", then: "Callable[[ControlledShutdownResponse], object]"
    ) -> None: ...

    def elect_leaders(
        self,
        partitions: Sequence[TopicPartition],
        *,
        unclean: bool,
        timeout_s: float,
        then: "Callable[[Completion], object]",
    ) -> None: ...


class StoredQuotas(Protocol):
    """Applies changes of client quotas."""

    def change(self, entity: "QuotaEntity", texts: Mapping[str, str | None]) -> None:
        """Apply a change that this broker has stored: the new text of each key, None = it was removed."""


class AdminContext(ClusterContext, Protocol):
    """What administrators ask about the cluster as a whole."""

    group_configs: dict[str, dict[str, str]]

    @property
    def audit_log(self) -> "AuditLog":
        """The audit log, for changed users and quotas."""

    @property
    def quotas(self) -> StoredQuotas:
        """The client quotas that this broker enforces."""

    @property
    def metadata(self) -> "Coordination":
        """The session with the service that stores the cluster metadata."""

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller; a broker that is alone always is."""

    @property
    def local_controller(self) -> StateController | None:
        """The controller of the cluster, if this broker is elected; None = this broker takes part in no election."""


class UserContext(AdminContext, Protocol):
    """The users of the cluster."""

    @property
    def credentials(self) -> "ScramCredentials | None":
        """The credentials for logins; None: no listener offers SCRAM."""


class TokenContext(ClusterContext, Protocol):
    """The delegation tokens of the cluster."""

    clock: Clock
    random: Random

    @property
    def tokens(self) -> "DelegationTokens | None":
        """The tokens; None: they are disabled."""


class TopicContext(ClusterContext, Protocol):
    """Changes of topics."""

    topics: TopicManager


class PartitionContext(LeaderContext, Protocol):
    """The logs of hosted partitions, and reads of them."""

    clock: Clock
    config: BrokerConfig
    fetch_sessions: FetchSessions
    logs: LogManager
    offload: Offload
    read_ahead: ReadAhead

    @property
    def replica_moves(self) -> "ReplicaMoves":
        """The moves between the log directories of this broker."""

    def replica_lag(self, partition: Partition) -> int:
        """Return how many records this replica is behind the leader's high watermark, -1 = unknown."""


class TopicCoordinator(Protocol):
    """The coordinator of an internal topic, as handlers of any of them use it."""

    def ensure_topic(self, then: Callable[[int], None]) -> None:
        """Create the topic unless it exists; calls `then` with 0 or COORDINATOR_NOT_AVAILABLE with its reason."""


class TransactionContext(ClusterContext, Protocol):
    """Producer ids, and the transactions that this broker coordinates."""

    clock: Clock
    producer_ids: ProducerIds

    @property
    def transactions(self) -> "TransactionService": ...


class GroupContext(ClusterContext, Protocol):
    """Consumer groups."""

    random: Random
    peers: "BrokerPeers | None"  # None: the broker is alone

    @property
    def groups(self) -> "GroupService": ...

    def coordinators(self, connection: Connection, topic: str) -> Callable[[str], Node | None]:
        """Return a function that finds the coordinator of a key of an internal topic, with its address for the client
        of this connection; None = not available.
        """


class GroupPartitionContext(GroupContext, PartitionContext, Protocol):
    """Consumer groups together with the logs that they read."""


class CoordinatorCallContext(GroupContext, TransactionContext, Protocol):
    """Groups and transactional producers, which have coordinators."""

    def coordinator_of(self, topic: str) -> TopicCoordinator:
        """The coordinator of an internal topic, which is imported and created on first use."""


class MarkerContext(GroupContext, Protocol):
    """Markers of transactions."""

    @property
    def marker_writer(self) -> "MarkerWriter":
        """Writes markers to the partitions of this broker."""


class ConfigContext(CallContext, Protocol):
    """Settings of topics, brokers and groups."""

    configs: ConfigResources


class ControllerCallContext(AdminContext, Protocol):
    """The requests of the controller, which a broker in a cluster serves, and its session."""

    @property
    def controller_requests(self) -> "ControllerRequests": ...

    @property
    def coordination_suspended_ms(self) -> int:
        """How long the coordination service has been out of reach, in ms; -1 = it is connected."""

    @property
    def invalid_nodes(self) -> "Sequence[InvalidPath]":
        """The nodes of the tree that this broker leaves out."""

    @property
    def pending_isr_changes(self) -> int:
        """Number of ISR changes that the controller has not answered."""

    @property
    def replica_lag_max(self) -> int:
        """The largest lag of a partition that this broker follows, in records; 0 without any, -1 = unknown."""


class HandlerContext(
    TopicContext,
    AdminContext,
    GroupPartitionContext,
    CoordinatorCallContext,
    MarkerContext,
    ConfigContext,
    Protocol,
):
    """The contexts of all handlers of `api.ROWS`."""
