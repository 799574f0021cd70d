"""Three brokers over a ZooKeeper as one broker of the ordinary loads, whose topics have a given replication factor."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perf.brokers.base import Broker, BrokerError, Running
from perf.brokers.clusters import Cluster, ClusterKind
from perf.images import wait_for

BROKERS = 3


@dataclass
class RunningCluster(Running):
    """The brokers of a cluster; the process, port and directory are those of the first one."""

    cluster: Cluster | None = None

    @property
    def members(self) -> Mapping[int, Running]:
        """As `Running.members`."""
        assert self.cluster is not None
        return self.cluster.running

    @property
    def address(self) -> str:
        """The addresses of all brokers, as clients take them."""
        return ",".join(each.address for each in self.members.values())

    def stop(self) -> None:
        """As `Running.stop`; all brokers are killed in the end."""
        ended = [each for each in self.members.values() if each.process.poll() is not None]
        self.kill()
        if ended:
            raise BrokerError(f"{self.name}: ended before: {', '.join(each.address for each in ended)}")

    def kill(self) -> None:
        """As `Running.kill`."""
        assert self.cluster is not None
        self.cluster.close()


class Replicated(Broker):
    """Three brokers of one type.

    Arguments:
        kind: type of the brokers.
        name: of the row.
        replicas: replication factor of the topics; above 1 their `min.insync.replicas` is 2.
    """

    def __init__(self, kind: ClusterKind, name: str, replicas: int) -> None:
        self._kind, self.replicas = kind, replicas
        self.name, self.title = name, f"{kind.title}, {BROKERS} brokers, factor {replicas}"

    def missing(self) -> str | None:
        """As `Broker.missing`."""
        return self._kind.missing()

    def version(self) -> str:
        """As `Broker.version`."""
        return self._kind.version()

    def start(self, directory: Path, settings: Mapping[str, str] | None = None) -> Running:
        """As `Broker.start`."""
        cluster = Cluster(self._kind, directory, BROKERS, self.replicas, settings or {})
        cluster.open()
        try:
            wait_for(cluster.running, lambda found: len(found.brokers) == BROKERS and found.controller > 0)
        except BaseException:
            cluster.close()
            raise
        first, start_s = cluster.running[1], max(each.start_seconds for each in cluster.running.values())
        return RunningCluster(
            self.name, first.process, first.port, directory, start_s, replicas=self.replicas, cluster=cluster
        )
