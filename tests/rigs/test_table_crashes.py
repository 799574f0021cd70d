"""Crashes and power cuts at every file operation of a table: each offset is in it once, and no reader sees more."""

import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark_kafkalite.tables import CommitRefusedError, ManifestTable
from pyspark_kafkalite.tables.locations import find

from kafkalite.model import TopicPartition
from tests.rigs import table_job
from tests.rigs.table_disk import Crash, CrashingDisk
from tests.rigs.table_job import FIRST_OFFSET, PARTITIONS, Checkpoint

pytestmark = [pytest.mark.torture, pytest.mark.usefixtures("frequent_snapshots")]


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
        self.compacts = 0.3  # how probable a compaction is after a batch

    def verify_visible(self) -> None:
        """What is true at each moment."""
        if self.root.exists():
            table_job.verify_visible(self.root)
        if (self.root / "_commits").exists():
            table_job.verify_manifest(self.root)

    def incarnation(self, batches: int) -> None:
        """One run of the job."""
        table = ManifestTable(self.root, disk=self.disk)
        table.recover()
        for _ in range(batches):
            table_job.run_batch(table, self.disk, self.checkpoint, self.rng)
            if self.rng.random() < self.compacts:
                self.compact()

    def compact(self) -> None:
        """A compaction in another process; a job may start or commit beside it."""
        table = ManifestTable(self.root, disk=self.disk)
        beside = self.rng.choice((table.state, self.start_job, self.run_job))
        read = table.state().files
        table_job.compact(table, self.disk, self.rng, beside)
        for name in read:
            find(self.root, name)  # a reader that began before the compaction

    def start_job(self) -> None:
        """The job starts beside a compaction: attempts are removed."""
        ManifestTable(self.root, disk=self.disk).recover()

    def run_job(self) -> None:
        """The job commits a batch beside a compaction."""
        table_job.run_batch(ManifestTable(self.root, disk=self.disk), self.disk, self.checkpoint, self.rng)

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
        self.compact()
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
def test_table_is_exact_after_a_crash_at_every_step(ram: Path, seed: int, power_cut: bool, crash_steps: range) -> None:
    for step in crash_steps:
        history = History(ram / "history", seed + step)
        history.incarnation(batches=1)
        stopped = history.crashes(batches=2, steps=step, power_cut=power_cut)
        history.finish()
        shutil.rmtree(ram / "history")
        if not stopped:
            assert step > 25
            return
    raise AssertionError("the run does not end")


@pytest.mark.parametrize("power_cut", [False, True])
def test_table_is_exact_after_a_crash_at_every_step_of_a_compaction(
    ram: Path, seed: int, power_cut: bool, crash_steps: range
) -> None:
    """One compaction after the other is stopped, each at a later step."""
    for step in crash_steps:
        history = History(ram / "history", seed + step)
        history.compacts = 0
        history.incarnation(batches=4)
        history.compacts = 1
        history.disk.stop_at = history.disk.steps + step
        stopped = False
        try:
            history.compact()
        except Crash:
            stopped = True
            history.disk.restart(power_cut=power_cut)
            history.verify_visible()
        history.disk.stop_at = None
        history.finish()
        shutil.rmtree(ram / "history")
        if not stopped and step > 40:
            return
    raise AssertionError("the run does not end")


def crashes_while_hiding(directory: Path, seed: int) -> None:
    """A power cut after the replacement of a compaction is visible, and before its name is durable."""
    history = History(directory, seed)
    history.compacts = 0
    history.incarnation(batches=4)
    link = history.disk.link

    def stopping(source: Path, target: Path) -> None:
        link(source, target)
        if source.parent.name == "_compactions" and target.parent == history.root:
            history.disk.stop_at = history.disk.steps

    history.disk.link = stopping  # type: ignore[method-assign]
    with suppress(Crash):
        history.compact()
    history.disk.restart(power_cut=True)
    history.verify_visible()


@pytest.mark.parametrize("number", range(5))
def test_power_cut_never_shows_replaced_files_beside_their_replacement(ram: Path, seed: int, number: int) -> None:
    crashes_while_hiding(ram / "history", seed + number)


def test_table_is_exact_after_an_error_at_every_step(ram: Path, seed: int, crash_steps: range) -> None:
    """The disk fails once, the query ends with the error and starts again in the same process."""
    for step in crash_steps:
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
