"""Limits the bytes of throttled replicas in one direction: those that a leader sends, or that a follower fetches.

A topic names its throttled replicas, a broker has the limit. All bytes of throttled replicas are charged; only replicas
that are not in sync wait.

Sources: KIP-73; ReplicationQuotaManager.scala, SimpleRate.java of Apache Kafka 3.9.
"""

from kafkalite.state.quotas.rates import Rate, Windows

ALL = "*"


class SimpleRate(Rate):
    """Values per second over at least one window, while `Rate` uses nearly all of them: a new rate allows no burst."""

    __slots__ = ()

    def window_ms(self, now_ms: int) -> int:
        """Return the time that the rate is measured over."""
        super().window_ms(now_ms)
        return max(self._windows.size_ms, now_ms - self._oldest_ms)


class ReplicationQuota:
    """Bytes of throttled replicas that one broker sends, or that it fetches.

    Arguments:
        broker_id: of this broker.
        windows: `replication.quota.window.num` and `replication.quota.window.size.seconds`.

    Attributes:
        bytes: that were charged.
    """

    __slots__ = ("_broker_id", "_named", "_partitions", "_rate", "_windows", "bytes")

    def __init__(self, broker_id: int, windows: Windows) -> None:
        self.bytes = 0
        self._broker_id = broker_id
        self._windows = windows
        self._rate = SimpleRate(windows)
        self._named: tuple[str, ...] = ()  # the last list that was asked for, and the partitions of this broker in it
        self._partitions: frozenset[str] = frozenset()

    def is_throttled(self, replicas: tuple[str, ...], partition: int) -> bool:
        """Whether the replica of a partition on this broker is throttled.

        Arguments:
            replicas: `leader.replication.throttled.replicas` of the topic, or that of followers: PARTITION:BROKER.
            partition: its index.
        """
        if not replicas:
            return False
        if replicas is not self._named:
            pairs = [each.partition(":") for each in replicas]
            own = str(self._broker_id)
            self._named = replicas
            self._partitions = frozenset(index for index, _, broker in pairs if broker == own or index == ALL)
        return ALL in self._partitions or str(partition) in self._partitions

    def charge(self, size: int, now_ms: int) -> None:
        """Count bytes of throttled replicas, at a monotonic time in ms."""
        self.bytes += size
        self._rate.record(size, now_ms)

    def pause_ms(self, limit: int, now_ms: int) -> int:
        """Return how long throttled replicas wait, 0 = the limit is not exceeded.

        At most one window, after which the limit may be another one.

        Arguments:
            limit: bytes per second.
            now_ms: monotonic time.
        """
        rate = self._rate.measure(now_ms)
        if rate <= limit:
            return 0
        if limit <= 0:
            return self._windows.size_ms
        back_ms = (rate - limit) / limit * self._rate.window_ms(now_ms)
        return max(1, int(min(self._windows.size_ms, back_ms)))
