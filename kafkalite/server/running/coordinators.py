"""The coordinators of a broker, one for each internal topic, by the table `COORDINATORS`.

A coordinator is imported and created on first use, because many brokers never have a group or a transaction. To add
one, write its class with the methods of `Coordinator`, a function that creates it, and a row of the table.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kafkalite._speedups.net.heartbeats import Heartbeats
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.topics.internal_topics import OFFSETS, TRANSACTION_STATE
from kafkalite.metrics import Registry

if TYPE_CHECKING:
    from kafkalite.coordinators.group.coordinator import CoordinatorHost, GroupCoordinator
    from kafkalite.coordinators.transaction.coordinator import TransactionCoordinator, TransactionHost
    from kafkalite.server.security.authorization import AuditedAuthorizer

    class CoordinatingBroker(CoordinatorHost, TransactionHost, Protocol):
        """The broker, as the functions that create coordinators need it."""

        heartbeats: Heartbeats
        metrics: Registry

        @property
        def authorizer(self) -> "AuditedAuthorizer | None": ...


class Coordinator(Protocol):
    """The coordinator of an internal topic, as the broker uses it: keys belong to partitions of the topic."""

    def partition_for(self, key: str) -> int:
        """The partition of a key; -1 = the number of partitions is not known yet."""

    def ensure_topic(self, then: Callable[[int], None]) -> None:
        """Create the topic unless it exists; calls `then` with 0 or COORDINATOR_NOT_AVAILABLE with its reason."""

    def topic_changed(self, name: str) -> None:
        """Any topic was created or has more partitions."""

    def topic_gone(self, name: str) -> None:
        """Any topic was deleted."""

    def image_changed(self) -> None:
        """The image of a cluster has changed: other leaders or brokers."""

    def elected(self, partition: Partition) -> None:
        """This broker leads a partition of the topic, perhaps in a new leader epoch."""

    def resigned(self, partition: int) -> None:
        """This broker leads a partition of the topic no more."""

    def partitions_changed(self, count: int) -> None:
        """The topic of a cluster has this number of partitions now; 0 = it does not exist, or is not known."""

    def close(self) -> None:
        """Stop: pending and later requests fail with NOT_COORDINATOR."""


def create_group_coordinator(broker: "CoordinatingBroker") -> "GroupCoordinator":
    """The coordinator of groups; heartbeats of its members are answered without a handler."""
    from kafkalite.coordinators.group.coordinator import GroupCoordinator

    coordinator = GroupCoordinator(broker)
    speaks_consumer = "consumer" in broker.config.group_coordinator_rebalance_protocols
    consumer = coordinator.groups.fast_consumer_heartbeat if speaks_consumer else None
    authorized = None
    if broker.authorizer is not None:
        from kafkalite.server.requests.authorization.decision_cache import keeps_group_read

        authorized = partial(keeps_group_read, broker.authorizer)
    broker.heartbeats.register_callbacks(
        classic=coordinator.groups.fast_heartbeat, consumer=consumer, authorized=authorized
    )
    return coordinator


def create_transaction_coordinator(broker: "CoordinatingBroker") -> "TransactionCoordinator":
    """The coordinator of transactions, whose counters are metrics."""
    from kafkalite.coordinators.transaction.coordinator import TransactionCoordinator
    from kafkalite.server.running.transaction_metrics import register_transaction_metrics

    coordinator = TransactionCoordinator(broker)
    register_transaction_metrics(broker.metrics, coordinator.counters)
    return coordinator


COORDINATORS: dict[str, Callable[["CoordinatingBroker"], Coordinator]] = {
    OFFSETS.name: create_group_coordinator,
    TRANSACTION_STATE.name: create_transaction_coordinator,
}
"""How the coordinator of each internal topic is created."""


class CoordinatorTable:
    """The coordinators of a broker that exist.

    Arguments:
        create: creates the coordinator of a topic that has none yet.
    """

    def __init__(self, create: Callable[[str], Coordinator]) -> None:
        self._create = create
        self._created: dict[str, Any] = {}
        self._closed = False

    def of(self, topic: str) -> Any:
        """The coordinator of an internal topic, created on first use. Raises KeyError for another topic."""
        return self._created.get(topic) or self._new(topic)

    def get(self, topic: str) -> Coordinator | None:
        """The coordinator of a topic; None if it does not exist yet, or for a topic without one."""
        return self._created.get(topic)

    def __iter__(self) -> Iterator[Coordinator]:
        return iter(list(self._created.values()))

    def _new(self, topic: str) -> Coordinator:
        coordinator = self._created[topic] = self._create(topic)
        if self._closed:
            coordinator.close()
        return coordinator

    def close(self) -> None:
        """Complete all pending requests, and create no coordinator that serves any more."""
        self._closed = True
        for coordinator in self:
            coordinator.close()
