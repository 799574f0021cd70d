"""The leader epochs of a partition with their start offsets, stored in `leader-epoch-checkpoint` (KIP-101).

Epochs and start offsets only increase: a new entry replaces all entries that contradict it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk
from kafkalite.storage.checkpoints import read_epochs, write_epochs
from kafkalite.storage.transient_errors import is_transient

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochRun(NamedTuple):
    """Consecutive batches of one leader epoch.

    Arguments:
        epoch: their leader epoch.
        offset: of the first of them.
        end_offset: behind the last of them.
    """

    epoch: int
    offset: int
    end_offset: int


def epoch_runs(firsts: Sequence[tuple[int, int]], end_offset: int) -> list[EpochRun]:
    """The runs of consecutive batches.

    Arguments:
        firsts: (leader epoch, base offset) of the first batch, and of each one with another epoch than the one before.
        end_offset: behind the last batch.
    """
    ends = [*(offset for _, offset in firsts[1:]), end_offset]
    return [EpochRun(epoch, offset, end) for (epoch, offset), end in zip(firsts, ends, strict=True)] if firsts else []


class LeaderEpochCache:
    """The epochs of one partition.

    Arguments:
        disk, path: of the checkpoint, which is written at each change but `begin`, and synced with the batches of the
            epoch.
        entries: (epoch, start offset), in order.
    """

    __slots__ = ("_before_write", "_disk", "entries", "flushed", "path", "version", "written")

    def __init__(self, disk: Disk, path: str, entries: list[tuple[int, int]] | None = None) -> None:
        self._disk = disk
        self.path = path
        self.entries = entries or []
        self._before_write: tuple[int, list[tuple[int, int]]] | None = None  # the log end, and the entries
        # Number of changes; `written`: of those in the file; `flushed`: of those on the disk.
        self.version = self.written = 0
        self.flushed = -1

    @classmethod
    def load(cls, disk: Disk, path: str) -> "LeaderEpochCache":
        """Read the checkpoint; empty if it does not exist. Raises BadCheckpoint, OSError."""
        return cls(disk, path, read_epochs(disk, path))

    @property
    def latest(self) -> int:
        """The highest epoch, -1 for none."""
        return self.entries[-1][0] if self.entries else UNDEFINED_EPOCH

    @property
    def is_written(self) -> bool:
        """Whether the file has all changes; not after `begin`, and not after a change on a full disk."""
        return self.written == self.version

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add an epoch that begins at `start_offset`. Raises OSError."""
        self._replace(_assigned(self.entries, epoch, start_offset))

    def begin(self, epoch: int, start_offset: int) -> None:
        """Add an epoch that begins at `start_offset`, in memory: the write of its first batch writes the file.

        A crash before that loses it. Nothing then needs it: no replica has a batch of this epoch, and the next leader
        has a newer one.
        """
        self._change(_assigned(self.entries, epoch, start_offset))

    def recover(self, runs: Iterable[EpochRun], start_offset: int, end_offset: int, *, lost: bool) -> None:
        """Correct all epochs by the batches that recovery found, in one write, so that a crash leaves no partial file.

        The batches decide: after a power cut the file may be older than they are, with epochs of records that were
        truncated. The last epoch may begin at the log end, without a batch. On a full disk the file stays unchanged;
        the next start finds the same epochs again.

        Arguments:
            runs: of the batches that were read, in order of offsets.
            start_offset, end_offset: log start and log end.
            lost: whether the file is damaged, so that it is written in any case.

        Raises OSError.
        """
        entries = self.entries
        for run in runs:
            entries = _with_run(entries, run)
        entries = [entry for entry in entries if entry[1] <= end_offset]
        self._replace_if_space(_started(entries, start_offset), lost)

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at or above `end_offset`. Raises OSError."""
        self._before_write = None
        self._replace_if_space([entry for entry in self.entries if entry[1] < end_offset])

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that end at or below `start_offset`; the first one left begins there. Raises OSError."""
        self._replace_if_space(_started(self.entries, start_offset))

    def begin_write(self, log_end_offset: int) -> None:
        """Keep the epochs, before a write at the log end adds the first one of its batches."""
        if self._before_write is None or self._before_write[0] != log_end_offset:
            self._before_write = log_end_offset, self.entries

    def undo_write(self, log_end_offset: int) -> bool:
        """Remove the epochs that a failed write at the log end has added; False if it has added none. Raises OSError.

        An epoch that a leader began at the log end stays.
        """
        before, self._before_write = self._before_write, None
        if before is None or before[0] != log_end_offset:
            return False
        self._replace_if_space(before[1])
        return True

    def clear(self) -> None:
        """Remove all epochs; the caller writes the file."""
        self._before_write = None
        if self.entries:
            self.entries = []
            self.version += 1

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`, -1 if unknown."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[index - 1][0] if index else UNDEFINED_EPOCH

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest known epoch up to `epoch`, its end offset); (-1, -1) if unknown."""
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        index = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        if index == len(self.entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        floor = self.entries[index - 1][0] if index else epoch
        return floor, self.entries[index][1]

    def _replace(self, entries: list[tuple[int, int]], force: bool = False) -> None:
        if self._change(entries, force):
            write_epochs(self._disk, self.path, entries)
            self.written = self.version

    def _change(self, entries: list[tuple[int, int]], force: bool = False) -> bool:
        if entries == self.entries and not force:
            return False
        self.entries = entries
        self.version += 1
        return True

    def _replace_if_space(self, entries: list[tuple[int, int]], force: bool = False) -> None:
        """Call `_replace`; on a full disk the file stays unchanged, and the next start finds the entries again."""
        try:
            self._replace(entries, force)
        except OSError as error:
            if not is_transient(error):
                raise

    def write_pending(self) -> None:
        """Write the file if it lacks a change. Raises OSError."""
        if self.version > self.written:
            write_epochs(self._disk, self.path, self.entries)
            self.written = self.version


def _assigned(entries: list[tuple[int, int]], epoch: int, start_offset: int) -> list[tuple[int, int]]:
    if epoch < 0 or (entries and epoch == entries[-1][0]):
        return entries
    return [*(entry for entry in entries if entry[0] < epoch and entry[1] < start_offset), (epoch, start_offset)]


def _with_run(entries: list[tuple[int, int]], run: EpochRun) -> list[tuple[int, int]]:
    if run.epoch < 0:
        return entries
    before = [entry for entry in entries if entry[0] <= run.epoch and entry[1] <= run.offset]
    if not before or before[-1][0] != run.epoch:
        before = [*(entry for entry in before if entry[1] < run.offset), (run.epoch, run.offset)]
    return before + [entry for entry in entries if entry[0] > run.epoch and entry[1] >= run.end_offset]


def _started(entries: list[tuple[int, int]], start_offset: int) -> list[tuple[int, int]]:
    index = bisect_right(entries, start_offset, key=lambda entry: entry[1]) - 1
    if index < 0 or entries[index][1] == start_offset == entries[0][1]:
        return entries
    return [(entries[index][0], start_offset), *entries[index + 1 :]]
