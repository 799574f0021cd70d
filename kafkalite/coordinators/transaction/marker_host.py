"""The broker, as the senders of markers need it."""

from collections.abc import Callable, Iterable
from typing import Protocol

from kafkalite.clock import Clock, Random
from kafkalite.cluster.broker_peers import CallDone
from kafkalite.cluster.metadata.image import ClusterImage
from kafkalite.cluster.replicas import Replicas
from kafkalite.model import TopicPartition
from kafkalite.protocol.schema import Request
from kafkalite.records.control import TransactionMarker


class BrokerCalls(Protocol):
    """Calls to the other brokers (`cluster.broker_peers`)."""

    def call(self, broker_id: int, request: Request, then: CallDone, *, version_max: int | None = None) -> None: ...


class Writer(Protocol):
    """Writes markers to partitions of this broker (`server.hosting.marker_writer`)."""

    def write(
        self,
        marker: TransactionMarker,
        partitions: Iterable[TopicPartition],
        then: Callable[[dict[TopicPartition, int]], object],
    ) -> None: ...


class MarkerHost(Protocol):
    """The broker, as markers need it. `peers` None: it is alone."""

    broker_id: int
    random: Random
    replicas: Replicas

    @property
    def clock(self) -> Clock: ...

    @property
    def image(self) -> ClusterImage: ...

    @property
    def peers(self) -> BrokerCalls | None: ...

    @property
    def marker_writer(self) -> Writer: ...

    def count_partitions(self, topic: str, then: Callable[[int], object]) -> None:
        """Call `then` with the number of partitions of a topic in the tree, 0 = it does not exist."""
