"""Compressed batches, and work that waits for the broker's worker threads behind deletions (B4, B8)."""

import random
import time

from perf.loads.base import Trial
from perf.loads.fairness import wire
from perf.loads.fairness.base import FIGURES, JOB_FIGURES, Hostile, topic_names
from perf.loads.fairness.client import Client
from perf.loads.fairness.topics import fill

BOMB_BYTES = 1_240_000  # just below what the broker decompressed on its loop when the load was written
DELETE_DELAY_MS = 2_000
JOB_TOPIC, JOB_BYTES = "job", 200_000


class Bombs(Hostile):
    """One Produce request of small gzip batches that decompress to a thousand times their size."""

    def __init__(self, batches: int) -> None:
        super().__init__(f"bombs-{batches}", f"Produce of {batches:,} gzip batches of 1.3 kB that come out as 1.24 MB")
        self._batches = batches

    def prepare(self, trial: Trial) -> None:
        with Client(trial.broker) as client:
            client.create(["bombed"], trial.scaled(self._batches, self._batches // 10))

    def attack(self, trial: Trial, client: Client) -> None:
        batch = wire.gzip_batch(bytes(BOMB_BYTES))
        parts = dict.fromkeys(range(trial.scaled(self._batches, self._batches // 10)), batch)
        client.expect("Produce", wire.produced(client.call(wire.produce("bombed", parts))))


class WithJobs(Hostile):
    """Beside ApiVersions the probe produces a gzip batch of 200 kB every 50 ms, which brokers validate in a job."""

    figures = (*FIGURES, *JOB_FIGURES)

    def prepare(self, trial: Trial) -> None:
        with Client(trial.broker) as client:
            client.create([JOB_TOPIC], 1)
            self._batch = wire.gzip_batch(random.Random(1).randbytes(JOB_BYTES))

    def job(self, trial: Trial) -> bytes | None:
        return wire.produce(JOB_TOPIC, {0: self._batch})


class DeletedFiles(WithJobs):
    """The files of a deleted topic are removed while compressed records are produced."""

    def __init__(self) -> None:
        title = f"3,000 written partitions are deleted, their files {DELETE_DELAY_MS // 1000} s later"
        super().__init__("deleted-files", title, settings={"log.segment.delete.delay.ms": str(DELETE_DELAY_MS)})

    def before(self, trial: Trial, client: Client) -> None:
        count = trial.scaled(3_000, 200)
        client.create(names := topic_names("files", trial, max(count // 500, 1)), min(count, 500))
        for name in names:
            fill(client, name, min(count, 500))

    def attack(self, trial: Trial, client: Client) -> None:
        client.delete(topic_names("files", trial, max(trial.scaled(3_000, 200) // 500, 1)))
        time.sleep(2.5 * DELETE_DELAY_MS / 1000)  # no response says that the files are gone


class FirstRecords(WithJobs):
    """The first record of each of 1,000 new partitions, in requests of ten partitions."""

    def __init__(self) -> None:
        super().__init__("first-records", "first records into 1,000 new partitions, 10 in each request")

    def before(self, trial: Trial, client: Client) -> None:
        client.create(topic_names("first", trial, 1), trial.scaled(1_000, 100))

    def attack(self, trial: Trial, client: Client) -> None:
        (name,), batch = topic_names("first", trial, 1), wire.gzip_batch(bytes(100))
        requests = [
            wire.produce(name, dict.fromkeys(range(at, at + 10), batch))
            for at in range(0, trial.scaled(1_000, 100), 10)
        ]
        for response in client.pipelined(requests, 10):
            client.expect("Produce", wire.produced(response))

    def after(self, trial: Trial, client: Client) -> None:
        client.delete(topic_names("first", trial, 1))


LOADS = (Bombs(100), Bombs(1_000), DeletedFiles(), FirstRecords())
