"""A job starts while another one commits: a committed batch keeps its files, whatever the moment."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark_kafkalite.tables import Batch, DamagedTableError, ManifestTable
from pyspark_kafkalite.tables.disk import Disk
from pyspark_kafkalite.tables.reading import read

from tests.story.tables.parquet_job import batch, expected, plain_rows, rows

STEPS_MAX = 100
COMMITS = 30


class SteppedDisk(Disk):
    """Calls a function before one of its operations.

    Attributes:
        steps: operations so far.
        at: the operation.
        call: the function.
    """

    def __init__(self, at: int, call: Callable[[], object]) -> None:
        self.steps, self.at, self.call = 0, at, call

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in ("make_directory", "write", "flush_file", "link", "remove", "flush_directory"):
            self.steps += 1
            if self.steps - 1 == self.at:
                self.call()
        return found


def first_batch(root: Path) -> ManifestTable:
    table = ManifestTable(root)
    table.commit(batch(table, "A", 0, {0: (0, 4)}))
    return table


def with_attempts(root: Path) -> tuple[ManifestTable, Batch]:
    """A table with its first batch, and a second one that is not committed."""
    table = first_batch(root)
    (root / "_recovered").mkdir()
    return table, batch(table, "A", 1, {0: (4, 7)}, {0: (7, 8)})


def check(root: Path, committed: int) -> None:
    """The table has its first batch and the committed ones, for readers and for the next start."""
    assert rows(read(root)) == expected({0: (0, committed)})
    ManifestTable(root).recover()
    assert plain_rows(root) == rows(read(root)) == expected({0: (0, committed)})
    assert os.listdir(root / "_attempts") == [] == os.listdir(root / "_recovered")


def test_start_at_each_step_of_a_commit(tmp_path: Path) -> None:
    outcomes = []
    for step in range(STEPS_MAX):
        root = tmp_path / str(step)
        _, waiting = with_attempts(root)
        disk = SteppedDisk(step, lambda root=root: ManifestTable(root).recover())
        try:
            ManifestTable(root, disk=disk).commit(waiting)
            outcomes.append(8)
        except DamagedTableError as error:
            assert "another writer has recovered the table" in str(error)
            outcomes.append(4)
        check(root, outcomes[-1])
        if disk.steps <= step:
            break
    assert set(outcomes) == {4, 8}
    assert outcomes == sorted(outcomes), "a start is either before the commit or after it"


def test_second_driver_of_a_query_commits_the_same_batch_at_each_step_of_a_commit(tmp_path: Path) -> None:
    """One of them commits, and the other one skips the batch; the files of both are published or removed."""
    for step in range(STEPS_MAX):
        root = tmp_path / str(step)
        table, waiting = with_attempts(root)
        again = batch(table, "A", 1, {0: (4, 8)})
        second = ManifestTable(root)
        results: list[bool] = []

        def commit(table: ManifestTable = second, again: Any = again, results: list[bool] = results) -> None:
            results.append(table.commit(again).repeated)

        disk = SteppedDisk(step, commit)
        results.append(ManifestTable(root, disk=disk).commit(waiting).repeated)
        if disk.steps <= step:
            assert results == [False]
            return
        assert sorted(results) == [False, True]
        assert os.listdir(root / "_attempts") == []
        check(root, 8)
    raise AssertionError("the commit does not end")


def test_commit_at_each_step_of_a_start(tmp_path: Path) -> None:
    outcomes = []
    for step in range(STEPS_MAX):
        root = tmp_path / str(step)
        table, waiting = with_attempts(root)
        committed = []

        def commit(table: ManifestTable = table, waiting: Any = waiting, committed: list[int] = committed) -> None:
            try:
                table.commit(waiting)
                committed.append(8)
            except DamagedTableError as error:
                assert "another writer has recovered the table" in str(error)
                committed.append(4)

        disk = SteppedDisk(step, commit)
        ManifestTable(root, disk=disk).recover()
        if not committed:
            break
        outcomes += committed
        check(root, outcomes[-1])
    assert set(outcomes) == {4, 8}
    assert outcomes == sorted(outcomes, reverse=True)


def test_two_starts_at_each_step(tmp_path: Path) -> None:
    for step in range(STEPS_MAX):
        root = tmp_path / str(step)
        with_attempts(root)
        disk = SteppedDisk(step, lambda root=root: ManifestTable(root).recover())
        ManifestTable(root, disk=disk).recover()
        check(root, 4)
        if disk.steps <= step:
            return
    pytest.fail("a start has too many steps")


STARTS = """
import sys
from pyspark_kafkalite.tables import ManifestTable
print("started", flush=True)
while True:
    ManifestTable(sys.argv[1]).recover()
"""


@contextmanager
def _starting(root: Path) -> Any:
    """Another process starts jobs in a loop."""
    process = subprocess.Popen([sys.executable, "-c", STARTS, str(root)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "started\n"
        yield
        assert process.poll() is None, "a start has failed"
    finally:
        process.kill()
        process.communicate()


def test_two_processes(tmp_path: Path) -> None:
    root = tmp_path / "table"
    table, end = first_batch(root), 4
    with _starting(root):
        for number in range(1, COMMITS):
            while True:
                try:
                    table.commit(batch(table, "A", number, {0: (end, end + 2)}, {0: (end + 2, end + 3)}))
                    break
                except DamagedTableError as error:  # Spark would repeat the batch
                    assert "another writer has recovered the table" in str(error)
            end += 3
    check(root, end)
