"""The controller of a cluster of one machine works on 10,000 partitions, while a client of a broker is probed.

Two brokers share a coordination directory, so that the broker that serves the tree is one of them. The probed one is
the controller, or after its death the other one.
"""

import shutil
import time
from collections.abc import Callable

from perf.brokers.base import Running
from perf.brokers.clusters import DirectoryCluster, KafkaliteCluster
from perf.images import image, wait_for
from perf.loads.base import CpuMeter, Load, Sample, Trial
from perf.loads.fairness.base import FIGURES, QUIET_S
from perf.loads.fairness.client import Client
from perf.loads.fairness.probe import Probe
from perf.loads.fairness.waits import summary_ms
from tests.kit.metadata_v1 import Image

BROKERS = 2
PARTITIONS = 10_000
MANY = "many"
WAIT_S = 120.0
WITHOUT_LOAD_S = frozenset({"load_s"})


class ClusterWork(Load):
    """Work of the controller of a cluster of its own.

    Arguments:
        name: of the load, without `fairness-cluster-`.
        title: one sentence.
        work: does what the probed client must not notice.
        topics: with `PARTITIONS / topics` partitions each.
        before: prepares it; None = the topics are created.
        survivor: the probed broker is the one that is not the controller.
    """

    group = "fairness"
    starts_broker = True
    brokers = frozenset({KafkaliteCluster.name})
    figures = tuple(figure for figure in FIGURES if figure.key not in WITHOUT_LOAD_S)

    def __init__(
        self,
        name: str,
        title: str,
        work: "Work",
        *,
        topics: int = 1,
        before: "Work | None" = None,
        survivor: bool = False,
    ) -> None:
        self.name, self.title = f"fairness-cluster-{name}", title
        self._work, self._topics, self._survivor = work, topics, survivor
        self._before: Work = create if before is None else before

    def run(self, trial: Trial) -> Sample:
        """As `Load.run`."""
        assert isinstance(trial.kind, KafkaliteCluster)
        directory = trial.directory / f"{self.name}-{trial.round}"
        with DirectoryCluster(trial.kind, directory, BROKERS) as cluster:
            wait_for(cluster.running, lambda found: len(found.brokers) == BROKERS and found.controller > 0)
            found = ClusterTopics(
                cluster, self._topics, trial.scaled(PARTITIONS, PARTITIONS // 20) // self._topics or 1
            )
            self._before(found)
            sample = self._measured(found, found.other if self._survivor else found.controller)
        shutil.rmtree(directory)
        return sample

    def _measured(self, found: "ClusterTopics", broker_id: int) -> Sample:
        broker = found.cluster.running[broker_id]
        with Probe(broker) as probe, CpuMeter(broker) as cpu:
            time.sleep(QUIET_S)
            self._work(found)
            time.sleep(QUIET_S)
        waits, control = summary_ms(probe.waits), summary_ms(probe.control)
        sample = {key: waits[key] for key in ("longest", "net", "p99", "net_p99")}
        return sample | {"control": control["longest"], "cpu_s": cpu.seconds}


class ClusterTopics:
    """A cluster and its topics."""

    def __init__(self, cluster: DirectoryCluster, topics: int, partitions: int) -> None:
        self.cluster = cluster
        self.names = [f"{MANY}-{number:04}" for number in range(topics)]
        self.partitions = partitions
        self.controller = image(next(iter(cluster.running.values()))).controller
        self.other = next(each for each in cluster.running if each != self.controller)

    @property
    def controlling(self) -> Running:
        """The broker that is the controller at the start."""
        return self.cluster.running[self.controller]

    def wait_for_leaders(self, count: int) -> None:
        """Wait until the images of all running brokers have so many partitions with a leader."""
        wait_for(self.cluster.running, lambda found: led(found) == count)


Work = Callable[[ClusterTopics], object]


def led(found: Image) -> int:
    """The number of partitions of the topics with a leader."""
    return sum(name.startswith(MANY) and leader > 0 for (name, _), leader in found.leaders.items())


def nothing(found: ClusterTopics) -> None:
    """Prepare nothing."""


def create(found: ClusterTopics) -> None:
    """Create the topics in one request."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": found.controlling.address})
    topics = [NewTopic(name, found.partitions, 1) for name in found.names]
    for each in admin.create_topics(topics, operation_timeout=WAIT_S, request_timeout=WAIT_S).values():
        each.result(WAIT_S)
    found.wait_for_leaders(len(found.names) * found.partitions)


def delete(found: ClusterTopics) -> None:
    """Delete the topics in one request."""
    with Client(found.controlling) as client:
        client.delete(found.names)
    wait_for(found.cluster.running, lambda image: not any(name.startswith(MANY) for name, _ in image.leaders))


def grow(found: ClusterTopics) -> None:
    """Add one partition to each topic."""
    from confluent_kafka.admin import AdminClient, NewPartitions

    admin = AdminClient({"bootstrap.servers": found.controlling.address})
    grown = [NewPartitions(name, found.partitions + 1) for name in found.names]
    for each in admin.create_partitions(grown, operation_timeout=WAIT_S, request_timeout=WAIT_S).values():
        each.result(WAIT_S)
    found.wait_for_leaders(len(found.names) * (found.partitions + 1))


def fail_over(found: ClusterTopics) -> None:
    """Kill the controller: the other broker takes over the tree and the cluster."""
    found.cluster.kill(found.controller)
    wait_for(
        found.cluster.running,
        lambda image: image.controller == found.other and found.controller not in image.leaders.values(),
    )


def restart(found: ClusterTopics) -> None:
    """Kill the other broker, and start it again."""
    found.cluster.kill(found.other)
    found.cluster.start(found.other)
    found.wait_for_leaders(len(found.names) * found.partitions)


LOADS = (
    ClusterWork("create", "a topic of 10,000 partitions is created on 2 brokers", create, before=nothing),
    ClusterWork(
        "create-topics", "1,000 topics of 10 partitions are created on 2 brokers", create, topics=1_000, before=nothing
    ),
    ClusterWork("delete", "a topic of 10,000 partitions on 2 brokers is deleted", delete),
    ClusterWork("grow", "a topic of 10,000 partitions on 2 brokers grows by one", grow),
    ClusterWork("failover", "the controller of 2 brokers with 10,000 partitions is killed", fail_over, survivor=True),
    ClusterWork("restart", "one of 2 brokers with 10,000 partitions is killed and starts again", restart),
)
