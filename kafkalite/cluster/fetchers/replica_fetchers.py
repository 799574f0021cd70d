"""Fetches all partitions that this broker follows.

1. A leader has up to `num.replica.fetchers` fetchers, each with a connection and a session; and as many for partitions
   that flush before the acknowledgement (flush.messages), so that a slow fsync delays no other partition.
2. A partition is always in the same fetcher of its leader. A fetcher without partitions ends.
3. After `stop`, nothing is appended, truncated or flushed. A job that already runs ends and updates the log.

Source: AbstractFetcherManager.scala, ReplicaFetcherManager.scala of Apache Kafka 3.9.
"""

import zlib
from collections.abc import Callable
from typing import NamedTuple

from kafkalite.callbacks import call_each
from kafkalite.cluster.fetchers.fetched_replica import UNKNOWN_LAG, FetchedReplica
from kafkalite.cluster.fetchers.fetcher_parts import FetcherParts
from kafkalite.cluster.fetchers.host import FetcherHost
from kafkalite.cluster.fetchers.leader_fetcher import NO_FLUSH, LeaderFetcher
from kafkalite.cluster.partition.follower import Follower
from kafkalite.cluster.partition.partition import Partition
from kafkalite.metrics import Registry
from kafkalite.state.follower.partition_fetch import FetchState


class Route(NamedTuple):
    """Which fetcher a partition is in.

    Arguments:
        leader: broker id.
        number: of the fetcher, below num.replica.fetchers.
        flush_first: whether its partitions flush before the next fetch.
    """

    leader: int
    number: int
    flush_first: bool


class ReplicaFetchers:
    """The fetchers of a broker.

    Arguments:
        host: the broker.

    Attributes:
        leader_observer: called with the broker id of a leader before it is fetched from.
    """

    def __init__(self, host: FetcherHost) -> None:
        self.leader_observer: Callable[[int], object] = lambda leader: None
        self._host = host
        self._parts = FetcherParts(host, self._reroute_soon)
        self._replicas: dict[Partition, FetchedReplica] = {}
        self._routes: dict[Partition, Route] = {}
        self._fetchers: dict[Route, LeaderFetcher] = {}

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from the leader of its role, in its leader epoch. Called again for each newer state.

        Arguments:
            partition: its role is Follower, and its log is open.
        """
        role = partition.role
        assert isinstance(role, Follower), f"{partition.topic}-{partition.index} is not a follower"
        route = self._route_of(partition, role.leader)
        known = self._replicas.get(partition)
        if known is not None and self._routes[partition] == route and known.log is partition.log:
            if known.leader_epoch != partition.leader_epoch or known.fetch.state is FetchState.FAILED:
                self._fetchers[route].begin_epoch(known)
            return
        if known is not None:
            self.stop(partition)
        fetcher = self._fetchers.get(route)
        if fetcher is None:
            self.leader_observer(route.leader)
            fetcher = self._fetchers[route] = LeaderFetcher(self._parts, route.leader)
        replica = self._replicas[partition] = FetchedReplica(partition, route.flush_first)
        self._routes[partition] = route
        fetcher.add(replica)

    def _route_of(self, partition: Partition, leader: int) -> Route:
        fetchers = self._host.config.num_replica_fetchers
        number = zlib.crc32(partition.topic_id, partition.index) % fetchers
        return Route(leader, number, partition.config.flush_messages < NO_FLUSH)

    def stop(self, partition: Partition) -> None:
        """Fetch a partition no longer; does nothing for one that is not fetched."""
        replica = self._replicas.pop(partition, None)
        if replica is None:
            return
        route = self._routes.pop(partition)
        fetcher = self._fetchers[route]
        fetcher.remove(replica)
        if not fetcher.replicas:
            del self._fetchers[route]
            fetcher.close()

    def stop_all(self) -> None:
        """Fetch nothing, until partitions are followed again."""
        call_each(self.stop, list(self._replicas))

    def close(self) -> None:
        """End all connections."""
        self.stop_all()

    def brokers_changed(self) -> None:
        """The image has other brokers, or other addresses of them."""
        call_each(LeaderFetcher.leader_moved, list(self._fetchers.values()))

    def configure(self) -> None:
        """The configs of the broker have changed: num.replica.fetchers decides in which fetcher a partition is."""
        call_each(self._reroute, list(self._replicas.values()))

    def _reroute_soon(self, replica: FetchedReplica) -> None:
        """flush.messages of a topic was set or removed: its partition changes the fetcher."""
        clock = self._host.clock
        clock.call_at(clock.monotonic(), self._reroute, replica)

    def _reroute(self, replica: FetchedReplica) -> None:
        if self._replicas.get(replica.partition) is replica and replica.is_usable:
            self.follow(replica.partition)

    # What is observed.

    def lag_of(self, partition: Partition) -> int:
        """Records behind the leader's high watermark; -1 = unknown, because it is not fetched or was not yet."""
        replica = self._replicas.get(partition)
        return UNKNOWN_LAG if replica is None else replica.lag

    @property
    def max_lag(self) -> int:
        """The largest lag (kafka.server:type=ReplicaFetcherManager,name=MaxLag); 0 without partitions."""
        return max((replica.lag for replica in self._replicas.values()), default=0)

    def lag_behind(self, leader: int) -> int:
        """The largest lag of a partition that is fetched from a leader; 0 without any, -1 = unknown."""
        lags = (self._replicas[each].lag for each, route in self._routes.items() if route.leader == leader)
        return max(lags, default=0)

    @property
    def failed_partitions(self) -> int:
        """Partitions that are not fetched before the next leader epoch (name=FailedPartitionsCount)."""
        return sum(replica.fetch.state is FetchState.FAILED for replica in self._replicas.values())

    @property
    def bytes_in(self) -> int:
        """Bytes of records that were fetched and appended (name=ReplicationBytesInPerSec counts them)."""
        return int(self._parts.bytes_in.value)

    @property
    def throttled_bytes_in(self) -> int:
        """Bytes that throttled replicas fetched (type=FollowerReplication, name=byte-rate)."""
        return self._parts.throttled.bytes

    @property
    def requests(self) -> int:
        """Fetches that were sent."""
        return int(self._parts.requests.value)

    def states(self) -> dict[Partition, FetchState]:
        """The state of each partition, for tests and status."""
        return {partition: replica.fetch.state for partition, replica in self._replicas.items()}


