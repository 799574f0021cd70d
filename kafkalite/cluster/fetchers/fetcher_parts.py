"""What the fetchers of a broker share."""

from collections.abc import Callable
from typing import Protocol

from kafkalite.cluster.fetchers.fetch_reports import FetchReports
from kafkalite.cluster.fetchers.fetched_replica import FetchedReplica
from kafkalite.cluster.fetchers.host import FetcherHost
from kafkalite.cluster.fetchers.log_changes import LogChanges
from kafkalite.cluster.fetchers.throttled_replicas import ThrottledReplicas
from kafkalite.metrics import Counter
from kafkalite.state.follower.partition_fetch import FetchEvent


class LogOwner(Protocol):
    """A fetcher, whose replica's log was changed."""

    def log_changed(self, replica: FetchedReplica, event: FetchEvent) -> None:
        """A truncation, a restart or a flush of the log has ended."""


class FetcherParts:
    """What the fetchers of a broker share.

    Arguments:
        host: the broker.
        rerouted: called with a replica whose topic requires a flush before the next fetch, or does no longer.

    Attributes:
        changes: of logs.
        reports: warnings.
        throttled: replicas that wait for the replication quota.
        bytes_in: bytes of records that were appended.
        requests: fetches that were sent.
    """

    def __init__(self, host: FetcherHost, rerouted: Callable[[FetchedReplica], object]) -> None:
        self.host = host
        self.rerouted = rerouted
        self.changes = LogChanges(host.logs, self._changed)
        self.reports = FetchReports(host.clock)
        self.throttled = ThrottledReplicas(host)
        self.bytes_in = Counter()
        self.requests = Counter()
        self.fetcher_of: dict[FetchedReplica, LogOwner] = {}

    def appended(self, replica: FetchedReplica, size: int) -> None:
        """Count the bytes of a fetch."""
        self.bytes_in.add(size)
        self.throttled.charge(replica, size)

    def _changed(self, replica: FetchedReplica, event: FetchEvent) -> None:
        self.fetcher_of[replica].log_changed(replica, event)
