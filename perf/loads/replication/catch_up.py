"""A follower that was away catches up with its leaders: alone, and beside a load."""

import importlib
import time
from statistics import mean

from perf.brokers.base import Running
from perf.brokers.clusters import Cluster
from perf.errors import VerificationError
from perf.images import image
from perf.loads.base import Figure, Sample, Trial
from perf.loads.clusters import create, wait_for_replicas
from perf.loads.fairness.probe import Probe
from perf.loads.fairness.waits import summary_ms
from perf.loads.rdkafka import build_missing, drive
from perf.loads.replication.availability import ReplicatedLoad
from perf.loads.replication.load_thread import LoadThread
from perf.loads.requests import BATCH
from perf.process import cpu_seconds
from perf.wire import produce, produce_error_at

LATE, BUSY = "late", "busy"
RECORD_BYTES = 1_000
SLICE_S, LEVEL_S = 0.25, 3.0
DEPTH = 50


class CatchUp(ReplicatedLoad):
    """A follower is killed, 1 GiB is produced, the follower is started."""

    figures = (
        Figure("mb_per_s", "MB/s", "", "higher"),
        Figure("cpu_s_per_gb", "CPU s per GB", "s"),
        Figure("from_start_s", "from the start of the process", "s"),
    )

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.name = f"replication-catch-up-{partitions}"
        self.title = (
            f"a follower fetches 1 GiB (quick: 64 MiB) of {partitions} partition(s) from its first response until all "
            "replicas are in sync; CPU of all brokers meanwhile"
        )

    def missing(self) -> str | None:
        """As `Load.missing`."""
        return build_missing()

    def measure(self, cluster: Cluster, trial: Trial) -> Sample:
        """Measure one catch-up."""
        create(cluster, LATE, self.partitions)
        victim, size = follower(cluster), trial.scaled(1 << 30, 64 << 20)
        fall_behind(cluster, victim, self.partitions, size)
        others = {each: cpu_seconds(broker.pid) for each, broker in cluster.running.items()}
        started = time.monotonic()
        broker = cluster.start(victim)
        ready, cpu_s = time.monotonic(), cpu_seconds(broker.pid) + sum(others.values())
        reached = max(wait_for_replicas(cluster, LATE, self.partitions).values())
        used_s = sum(cpu_seconds(each.pid) for each in cluster.running.values()) - cpu_s
        return {
            "mb_per_s": size / (reached - ready) / 1e6,
            "cpu_s_per_gb": used_s / size * 1e9,
            "from_start_s": reached - started,
        }


def follower(cluster: Cluster) -> int:
    """Return a broker that is not the controller and does not lead partition 0."""
    found = image(cluster.running[1])
    return next(each for each in cluster.running if each not in {found.controller, found.leaders[LATE, 0]})


def fall_behind(cluster: Cluster, victim: int, partitions: int, size: int) -> None:
    """Kill a broker and produce so many bytes without it."""
    cluster.kill(victim)
    wait_for_replicas(cluster, LATE, partitions, fewer=1)
    broker = next(iter(cluster.running.values()))
    drive(broker, "produce", LATE, size // RECORD_BYTES, RECORD_BYTES, "none", "all", 5, partitions=partitions)


class Level(LoadThread):
    """Within the `with` block a thread produces to a partition as fast as it is acknowledged, 50 records at a time.

    Arguments:
        broker: the leader.
        partition: of the topic BUSY.
    """

    def __init__(self, broker: Running, partition: int) -> None:
        super().__init__()
        self._broker, self._requests = broker, [produce(BUSY, partition, BATCH)[4:]]
        self._rates: list[tuple[float, float]] = []  # value of time.monotonic() at the end of a slice, and its rate

    def rate(self, since: float, until: float) -> float:
        """Return the mean of the records per second between two values of time.monotonic()."""
        return mean(rate for at, rate in self._rates if since + SLICE_S <= at <= until + SLICE_S)

    def run(self) -> None:
        """As `LoadThread.run`."""
        loadgen = importlib.import_module("perf.loadgen")
        try:
            while not self.ended.is_set():
                result = loadgen.run(
                    self._broker.host, self._broker.port, self._requests, 1, DEPTH, seconds=SLICE_S,
                    error_at=produce_error_at(BUSY),
                )  # fmt: skip
                self._rates.append((time.monotonic(), result["requests_per_s"]))
        except (RuntimeError, OSError) as error:
            self.failure = VerificationError(f"{self._broker.name}: {error}")


class LoadedCatchUp(ReplicatedLoad):
    """A follower catches up while another partition is under load."""

    name = "replication-catch-up-load"
    title = (
        "1 GiB (quick: 64 MiB) of 100 partitions is caught up beside a closed loop of 50 records of 100 B: what is "
        "held of its rate with all brokers, and the waits of another client"
    )
    partitions = 100
    figures = (
        Figure("held_percent", "of the rate held during catch-up", "%", "higher"),
        Figure("dead_percent", "with a broker dead", "%", "higher"),
        Figure("records_per_s", "records/s with all brokers", "", "higher"),
        Figure("longest", "longest wait of another client", "ms"),
        Figure("net", "of that without waiting for a core", "ms"),
        Figure("control", "longest wait at the idle control process", "ms"),
    )

    def missing(self) -> str | None:
        """As `Load.missing`."""
        return build_missing()

    def measure(self, cluster: Cluster, trial: Trial) -> Sample:
        """Measure one catch-up beside the load."""
        create(cluster, LATE, self.partitions)
        create(cluster, BUSY, 3)
        victim = follower(cluster)
        partition, leader = next(
            (number, leader)
            for (topic, number), leader in image(cluster.running[1]).leaders.items()
            if topic == BUSY and leader != victim
        )
        broker = cluster.running[leader]
        level_s = trial.scaled(int(LEVEL_S), 1)
        before = self._level(broker, partition, level_s)
        fall_behind(cluster, victim, self.partitions, trial.scaled(1 << 30, 64 << 20))
        dead = self._level(broker, partition, level_s)
        with Level(broker, partition) as level, Probe(broker) as probe:
            cluster.start(victim)
            started = time.monotonic()
            reached = max(wait_for_replicas(cluster, LATE, self.partitions).values())
            time.sleep(SLICE_S)  # the last slice ends
        wait_for_replicas(cluster, BUSY, 3)
        waits, control = summary_ms(probe.waits), summary_ms(probe.control)
        return {
            "held_percent": level.rate(started, max(reached, started + SLICE_S)) / before * 100,
            "dead_percent": dead / before * 100,
            "records_per_s": before,
            **{key: waits[key] for key in ("longest", "net")},
            "control": control["longest"],
        }

    @staticmethod
    def _level(broker: Running, partition: int, seconds: float) -> float:
        with Level(broker, partition) as level:
            since = time.monotonic()
            time.sleep(seconds)
        return level.rate(since, since + seconds)


LOADS = (CatchUp(1), CatchUp(100), LoadedCatchUp())
