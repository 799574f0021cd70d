"""Three brokers over ZooKeeper: fail-over of the controller, topics of many partitions, restart of a broker, rest."""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING

from perf.brokers.clusters import Cluster, ClusterKind, KafkaCluster, KafkaliteCluster
from perf.checks import Topics
from perf.errors import VerificationError
from perf.images import image, in_sync, wait_for
from perf.loads.base import Figure, Load, Sample, Trial
from perf.loads.requests import BATCH
from perf.process import cpu_seconds
from perf.wire import call, connect, produce, produce_error
from tests.kit.metadata_v1 import Image

if TYPE_CHECKING:
    from kazoo.protocol.states import WatchedEvent

BROKERS = 3
TOPIC = "many"
BEFORE_S, IDLE_S = 10.0, 30.0
WAIT_S = 60.0


class ClusterLoad(Load):
    """A load on a cluster of its own in every round; `replicas`: the replication factor of its topics."""

    group = "cluster"
    starts_broker = True
    brokers = frozenset({KafkaliteCluster.name, KafkaCluster.name})
    replicas = 1

    def run(self, trial: Trial) -> Sample:
        """As `Load.run`."""
        assert isinstance(trial.kind, ClusterKind)
        directory = trial.directory / f"{self.name}-{trial.round}"
        with Cluster(trial.kind, directory, BROKERS, self.replicas) as cluster:
            wait_for(cluster.running, lambda found: len(found.brokers) == BROKERS and found.controller > 0)
            sample = self.measure(cluster, trial)
        shutil.rmtree(directory)
        return sample

    def measure(self, cluster: Cluster, trial: Trial) -> Sample:
        """Measure one round."""
        raise NotImplementedError


def create(cluster: Cluster, name: str, partitions: int) -> None:
    """Create a topic and wait until every broker knows all its leaders, and all its replicas are in sync."""
    Topics(cluster.running[1]).create([name], partitions)
    wait_for_replicas(cluster, name, partitions)


def wait_for_replicas(cluster: Cluster, name: str, partitions: int, fewer: int = 0) -> dict[int, float]:
    """Wait until every broker knows that all replicas of a topic, or `fewer` than all, are in sync.

    Returns and raises as `wait_for`.
    """
    in_sync_replicas = cluster.replicas - fewer
    return wait_for(cluster.running, lambda found: in_sync(found, name, in_sync_replicas) == partitions)


def led(found: Image, topic: str) -> int:
    """Return the number of partitions of a topic with a leader."""
    return sum(name == topic and leader > 0 for (name, _), leader in found.leaders.items())


@contextmanager
def deletion(cluster: Cluster, path: str) -> Iterator[list[float]]:
    """At its end wait until a znode is deleted; the list has the value of time.monotonic() then."""
    from kazoo.client import KazooClient

    deleted, at = threading.Event(), []

    def changed(event: "WatchedEvent") -> None:
        at.append(time.monotonic())
        deleted.set()

    client = KazooClient(cluster.zookeeper.address)
    client.start()
    try:
        client.get(path, watch=changed)
        yield at
        if not deleted.wait(WAIT_S):
            raise VerificationError(f"{path} is there after {WAIT_S} s")
    finally:
        client.stop()
        client.close()


class FailOver(ClusterLoad):
    name = "cluster-failover"
    title = "the controller of 3 brokers with 2,000 partitions is killed: from the end of its session to the last image"
    figures = (Figure("last_image_ms", "last image", "ms"), Figure("first_image_ms", "first image", "ms"))
    repetitions = 3

    def measure(self, cluster: Cluster, trial: Trial) -> Sample:
        """Kill the controller some times."""
        partitions = trial.scaled(2_000, 200)
        create(cluster, TOPIC, partitions)
        delays = [self._fail_over(cluster, partitions) for _ in range(self.repetitions)]
        last, first = (median(chosen(delay) for delay in delays) * 1000 for chosen in (max, min))
        return {"last_image_ms": last, "first_image_ms": first}

    def _fail_over(self, cluster: Cluster, partitions: int) -> list[float]:
        controller = image(next(iter(cluster.running.values()))).controller
        with deletion(cluster, "/controller") as gone:
            cluster.kill(controller)
        reached = wait_for(
            cluster.running,
            lambda found: found.controller in cluster.running and controller not in found.leaders.values(),
        )
        cluster.start(controller)
        wait_for(cluster.running, lambda found: led(found, TOPIC) == partitions)
        return [at - gone[0] for at in reached.values()]


