"""Segments that jobs load, also when no reader waits for the job any more."""

import errno
import os
from pathlib import Path

import pytest

from kafkalite._speedups.storage.page_cache import PageCacheMiss
from kafkalite.clock import Outcome
from kafkalite.cluster.partition.read_ahead import ReadAhead
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.segment import Segment
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.virtual_clock import InlineOffload
from tests.unit.storage.damage import filled


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def log(tmp_path: Path, disk: FaultyDisk) -> Log:
    """With a closed segment that is not loaded and has lost an index."""
    log = filled(tmp_path, disk=disk)
    first = log.segments[0]
    first.unload()
    disk.remove(first.path(".index"))
    return log


class Asking:
    """A reader of the first bytes of a segment."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.offload = InlineOffload()

    def ask(self, segment: Segment) -> None:
        """The job is done, and its outcome waits to be applied."""
        ReadAhead(self.offload).read(PageCacheMiss(segment, None, segment.base_offset, 0, 100), self.outcomes.append)


def work_files(log: Log) -> list[str]:
    return [name for name in os.listdir(log.directory) if name.endswith(".tmp")]


def test_rebuilt_index_is_renamed_on_the_loop(log: Log) -> None:
    asking, segment = Asking(), log.segments[0]
    asking.ask(segment)
    assert len(work_files(log)) == 2
    asking.offload.drain()
    assert asking.outcomes[0].error is None and segment.file is not None
    assert work_files(log) == [] and os.path.exists(segment.path(".index"))


def test_rebuilt_index_of_a_renamed_segment_is_removed(log: Log) -> None:
    asking, segment = Asking(), log.segments[0]
    asking.ask(segment)
    segment.mark_deleted()
    asking.offload.drain()
    assert asking.outcomes[0].error is None
    assert work_files(log) == [] and not os.path.exists(os.path.join(log.directory, f"{0:020}.index"))


def test_rebuilt_index_is_removed_after_a_read_error(log: Log, disk: FaultyDisk) -> None:
    def hook(operation: str, path: str) -> None:
        if operation == "read" and path.endswith(".log") and work_files(log):
            raise OSError(errno.EIO, "planned")

    disk.hook = hook
    asking, segment = Asking(), log.segments[0]
    asking.ask(segment)
    disk.hook = None
    assert len(work_files(log)) == 2
    asking.offload.drain()
    error = asking.outcomes[0].error
    assert isinstance(error, OSError) and error.errno == errno.EIO
    assert work_files(log) == [] and segment.file is None


def test_segments_with_the_same_name_write_different_work_files(log: Log) -> None:
    """One takes the place of the other, whose job goes on."""
    asking, old = Asking(), log.segments[0]
    asking.ask(old)
    asking.ask(old.apart())
    assert len(work_files(log)) == 4
    asking.offload.drain()
    assert work_files(log) == []
