"""Leader epochs of a log at a start: the batches correct a file that is older than they are."""

from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.storage.checkpoints import read_epochs
from kafkalite.storage.log.leader_epoch_cache import EpochRun, LeaderEpochCache, epoch_runs

FILE = [(0, 0), (1, 10), (4, 20)]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        pytest.param([EpochRun(4, 20, 30)], FILE, id="as in the file"),
        pytest.param([EpochRun(4, 25, 30)], FILE, id="only later batches were read"),
        pytest.param([EpochRun(1, 12, 18), EpochRun(4, 18, 30)], [(0, 0), (1, 10), (4, 18)], id="begins earlier"),
        pytest.param([EpochRun(1, 12, 24), EpochRun(4, 24, 30)], [(0, 0), (1, 10), (4, 24)], id="begins later"),
        pytest.param([EpochRun(5, 20, 30)], [(0, 0), (1, 10), (5, 20)], id="another epoch at the same offset"),
        pytest.param([EpochRun(2, 15, 30)], [(0, 0), (1, 10), (2, 15)], id="truncated and written again"),
        pytest.param([EpochRun(1, 12, 20)], FILE, id="an epoch without batches at the end"),
        pytest.param([EpochRun(0, 0, 5)], FILE, id="only early batches were read"),
        pytest.param([EpochRun(-1, 0, 30)], FILE, id="batches without an epoch"),
        pytest.param([], FILE, id="no batch was read"),
    ],
)
def test_batches_correct_the_epochs_of_the_file(
    tmp_path: Path, runs: list[EpochRun], expected: list[tuple[int, int]]
) -> None:
    path = str(tmp_path / "leader-epoch-checkpoint")
    epochs = LeaderEpochCache(Disk(), path, list(FILE))
    epochs.recover(runs, 0, 30, lost=True)
    assert epochs.entries == expected
    assert read_epochs(Disk(), path) == expected


def test_runs_end_where_the_epoch_changes() -> None:
    assert epoch_runs([(0, 3), (2, 7)], 9) == [EpochRun(0, 3, 7), EpochRun(2, 7, 9)]
    assert epoch_runs([], 9) == []
