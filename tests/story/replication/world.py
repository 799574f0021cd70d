"""A simulated cluster whose topics have several replicas: what its disks and its tree have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from random import Random

from kafkalite.cluster.partition.leader import Leader
from kafkalite.config.keys import SettingValue
from kafkalite.coordination import znodes
from kafkalite.storage.log.log import Log
from tests.kit.replica_invariants import NO_LEADER, Leadership, ObservedState, Partition
from tests.kit.replica_logs import ReplicaLog, read_log
from tests.story.cluster.world import SETTINGS, ClusterWorld

ISR_MIN = 2
FLUSHED_EVERY = 5  # in these seeds all topics are flushed before the acknowledgement
THROTTLED_EVERY = 6  # in these seeds replicas that are not in sync have a quota
QUOTAS: dict[str, SettingValue] = {
    "leader.replication.throttled.rate": 20_000,
    "follower.replication.throttled.rate": 10_000,
    "replication.quota.window.num": 2,
}
JOBS_TAKE_S = (0.0, 0.0, 0.002, 0.02)


def settings_of(seed: int) -> dict[str, SettingValue]:
    """The configs of the brokers of a seed."""
    random = Random(seed + 2)
    settings: dict[str, SettingValue] = {
        **SETTINGS,
        "min.insync.replicas": ISR_MIN,
        "offsets.topic.replication.factor": 3,
        "replica.lag.time.max.ms": random.choice((500, 1_500, 4_000)),
        "replica.fetch.wait.max.ms": random.choice((50, 500)),
        "replica.socket.timeout.ms": random.choice((1_000, 3_000)),
        "replica.fetch.backoff.ms": random.choice((10, 200)),
        "num.replica.fetchers": random.choice((1, 1, 2)),
        "leader.imbalance.check.interval.seconds": random.choice((3, 300)),
        "log.flush.interval.messages": 1 if is_flushed(seed) else 2**63 - 1,
        # Each replica compacts __consumer_offsets by itself, some of them while they follow.
        "log.roll.ms": random.choice((500, 3_000, 604_800_000)),
        "log.cleaner.backoff.ms": random.choice((200, 2_000)),
        "log.cleaner.min.cleanable.ratio": 0.1,
    }
    if is_throttled(seed):
        settings.update(QUOTAS)
    if settings["replica.lag.time.max.ms"] == settings["replica.fetch.wait.max.ms"]:
        settings["replica.fetch.wait.max.ms"] = 50  # otherwise an idle follower leaves the ISR between two fetches
    return settings


@lru_cache(maxsize=1 << 10)  # samples read each state some hundred times
def observed(path: str, data: bytes, version: int) -> ObservedState:
    """The state in a node of the tree."""
    state = znodes.decode_state(path, data)
    epochs = (*state.isr_epochs, *state.eligible_epochs) if state.isr_epochs else ()
    return ObservedState(state.leader, state.leader_epoch, state.isr, version, state.eligible, epochs)


def is_flushed(seed: int) -> bool:
    """Whether every topic is flushed before the acknowledgement, so that all brokers may lose power."""
    return seed % FLUSHED_EVERY == 0


def is_throttled(seed: int) -> bool:
    """Whether replication has a quota."""
    return seed % THROTTLED_EVERY == 5


class ReplicatedWorld(ClusterWorld):
    """The brokers, which do not run yet.

    Arguments:
        directory: of the log directories.
        seed: of all random decisions.
        settings: more configs of the brokers.

    Attributes:
        flushed: whether every topic is flushed before the acknowledgement.
        jobs_take_s: how long jobs of the brokers take where no fault makes them slower.
    """

    def __init__(self, directory: Path, seed: int, settings: Mapping[str, SettingValue] | None = None) -> None:
        super().__init__(directory, seed, {**settings_of(seed), **(settings or {})})
        self.flushed = is_flushed(seed)
        self.jobs_take_s = self.random.choice(JOBS_TAKE_S)

    def observed_states(self) -> dict[Partition, ObservedState]:
        """The states of all partitions in the tree; those of topics that are being created may be missing."""
        found: dict[Partition, ObservedState] = {}
        for name, node in self.topics().items():
            for index in node.replicas:
                state = self.observed_state((name, index))
                if state is not None:
                    found[name, index] = state
        return found

    def observed_state(self, partition: Partition) -> ObservedState | None:
        """The state of a partition in the tree, None if it has none."""
        path = znodes.state_path(*partition)
        node = self.zookeeper.tree.find(path)
        return None if node is None else observed(path, node.data, node.version)

    def replicas(self) -> dict[Partition, tuple[int, ...]]:
        """The assigned replicas of all partitions."""
        return {(name, at): each for name, node in self.topics().items() for at, each in node.replicas.items()}

    # Running brokers.

    def runs(self, broker_id: int) -> bool:
        """Whether the process of a broker exists."""
        return self.brokers[broker_id].is_running

    def open_log(self, broker_id: int, partition: Partition) -> Log | None:
        """The log of a replica of a running broker."""
        return self.brokers[broker_id].running.logs.find(*partition) if self.runs(broker_id) else None

    def end_offset(self, broker_id: int, partition: Partition) -> int:
        """The log end of a replica: of its files, if the broker does not run."""
        log = self.open_log(broker_id, partition)
        if log is not None:
            return log.log_end_offset
        stored = self.stored_log(broker_id, partition)
        return 0 if stored is None else stored.end_offset

    def stored_log(self, broker_id: int, partition: Partition) -> ReplicaLog | None:
        """The log of a replica as its files have it."""
        topic, index = partition
        return read_log(self.directory / str(broker_id) / f"{topic}-{index}")

    def leaderships(self) -> dict[Leadership, int]:
        """The high watermark of each partition that a running broker believes to lead."""
        found: dict[Leadership, int] = {}
        for broker_id in filter(self.runs, self.brokers):
            for hosted in self.brokers[broker_id].running.replicas:
                for partition in hosted.partitions.values():
                    if isinstance(partition.role, Leader) and not partition.error:
                        key = (hosted.name, partition.index)
                        found[Leadership(key, partition.leader_epoch, broker_id)] = partition.high_watermark
        return found

    def all_in_sync(self) -> bool:
        """Whether each partition has a leader and all its replicas are in sync."""
        states, replicas = self.observed_states(), self.replicas()
        return states.keys() == replicas.keys() and all(
            state.leader != NO_LEADER and set(state.isr) == set(replicas[partition])
            for partition, state in states.items()
        )
