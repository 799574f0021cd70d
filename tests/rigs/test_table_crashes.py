"""Crashes and power cuts at every file operation of a table: each offset is in it once, and no reader sees more."""

import random
import shutil
from pathlib import Path

import pytest
from pyspark_kafkalite.tables import CommitRefusedError, ManifestTable

from kafkalite.model import TopicPartition
from tests.rigs import table_job
from tests.rigs.table_disk import Crash, CrashingDisk
from tests.rigs.table_job import FIRST_OFFSET, PARTITIONS, Checkpoint

STEPS_MAX = 400


class History:
    """One table and the crashes of its jobs.

    Arguments:
        directory: is created, for the table and what the disk keeps.
        seed: of all choices.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        directory.mkdir()
        self.rng = random.Random(seed)
        self.root = directory / "table"
        self.disk = CrashingDisk(directory / "graves", self.rng)
        self.checkpoint = Checkpoint(dict.fromkeys(range(PARTITIONS), FIRST_OFFSET))
        self.disk.on_step = self.verify_visible

    def verify_visible(self) -> None:
        """What is true at each moment."""
        if self.root.exists():
            table_job.verify_visible(self.root)

    def incarnation(self, batches: int) -> None:
        """One run of the job."""
        table = ManifestTable(self.root, disk=self.disk)
        table.recover()
        for _ in range(batches):
            table_job.run_batch(table, self.disk, self.checkpoint, self.rng)

    def crashes(self, *, batches: int, steps: int, power_cut: bool) -> bool:
        """Run until a step; returns whether the run was stopped."""
        self.disk.stop_at = self.disk.steps + steps
        try:
            self.incarnation(batches)
        except Crash:
            self.disk.restart(power_cut=power_cut)
            self.verify_visible()
            return True
        self.disk.stop_at = None
        return False

    def lose_checkpoint(self) -> None:
        """A new checkpoint is rejected, and resumes from the table when it says so."""
        table = ManifestTable(self.root, disk=self.disk)
        table.recover()
        if (last := table.last_commit()) is None:
            return
        before = sorted(self.root.rglob("*.json"))
        again = Checkpoint(dict.fromkeys(range(PARTITIONS), FIRST_OFFSET))
        with pytest.raises(CommitRefusedError, match="resume_from_table=True"):
            table_job.run_batch(table, self.disk, again, self.rng)
        assert sorted(self.root.rglob("*.json")) == before
        ends = {
            each: table.end_offsets().get(TopicPartition("orders", each), FIRST_OFFSET) for each in self.checkpoint.ends
        }
        self.checkpoint = Checkpoint(ends, resumes=last.sequence)

    def finish(self) -> None:
        """The job continues without a crash; then the table is complete."""
        self.incarnation(batches=2)
        ManifestTable(self.root, disk=self.disk).recover()
        table_job.verify_complete(self.root, self.checkpoint.ends)


def live(directory: Path, seed: int) -> None:
    """A job that crashes anywhere, and loses its checkpoint once in a while."""
    history = History(directory, seed)
    for _ in range(history.rng.randrange(1, 5)):
        history.crashes(batches=3, steps=history.rng.randrange(70), power_cut=history.rng.random() < 0.6)
        if history.rng.random() < 0.2:
            history.lose_checkpoint()
    history.finish()


@pytest.mark.parametrize("power_cut", [False, True])
def test_table_is_exact_after_a_crash_at_every_step(ram: Path, seed: int, power_cut: bool) -> None:
    for step in range(STEPS_MAX):
        history = History(ram / "history", seed + step)
        history.incarnation(batches=1)
        stopped = history.crashes(batches=2, steps=step, power_cut=power_cut)
        history.finish()
        shutil.rmtree(ram / "history")
        if not stopped:
            assert step > 25
            return
    raise AssertionError("the run does not end")


def test_table_is_exact_after_an_error_at_every_step(ram: Path, seed: int) -> None:
    """The disk fails once, the query ends with the error and starts again in the same process."""
    for step in range(STEPS_MAX):
        history = History(ram / "history", seed + step)
        table = ManifestTable(history.root, disk=history.disk)
        history.disk.fail_at = history.disk.steps + step
        try:
            for _ in range(2):
                table_job.run_batch(table, history.disk, history.checkpoint, history.rng)
        except OSError as error:
            assert error is history.disk.error
            table_job.run_batch(table, history.disk, history.checkpoint, history.rng)
        failed = history.disk.fail_at is None
        history.disk.fail_at = None
        history.finish()
        shutil.rmtree(ram / "history")
        if not failed:
            assert step > 15
            return
    raise AssertionError("the run does not end")


def test_table_is_exact_after_many_crashes(ram: Path, seed: int, crash_seeds: int) -> None:
    for number in range(crash_seeds):
        try:
            live(ram / "history", seed * 1_000_003 + number)
        except BaseException:
            print(f"history {number}")
            raise
        shutil.rmtree(ram / "history")
