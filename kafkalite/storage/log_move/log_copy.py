"""The part of a log that its future directory contains: decides what the next job copies.

The log changes while it is copied. A closed segment is copied once; the active one grows, and its copy with it. A
segment that the log has no more (retention, DeleteRecords, compaction) loses its copy, also where a compacted segment
has the same base offset. A truncation may shorten segments: everything is copied again.
"""

from kafkalite.storage import checkpoints, names
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.producer_snapshots import snapshot_content
from kafkalite.storage.log.segment import Segment
from kafkalite.storage.log_move.copy_jobs import CopyTask, Piece


class LogCopy:
    """The progress of the copy of a log.

    Arguments:
        log: the current log.
        directory: the future directory of its partition.
    """

    def __init__(self, log: Log, directory: str) -> None:
        self.log = log
        self.directory = directory
        self._bytes: dict[Segment, int] = {}  # copied and synced
        self._complete: set[Segment] = set()  # with their small files
        self._present: dict[int, Segment | None] = {}  # whose files the directory has; None: of unknown content
        self._truncations = log.truncations

    @property
    def size(self) -> int:
        """Copied bytes of the segments that the log has now."""
        return sum(self._bytes.get(segment, 0) for segment in self.log.segments)

    @property
    def remaining(self) -> int:
        """Bytes that are still to be copied."""
        return max(self.log.size - self.size, 0)

    @property
    def end_offset(self) -> int:
        """The offset up to which the log is copied; within a segment estimated by the number of bytes."""
        for segment in self.log.segments:
            copied = self._bytes.get(segment, 0)
            if copied < segment.size:
                offsets = self.log.end_of_segment(segment) - segment.base_offset
                return int(segment.base_offset + offsets * copied // segment.size)
        return int(self.log.log_end_offset)

    def next_task(self, bytes_max: int) -> CopyTask:
        """The next job: up to `bytes_max` bytes."""
        if self.log.truncations != self._truncations:
            self._forget_all()
        removed, pieces = self._take_removed(), []
        for segment in self.log.segments:
            piece = self._piece(segment, bytes_max)
            if piece is not None:
                pieces.append(piece)
                self._present[segment.base_offset] = segment
                bytes_max -= piece.size
            if bytes_max <= 0:
                break
        return CopyTask(self.log.directory, self.directory, removed, pieces, {}, {})

    def last_task(self) -> CopyTask:
        """The job that completes the copy, of a log that does not change until it is applied.

        Raises BadTransactionIndex, OSError.
        """
        task = self.next_task(self.log.size + 1)
        active, log = self.log.active, self.log
        pieces = [piece for piece in task.pieces if piece.base_offset != active.base_offset]
        begin = self._bytes.get(active, 0)
        pieces.append(Piece(active.base_offset, begin, active.size - begin, last=False))  # creates an empty file, too
        self._present[active.base_offset] = active
        files = {names.file_name(base, names.SNAPSHOT): snapshot_content(each) for base, each in self._snapshots()}
        for index, suffix in zip(active.indexes, (names.INDEX, names.TIME_INDEX), strict=True):
            files[names.file_name(active.base_offset, suffix)] = index.tobytes()
        if active.transactions:
            files[names.file_name(active.base_offset, names.TXN_INDEX)] = active.transactions.content()
        files[names.LEADER_EPOCH_CHECKPOINT] = checkpoints.epochs_content(log.epochs.entries)
        sizes = {segment.base_offset: segment.size for segment in log.segments}
        return CopyTask(task.source, task.target, task.removed, pieces, files, sizes)

    def copied(self, task: CopyTask) -> None:
        """A job has succeeded."""
        for piece in task.pieces:
            segment = self._present[piece.base_offset]
            assert segment is not None, "set when the task was created"
            self._bytes[segment] = piece.begin + piece.size
            if piece.last:
                self._complete.add(segment)

    def failed(self, task: CopyTask) -> None:
        """A job has failed: what it worked on is copied again."""
        for base_offset in (*task.removed, *(piece.base_offset for piece in task.pieces)):
            self._forget(base_offset)

    def _piece(self, segment: Segment, bytes_max: int) -> Piece | None:
        if segment in self._complete:
            return None
        copied = self._bytes.get(segment, 0)
        size = min(segment.size - copied, bytes_max)
        last = segment is not self.log.active and copied + size == segment.size
        return Piece(segment.base_offset, copied, size, last) if size or last else None

    def _take_removed(self) -> list[int]:
        current = set(self.log.segments)
        removed = [base for base, segment in self._present.items() if segment is None or segment not in current]
        for base in removed:
            self._forget(base)
            del self._present[base]
        return removed

    def _forget(self, base_offset: int) -> None:
        segment = self._present.get(base_offset)
        if segment is not None:
            self._bytes.pop(segment, None)
            self._complete.discard(segment)
        self._present[base_offset] = None

    def _forget_all(self) -> None:
        self._truncations = self.log.truncations
        for base_offset in self._present:
            self._forget(base_offset)

    def _snapshots(self) -> list[tuple[int, bytes]]:
        """The snapshots that are not on the disk yet, and one at the log end."""
        return [*self.log.due_snapshots.items(), (self.log.log_end_offset, self.log.producers.pack())]
