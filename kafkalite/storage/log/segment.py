"""The files of one segment: creates, loads, unloads, truncates and deletes them, and writes its indexes.

1. The active segment is loaded, with both indexes in memory; `write_indexes` writes them to their files.
2. A closed segment may be unloaded at any time; the next read loads it again. Regions in responses keep its file open.
3. A missing or corrupt index file is rebuilt from the batches.
4. The index of aborted transactions is written at each abort; a segment without aborts has no such file.
"""

import contextlib
import itertools
import logging

from kafkalite._speedups.storage.file import Disk, File
from kafkalite._speedups.storage.index import CorruptIndexError, Index, OffsetIndex, TimeIndex
from kafkalite._speedups.storage.page_cache import ReadAttempt
from kafkalite._speedups.storage.recovery_scan import scan
from kafkalite._speedups.storage.segment_core import BatchLocation, SegmentCore
from kafkalite.config.topic import TopicConfig
from kafkalite.storage import names
from kafkalite.storage.file_operations import WRITE_FILE, FileOperation
from kafkalite.storage.log.index_entries import OFFSET_ENTRY
from kafkalite.storage.log.segment_cache import SegmentCache
from kafkalite.storage.log.transaction_index import BadTransactionIndex, TransactionIndex
from kafkalite.storage.transient_errors import is_transient

DAMAGE_REPORTS_MAX = 1_000
SMALL_INDEX = 4_096  # bytes
WORK_NUMBERS = itertools.count()
LOGGER = logging.getLogger("kafkalite.storage.log.segment")