class CreateTopic(ClusterLoad):
    name = "cluster-create"
    title = "a topic of 1,000 partitions is created on 3 brokers, the second one of its size: led in every image"
    figures = (Figure("led_ms", "led", "ms"), Figure("cpu_ms", "CPU of all brokers", "ms"))

    def measure(self, cluster: Cluster, trial: Trial) -> Sample:
        """Create two topics."""
        from confluent_kafka.admin import AdminClient, NewTopic

        partitions = trial.scaled(1_000, 100)
        create(cluster, "first", partitions)
        admin = AdminClient({"bootstrap.servers": cluster.running[1].address})
        admin.list_topics(timeout=WAIT_S)  # connects
        started, cpu_s = time.monotonic(), self._cpu_s(cluster)
        admin.create_topics([NewTopic("second", partitions, 1)])["second"].result(WAIT_S)
        reached = wait_for(cluster.running, lambda found: led(found, "second") == partitions)
        used_s = self._cpu_s(cluster) - cpu_s
        Topics(cluster.running[1]).led("second", partitions)
        return {"led_ms": (max(reached.values()) - started) * 1000, "cpu_ms": used_s * 1000}

    @staticmethod
    def _cpu_s(cluster: Cluster) -> float:
        return sum(cpu_seconds(each.pid) for each in cluster.running.values())


class Restart(ClusterLoad):
    figures = (Figure("serving_ms", "serving", "ms"),)

    def __init__(self, partitions: int) -> None:
        self.name = f"cluster-restart-{partitions}"
        self.title = f"one of 3 brokers with {partitions} partitions is killed: from its start until it acknowledges"
        self._partitions = partitions

    def measure(self, cluster: Cluster, trial: Trial) -> Sample:
        """Kill and start a broker that is not the controller."""
        create(cluster, TOPIC, self._partitions)
        found = image(cluster.running[1])
        victim = next(each for each in cluster.running if each != found.controller)
        partition = next(number for (name, number), leader in found.leaders.items() if leader == victim)
        if cluster.kind.starts_within_its_session:
            cluster.kill(victim)
        else:
            with deletion(cluster, f"/brokers/ids/{victim}"):
                cluster.kill(victim)
        started = time.monotonic()
        broker = cluster.start(victim)
        deadline = started + WAIT_S
        while not self._acknowledges(broker.host, broker.port, partition):
            if time.monotonic() > deadline:
                raise VerificationError(f"{broker.name} does not acknowledge {WAIT_S} s after its start")
            time.sleep(0.001)  # leadership comes by no event that a client can wait for
        return {"serving_ms": (time.monotonic() - started) * 1000}

    @staticmethod
    def _acknowledges(host: str, port: int, partition: int) -> bool:
        with connect(host, port) as connection:
            return produce_error(call(connection, produce(TOPIC, partition, BATCH))) == 0


class Idle(ClusterLoad):
    name = "cluster-idle"
    title = "3 brokers with 2,000 partitions without clients, 30 s (quick: 3 s): CPU of a core for each broker"
    figures = (Figure("cpu_percent", "highest broker", "%"), Figure("mean_percent", "mean", "%"))

    def measure(self, cluster: Cluster, trial: Trial) -> Sample:
        """Measure at rest."""
        partitions = trial.scaled(2_000, 200)
        create(cluster, TOPIC, partitions)
        time.sleep(BEFORE_S)  # what a creation leaves to be done must be over, and says nothing when it is
        idle_s = trial.scaled(int(IDLE_S), 3)
        before = [cpu_seconds(each.pid) for each in cluster.running.values()]
        time.sleep(idle_s)
        wait_for_replicas(cluster, TOPIC, partitions)
        used = [cpu_seconds(each.pid) - was for each, was in zip(cluster.running.values(), before, strict=True)]
        return {"cpu_percent": max(used) / idle_s * 100, "mean_percent": sum(used) / len(used) / idle_s * 100}


LOADS = (FailOver(), CreateTopic(), Restart(9), Restart(2_000), Idle())
