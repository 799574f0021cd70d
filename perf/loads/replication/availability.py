"""Topics with three replicas at rest, after the death of a leader, and during a controlled shutdown."""

import time

from perf.brokers.clusters import Cluster
from perf.images import image, wait_for
from perf.loads.base import Figure, Sample, Trial
from perf.loads.clusters import TOPIC, ClusterLoad, Idle, create, deletion, wait_for_replicas
from perf.loads.replication.writer import Writer

REPLICAS = 3


class ReplicatedLoad(ClusterLoad):
    """A load on three brokers with topics of factor 3 and a minimum of 2."""

    group = "replication"
    replicas = REPLICAS


class ReplicatedIdle(Idle):
    name = "replication-idle"
    title = "3 brokers, a topic of 2,000 partitions with 3 replicas, no clients, 30 s: CPU of a core for each broker"
    group = "replication"
    replicas = REPLICAS


class LeaderKilled(ReplicatedLoad):
    figures = (Figure("last_image_ms", "last image", "ms"), Figure("first_image_ms", "first image", "ms"))

    def __init__(self, controller: bool) -> None:
        self._controller = controller
        self.name = "replication-failover-controller" if controller else "replication-failover"
        role = "the controller" if controller else "a broker that is not the controller"
        self.title = (
            f"{role} is killed, 2,000 partitions with 3 replicas: from its session's end until images have leaders"
        )

    def measure(self, cluster: Cluster, trial: Trial) -> Sample:
        """Kill a leader."""
        partitions = trial.scaled(2_000, 200)
        create(cluster, TOPIC, partitions)
        found = image(cluster.running[1])
        victim = next(each for each in cluster.running if (each == found.controller) == self._controller)
        with deletion(cluster, f"/brokers/ids/{victim}") as gone:
            cluster.kill(victim)
        reached = wait_for(cluster.running, lambda found: {*found.leaders.values()} <= {*cluster.running})
        cluster.start(victim)
        wait_for_replicas(cluster, TOPIC, partitions)
        delays = [(at - gone[0]) * 1000 for at in reached.values()]
        return {"last_image_ms": max(delays), "first_image_ms": min(delays)}


class PartitionLoad(ReplicatedLoad):
    """A load that watches one of 100 partitions while its leader ends."""

    partitions = 100

    def measure(self, cluster: Cluster, trial: Trial) -> Sample:
        """Produce to a partition while its leader ends. The controller is another broker."""
        create(cluster, TOPIC, self.partitions)
        found = image(cluster.running[1])
        victim = next(each for each in cluster.running if each != found.controller)
        partition = next(number for (_, number), leader in found.leaders.items() if leader == victim)
        with Writer(cluster.running.values(), TOPIC, partition) as writer:
            ended = time.monotonic()
            self.end(cluster, victim)
            writer.wait_for_next(time.monotonic())
        if victim not in cluster.running:
            cluster.start(victim)
        wait_for_replicas(cluster, TOPIC, self.partitions)
        return {"unavailable_ms": writer.longest_pause_s(ended) * 1000}

    def end(self, cluster: Cluster, victim: int) -> None:
        """End a broker."""
        raise NotImplementedError


class KilledAndStarted(PartitionLoad):
    name = "replication-restart"
    title = (
        "a leader is killed and started at once, 100 partitions with 3 replicas: until a record is acknowledged again"
    )
    figures = (Figure("unavailable_ms", "no acknowledgement", "ms"),)

    def end(self, cluster: Cluster, victim: int) -> None:
        """Kill it; Apache Kafka cannot start before its former session has ended."""
        cluster.kill(victim)
        if cluster.kind.starts_within_its_session:
            cluster.start(victim)


class ControlledShutdown(PartitionLoad):
    name = "replication-shutdown"
    title = "a leader of 100 partitions with 3 replicas is stopped by SIGTERM: longest time without an acknowledgement"
    figures = (Figure("unavailable_ms", "no acknowledgement", "ms"),)

    def end(self, cluster: Cluster, victim: int) -> None:
        """Stop it."""
        cluster.stop(victim)


LOADS = (ReplicatedIdle(), LeaderKilled(False), LeaderKilled(True), KilledAndStarted(), ControlledShutdown())