class Segment(SegmentCore):
    """A file of batches and its two indexes.

    Arguments:
        base_offset: of the segment; the name of its files.
        directory: of the partition.
        disk: the disk port.
        config: for the sizes of the indexes.
        aborts: whether it has an index of aborted transactions.
    """

    __slots__ = (
        "_suffix",
        "cache",
        "damaged",
        "directory",
        "disk",
        "index_bytes_max",
        "interval",
        "rebuilt",
        "reported_damage",
        "transactions",
    )

    def __init__(
        self, base_offset: int, directory: str, disk: Disk, config: TopicConfig, *, aborts: bool = False
    ) -> None:
        self.directory = directory
        self.disk = disk
        self.index_bytes_max = config.segment_index_bytes
        self.interval = config.index_interval_bytes
        self.damaged = False  # whether a rebuild of the indexes found a damaged batch
        self.reported_damage: frozenset[int] = frozenset()  # positions of damaged batches that were logged
        # Of a copy (`apart`): suffix of the index files that it has rebuilt, "" if it has not.
        self.rebuilt: str | None = None
        self._suffix = ""
        self.cache: SegmentCache | None = None
        self.transactions = TransactionIndex(disk, self.path(names.TXN_INDEX), base_offset, present=aborts)

    @property
    def suffix(self) -> str:
        """The additional suffix of its files, such as `.deleted`."""
        return self._suffix

    @suffix.setter
    def suffix(self, suffix: str) -> None:
        self._suffix = suffix
        self.transactions.path = self.path(names.TXN_INDEX)

    def path(self, suffix: str) -> str:
        """The current path of one of its files."""
        return f"{self.directory}/{self.base_offset:020d}{suffix}{self._suffix}"

    def relocate(self, directory: str) -> None:
        """Continue with the same files in another directory."""
        self.directory = directory
        self.transactions.path = self.path(names.TXN_INDEX)

    def create(self) -> "Segment":
        """Create an empty file, also over that of a failed roll. Raises OSError."""
        self.file = self.disk.open(self.path(names.LOG), create=True)
        if self.file.size():
            self.file.truncate(0)
        self.empty_indexes()
        for suffix in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX):
            if self.disk.exists(self.path(suffix)):
                self.disk.remove(self.path(suffix))
        return self

    def empty_indexes(self) -> None:
        """Reset both indexes and the counters; the file stays."""
        self.offset_index = OffsetIndex(self.base_offset, self.index_bytes_max)
        self.time_index = TimeIndex(self.base_offset, self.index_bytes_max)
        self.size = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = self.base_offset
        self.first_timestamp = -1
        self.bytes_since_index = 0

    def remove(self) -> None:
        """Remove the files that exist, which needs no descriptor. Raises OSError."""
        for path in self.files():
            self.disk.remove(path)

    @property
    def opened(self) -> File:
        """The file; loads the segment if it is unloaded."""
        if self.file is None:
            self.open_again()
        assert self.file is not None
        return self.file

    @property
    def indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        if self.file is None:
            self.open_again()
        assert self.offset_index is not None and self.time_index is not None
        return self.offset_index, self.time_index

    def open_again(self) -> None:
        """Load a closed segment of known size. Raises OSError."""
        self.file = self.disk.open(self.path(names.LOG))
        try:
            self._read_again()
        except OSError:
            self.unload()  # never a file without its indexes; the next reader tries again
            raise
        if self.closed and self.cache is not None:
            self.cache.add(self)

    def _read_again(self) -> None:
        """Load the indexes of the opened file; rebuild missing ones from the batches. Raises OSError."""
        try:
            self.read_indexes(self.size)
        except (CorruptIndexError, FileNotFoundError):
            self.index_again()
        try:
            self.transactions.load()
        except BadTransactionIndex as error:  # raised again when it is used
            LOGGER.error("%s", error)

    def apart(self) -> "Segment":
        """A copy of this unloaded segment, which a job loads; `take_over` uses the result."""
        twin = Segment.__new__(Segment, self.base_offset)
        twin.transactions = self.transactions.apart()
        twin.directory, twin.disk, twin.suffix = self.directory, self.disk, self.suffix
        twin.index_bytes_max, twin.interval, twin.size = self.index_bytes_max, self.interval, self.size
        twin.closed, twin.damaged, twin.reported_damage, twin.cache = (
            self.closed,
            self.damaged,
            self.reported_damage,
            None,
        )
        twin.rebuilt = ""
        return twin

    def take_over(self, twin: "Segment") -> bool:
        """Use what a job has loaded into a copy; False if this segment has changed meanwhile. Raises OSError."""
        same = (self.size, self.suffix, self.directory) == (twin.size, twin.suffix, twin.directory)
        twin.install_rebuilt(keep=same and self.file is None)
        if not same:
            return False
        self.transactions.take_over(twin.transactions)
        if self.file is None:
            self.file, self.offset_index, self.time_index = twin.file, twin.offset_index, twin.time_index
            if self.closed and self.cache is not None:
                self.cache.add(self)
        return True

    def install_rebuilt(self, *, keep: bool) -> None:
        """Rename the index files that this copy has rebuilt, or remove them, also on a full disk.

        The job does not rename them, because other files may have the names by then.

        Arguments:
            keep: whether the files are used.

        Raises OSError.
        """
        work, self.rebuilt = self.rebuilt, ""
        paths = [self.path(suffix) for suffix in (names.INDEX, names.TIME_INDEX)] if work else []
        for path in [path for path in paths if self.disk.exists(f"{path}{work}")]:
            try:
                if keep:
                    self.disk.rename(f"{path}{work}", path)
                    continue
            except OSError as error:
                if not is_transient(error):
                    raise
            self.disk.remove(f"{path}{work}")

    def read_ahead(self, offset: int, size: int) -> int:
        """Job on a segment that is `apart`: load it and read `size` bytes into the page cache, from the position of
        `offset` in the index on. Returns this position. Raises OSError.
        """
        position = self.indexes[0].look_up(offset)
        self.opened.read_ahead(position, min(size, self.size - position))
        return position

    def index_again(self) -> None:
        """Rebuild both indexes from the batches, because an index is missing or wrong. Raises OSError.

        If a batch is damaged, indexes that were loaded are kept, and new ones contain the valid batches around it.
        """
        if self.damaged:
            return
        before = self.offset_index, self.time_index, self.size, self.max_timestamp, self.max_timestamp_offset
        counted, size = (self.bytes_since_index, self.first_timestamp), self.size
        self.empty_indexes()
        found = scan(self, 0, size, self.interval)
        self.damaged = not found.whole
        text = "a batch is damaged" if self.damaged else "the indexes are rebuilt"
        LOGGER.warning("%s: %s", self.path(names.LOG), text)
        if self.damaged and before[0] is not None:
            self.offset_index, self.time_index, self.size, self.max_timestamp, self.max_timestamp_offset = before
            self.bytes_since_index, self.first_timestamp = counted
            return
        while (begin := self.batch_behind(found.end, size) if found.end < size else size) < size:
            self.size = begin
            found = scan(self, begin, size, self.interval, next_offset=found.next_offset)
        self.size = size
        if self.rebuilt is not None:
            self._write_apart()
        elif self.closed:
            self.finish_if_space(sync=True)

    def _write_apart(self) -> None:
        """Write the indexes as work files, which `install_rebuilt` renames. Raises OSError.

        Their names are unique, because a segment that replaces this one may be written at the same time.
        """
        self.rebuilt = f".{next(WORK_NUMBERS)}{names.WORK}"
        own, self.suffix = self.suffix, self.suffix + self.rebuilt
        try:
            self.finish_if_space(sync=True)
        finally:
            self.suffix = own

    def report_damage(self, position: int, offset: int) -> None:
        """Log that a damaged batch at `position` prevents a read of `offset`, once per position."""
        if position not in self.reported_damage and len(self.reported_damage) < DAMAGE_REPORTS_MAX:
            self.reported_damage |= {position}
            text = "%s: the batch at byte %d is damaged, so offset %d cannot be read"
            LOGGER.error(text, self.path(names.LOG), position, offset)

    def read_indexes(self, size: int) -> None:
        """Load both index files of a segment of `size` bytes. Raises CorruptIndexError, OSError."""
        offsets = OffsetIndex(self.base_offset, self.index_bytes_max)
        offsets.load(self.disk.read_bytes(self.path(names.INDEX)), size)
        times = TimeIndex(self.base_offset, self.index_bytes_max)
        times.load(self.disk.read_bytes(self.path(names.TIME_INDEX)), self.base_offset + 2**31)
        self.offset_index, self.time_index = offsets, times

    def write_indexes(self, *, sync: bool = False) -> None:
        """Write the indexes to their files. Raises OSError; then it may be called again.

        Arguments:
            sync: whether the files are also synced, because no later flush of the log does it.
        """
        for index, suffix in zip(self.indexes, (names.INDEX, names.TIME_INDEX), strict=True):
            self._write_index(index, suffix, sync=sync)

    def _write_index(self, index: Index, suffix: str, *, sync: bool) -> None:
        file = self.disk.open(self.path(suffix), create=True)
        try:
            file.pwrite(index.tobytes(index.written), index.written * index.entry_size)
            file.truncate(index.count * index.entry_size)
            index.mark_written()
            if sync:
                file.sync()
        finally:
            file.close()

    def finish(self, *, sync: bool = False) -> None:
        """Add the last entry of the time index and write both indexes, after the last append. Raises OSError."""
        self._end_times()
        self.write_indexes(sync=sync)

    def finish_with_others(self) -> list[FileOperation]:
        """Do as `finish`, but return the writes of small indexes that are not in their files yet, for the caller.

        A thousand segments are closed by few calls then. Larger indexes are written here: their copies would take
        memory. Raises OSError.
        """
        self._end_times()
        writes = []
        for index, suffix in zip(self.indexes, (names.INDEX, names.TIME_INDEX), strict=True):
            if index.written or index.memory > SMALL_INDEX:
                self._write_index(index, suffix, sync=False)
            else:
                writes.append(FileOperation(WRITE_FILE, self.path(suffix), index.tobytes()))
        return writes

    def _end_times(self) -> None:
        if self.max_timestamp >= 0:
            self.indexes[1].append(self.max_timestamp, self.max_timestamp_offset)

    def finish_if_space(self, *, sync: bool) -> None:
        """Call `finish`; on a full disk the index files are removed, and the next load of the segment rebuilds them.

        Raises OSError.
        """
        try:
            self.finish(sync=sync)
        except OSError as error:
            if not is_transient(error):
                raise
            LOGGER.warning("%s: cannot write the indexes: %s", self.path(names.LOG), error)
            for suffix in (names.INDEX, names.TIME_INDEX):
                if self.disk.exists(self.path(suffix)):
                    self.disk.remove(self.path(suffix))

    def resume(self) -> None:
        """Compute the counters from indexes and batches: timestamps, bytes since the last entry."""
        offsets, times = self.indexes
        entries = offsets.count
        last = offsets.look_up(self.base_offset + 2**31) if entries else 0
        self.bytes_since_index = self.size - last
        self.max_timestamp, self.max_timestamp_offset = times.last() or (-1, self.base_offset)
        begin = offsets.look_up(self.max_timestamp_offset)
        for batch in self.batches(begin):
            if batch.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = batch.max_timestamp, batch.last_offset
        self.first_timestamp = self.first_batch_timestamp()

    def first_batch_timestamp(self) -> int:
        """Highest timestamp of the first batch, from which segment.ms counts; -1 in an empty segment."""
        first = self.find_time(-1, ReadAttempt(self.base_offset, wait=True)) if self.size else None
        return first.max_timestamp if isinstance(first, BatchLocation) else -1

    def truncate(self, offset: int) -> None:
        """Remove the batches that end at or above `offset`, and all bytes after the last batch. Raises OSError."""
        location = self.position_of_batch(offset)
        offsets, times = self.indexes
        if location is not None:
            self.size, _ = location
        self.opened.truncate(self.size)
        offsets.truncate(offset)
        times.truncate(offset)
        self.transactions.truncate(offset)
        self.resume()

    def unload(self) -> None:
        """Free the descriptor and the memory; a region in a response keeps the file open."""
        self.file = self.offset_index = self.time_index = None
        self.transactions.unload()

    def next_offset(self) -> int:
        """The offset after the last record; the base offset in an empty segment. Raises OSError."""
        begin = self.indexes[0].look_up(self.base_offset + 2**31)
        batches = self.batches(begin)
        return batches[-1].last_offset + 1 if batches else self.base_offset

    def next_offset_unloaded(self) -> int:
        """`next_offset` of a segment that is not loaded, by the last entry of its offset index alone.

        The index is built again where this entry does not lead to its batch. Raises OSError.
        """
        last_offset, position = self._last_index_entry()
        self.file = self.disk.open(self.path(names.LOG))
        batches = self.batches(position) if 0 <= position < self.size else []
        if last_offset is None or (batches and batches[0].last_offset == last_offset):
            return batches[-1].last_offset + 1 if batches else self.base_offset
        # Where a batch is damaged, not the index, the index of the file is the better one: it leads around the damage.
        with contextlib.suppress(CorruptIndexError, FileNotFoundError):
            self.read_indexes(self.size)
        self.index_again()
        return self.next_offset()

    def _last_index_entry(self) -> tuple[int | None, int]:
        """Last offset and position of the batch of the last entry in the offset index file; (None, 0) without one."""
        index = self.disk.open(self.path(names.INDEX), read_only=True)
        entry = index.pread(OFFSET_ENTRY.size, max(index.size() - OFFSET_ENTRY.size, 0))
        if len(entry) < OFFSET_ENTRY.size:
            return None, 0
        relative, position = OFFSET_ENTRY.unpack(entry)
        return self.base_offset + relative, position

    def files(self) -> list[str]:
        """Paths of the existing files."""
        suffixes = (names.LOG, names.INDEX, names.TIME_INDEX, names.TXN_INDEX)
        return [path for suffix in suffixes if self.disk.exists(path := self.path(suffix))]

    def mark_deleted(self) -> list[str]:
        """Rename its files to `.deleted`; returns the new paths. Raises OSError.

        If a full disk has no space for the longer name, the file is removed; running reads keep it open.
        """
        renamed = []
        for path in self.files():
            try:
                self.disk.rename(path, path + names.DELETED)
                renamed.append(path + names.DELETED)
            except OSError as error:
                if not is_transient(error):
                    raise
                self.disk.remove(path)
        self.suffix = names.DELETED
        return renamed
