"""Work that the broker does by itself while much is stored: cleaner, checkpoints, expiry of offsets, a load (B10)."""

import time

from perf import group_wire
from perf.errors import VerificationError
from perf.loads.base import Sample, Trial
from perf.loads.fairness import wire
from perf.loads.fairness.base import Hostile, group_names
from perf.loads.fairness.client import Client
from perf.loads.fairness.topics import fill
from perf.members import find

EVERY_MS = 1_000
WATCHED_S = 6.0
TOPICS = 5_000


class Housekeeping(Hostile):
    """Nothing is asked but ApiVersions, while cleaner, retention and checkpoints look at many logs every second."""

    def __init__(self) -> None:
        every = ("log.cleaner.backoff.ms", "log.flush.offset.checkpoint.interval.ms", "log.retention.check.interval.ms")
        title = "5,000 compacted partitions with closed segments; cleaner, retention and checkpoints every second"
        super().__init__("housekeeping", title, settings=dict.fromkeys(every, str(EVERY_MS)))

    def prepare(self, trial: Trial) -> None:
        configs = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.99"}
        count = trial.scaled(5_000, 500)
        with Client(trial.broker) as client:
            client.create(names := [f"compacted-{number}" for number in range(count // 500)], 500, configs)
            for _ in range(2):
                for name in names:
                    fill(client, name, 500)

    def attack(self, trial: Trial, client: Client) -> None:
        time.sleep(WATCHED_S)


class ExpiredOffsets(Hostile):
    """Offsets of a group that reads thousands of topics by a pattern are checked for expiry every second."""

    def __init__(self) -> None:
        title = f"expiry of offsets every second; a consumer group has offsets of {TOPICS:,} topics of its pattern"
        super().__init__(
            "offset-expiry",
            title,
            settings={"offsets.retention.check.interval.ms": str(EVERY_MS), "offsets.retention.minutes": "1"},
        )

    def prepare(self, trial: Trial) -> None:
        names = self._names(trial)
        with Client(trial.broker) as client:
            client.create(names, 1)
            find(client.connection, "swept")
            for name in names:  # a simple consumer's commits: the group is empty until its member joins
                client.call(group_wire.offset_commit("swept", name, {0: 1}))
            client.join_consumers([("swept", wire.consumer_join("swept", "m", None, "swept-.*"))])

    def _names(self, trial: Trial) -> list[str]:
        return [f"swept-{number:05}" for number in range(trial.scaled(TOPICS, TOPICS // 20))]

    def attack(self, trial: Trial, client: Client) -> None:
        time.sleep(WATCHED_S)


class DeletedOffsets(ExpiredOffsets):
    """OffsetDelete of all of them in one request, which is rejected as the group is subscribed."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "fairness-offset-delete"
        self.title = f"OffsetDelete of {TOPICS:,} topics of a consumer group that reads them by a pattern"

    def attack(self, trial: Trial, client: Client) -> None:
        request = wire.delete_offsets("swept", {name: range(1) for name in self._names(trial)})
        for _ in range(5):
            client.call(request)


class LoadedOffsets(Hostile):
    """The broker starts with many committed offsets: loading, and the first garbage collection behind it."""

    starts_broker = True

    def __init__(self) -> None:
        super().__init__("loaded-offsets", "the first seconds after a start with 500,000 committed offsets")

    def prepare(self, trial: Trial) -> None:
        broker = trial.kind.start(trial.directory, self.settings)
        groups, offsets = group_names("loaded", trial, trial.scaled(5_000, 250)), dict.fromkeys(range(100), 1)
        with Client(broker) as client:
            client.create(["read"], 100)
            find(client.connection, groups[0])
            requests = [group_wire.offset_commit(group, "read", offsets) for group in groups]
            for response in client.pipelined(requests):
                if group_wire.error_of(response, group_wire.commit_error_at("read")):
                    raise VerificationError(f"{broker.name}: a commit of {groups[0]} failed")
        broker.stop()

    def attack(self, trial: Trial, client: Client) -> None:
        find(client.connection, group_names("loaded", trial, 1)[0])
        time.sleep(WATCHED_S)

    def run(self, trial: Trial) -> Sample:
        broker = trial.kind.start(trial.directory, self.settings)
        try:
            return super().run(Trial(trial.kind, trial.directory, trial.round, trial.quick, broker))
        finally:
            broker.stop()


LOADS = (Housekeeping(), ExpiredOffsets(), DeletedOffsets(), LoadedOffsets())
