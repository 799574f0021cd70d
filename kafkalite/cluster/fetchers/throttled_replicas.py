"""Delays the fetches of followers that exceed `follower.replication.throttled.rate`.

Source: RemoteLeaderEndPoint.shouldFollowerThrottle of Apache Kafka 3.9.
"""

from kafkalite.cluster.fetchers.fetched_replica import FetchedReplica
from kafkalite.cluster.fetchers.host import FetcherHost
from kafkalite.state.quotas.rates import Windows
from kafkalite.state.quotas.replication_quota import ReplicationQuota


class ThrottledReplicas:
    """The replicas of this broker that the replication quota of followers limits.

    Arguments:
        host: the broker.
    """

    def __init__(self, host: FetcherHost) -> None:
        self._host = host
        config = host.config
        windows = Windows(config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000)
        self._quota = ReplicationQuota(host.broker_id, windows)

    @property
    def bytes(self) -> int:
        """Bytes that throttled replicas have fetched."""
        return self._quota.bytes

    def charge(self, replica: FetchedReplica, size: int) -> None:
        """Count bytes that were appended to a replica."""
        if size and self._is_throttled(replica):
            self._quota.charge(size, self._now_ms())

    def pause_s(self) -> float:
        """Return how long the replicas that must wait do so, in seconds; 0.0 = the quota is not exceeded."""
        if not self._quota.bytes:  # so it is nearly always
            return 0.0
        limit = self._host.config.follower_replication_throttled_rate
        return self._quota.pause_ms(limit, self._now_ms()) / 1000

    def must_wait(self, replica: FetchedReplica) -> bool:
        """Whether a replica waits while the quota is exceeded: it is throttled and not in sync."""
        return replica.lag != 0 and self._is_throttled(replica)

    def _is_throttled(self, replica: FetchedReplica) -> bool:
        partition = replica.partition
        return self._quota.is_throttled(partition.config.follower_replication_throttled_replicas, partition.index)

    def _now_ms(self) -> int:
        return int(self._host.clock.monotonic() * 1000)