def register_metrics(registry: Registry, fetchers: ReplicaFetchers) -> None:
    """Register the metrics of the fetchers, with Kafka's meanings.

    The lag (FetcherLagMetrics, ConsumerLag) is one gauge per leader, not one per partition: the largest one counts, and
    `kafkalite cluster log-dirs --partitions` lists all.

    Arguments:
        registry: of the broker.
        fetchers: of the broker.
    """

    def gauge(name: str, help: str, read: Callable[[ReplicaFetchers], int], **labels: str) -> None:
        registry.gauge(name, help, lambda: read(fetchers), **labels)

    fetchers.leader_observer = lambda leader: gauge(
        "kafkalite_replica_fetcher_lag",
        "Largest lag of a partition that is fetched from a leader, in records; -1 = unknown.",
        lambda each: each.lag_behind(leader),
        leader=str(leader),
    )

    gauge(
        "kafkalite_replica_fetcher_max_lag",
        "Largest lag of a followed partition, in records.",
        lambda each: each.max_lag,
    )
    gauge(
        "kafkalite_replica_fetcher_failed_partitions",
        "Followed partitions that are not fetched before their next leader epoch.",
        lambda each: each.failed_partitions,
    )
    gauge(
        "kafkalite_replication_bytes_in",
        "Bytes that were fetched from leaders and appended.",
        lambda each: each.bytes_in,
    )
    gauge(
        "kafkalite_replication_throttled_bytes_in",
        "Bytes that throttled replicas fetched; see follower.replication.throttled.rate.",
        lambda each: each.throttled_bytes_in,
    )
    gauge("kafkalite_replica_fetcher_requests", "Fetches that were sent to leaders.", lambda each: each.requests)
