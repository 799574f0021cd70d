"""Reads the batches of one segment by its indexes: headers only, no records.

1. A reader that must not wait for the disk gets a `PageCacheMiss`; it tries again after a job has read them.
2. A header is accepted if it agrees with its index entry or with the header before it. Otherwise `damaged_headers`
   decides.

Source: LogSegment.java.
"""

from libc.stdint cimport INT64_MAX, int64_t

from kafkalite._speedups.storage.file cimport FileRegion, iovec
from kafkalite._speedups.storage.damaged_headers cimport DamagedHeaderSearch, damaged_header_search
from kafkalite._speedups.storage.page_cache cimport (
    CACHE_MISS,
    DAMAGED,
    FOUND,
    INCONSISTENT,
    NO_BATCH,
    READ_AHEAD_BYTES,
    READ_AHEAD_SLACK,
    PageCacheMiss,
    ReadAttempt,
    Window,
    end_position,
    header_at,
    last_offset_of,
    open_window,
)
from kafkalite._speedups.wire.wire cimport LENGTH_OVERHEAD, BatchHeader

from kafkalite.errors import KafkaErrorCode

cdef enum:
    RECENT_BYTES = 8 << 20       # this much at the end of an active segment stays in the page cache


cdef class BatchLocation:
    """One batch of a segment, by its header.

    Attributes:
        position, size: of the batch in the file, in bytes.
        base_offset, last_offset, max_timestamp, leader_epoch: as in its header.
    """


cdef BatchLocation located(int64_t position, const BatchHeader *header):
    cdef BatchLocation location = BatchLocation.__new__(BatchLocation)
    location.position = position
    location.size = LENGTH_OVERHEAD + header.batch_length
    location.base_offset = header.base_offset
    location.last_offset = last_offset_of(header)
    location.max_timestamp = header.max_timestamp
    location.leader_epoch = header.leader_epoch
    return location


cdef bint misled(SegmentCore segment, int64_t position, int64_t offset, BatchHeader *header, int found) noexcept:
    """Whether an index entry names a batch beyond `offset`, or no batch: the index file is damaged."""
    if position == 0 or found == CACHE_MISS:
        return False
    return found == NO_BATCH or not segment.base_offset <= header.base_offset <= offset


cdef class SegmentCore:
    """One run of a log: a file of batches with its two indexes.

    Arguments:
        base_offset: no batch in it is below.
    """

    def __cinit__(self, int64_t base_offset, *args, **kwargs):
        self.base_offset = base_offset
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.first_timestamp = -1

    def open_again(self):
        """Open the file and load the indexes of an unloaded segment (in the subclass). Raises OSError."""
        raise NotImplementedError

    def index_again(self):
        """Rebuild both indexes from the batches, after one of them was wrong (in the subclass). Raises OSError."""
        raise NotImplementedError

    def report_damage(self, int64_t position, int64_t offset):
        """Report that a damaged batch at `position` prevents a read of `offset` (in the subclass)."""
        raise NotImplementedError

    cdef int load(self) except -1:
        if self.file is None:
            self.open_again()
            if self.file is None or self.offset_index is None or self.time_index is None:
                raise RuntimeError("a segment is loaded with its file and both indexes")
        return 0

    cdef int note(self, const BatchHeader *header, int64_t last_offset, int64_t size, int64_t interval) except -1:
        """Add a batch of `size` bytes at the end of the segment to its indexes and counters."""
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = last_offset
        if self.size == 0:
            self.first_timestamp = header.max_timestamp
        if self.bytes_since_index > interval:
            self.offset_index.add(last_offset, self.size)
            self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_index = 0
        self.size += size
        self.bytes_since_index += size
        return 0

    cdef int write_run(self, Queued *queue, int count, iovec *parts, int64_t interval) except -1:
        """Write `count` queued batches with one system call, then index them."""
        cdef BatchHeader header
        cdef int i
        for i in range(count):
            parts[i].iov_base = queue[i].view.buf
            parts[i].iov_len = queue[i].view.len
        self.file.write_vec(parts, count, self.size)
        for i in range(count):
            header.max_timestamp = queue[i].max_timestamp
            self.note(&header, queue[i].last_offset, queue[i].view.len, interval)
        return 0

    cdef bint is_recent(self, int64_t position) noexcept:
        return not self.closed and position >= self.written_from and self.size - position <= RECENT_BYTES

    cdef PageCacheMiss miss_at(self, ReadAttempt attempt, int64_t position, int64_t size):
        return attempt.miss_at(self, self.file, self.size, position, size)

    cdef object read(self, ReadAttempt attempt, int64_t bound):
        """Read whole batches from the one with the wanted offset on.

        Arguments:
            bound: no batch of the segment reaches this offset.

        Result: as of `LogCore.read`; None if the segment has no batch from this offset on.
        """
        cdef Window window
        cdef BatchHeader header
        cdef int64_t max_bytes = attempt.max_bytes
        cdef int64_t slack = min(max_bytes, <int64_t> READ_AHEAD_BYTES) + READ_AHEAD_SLACK
        cdef int64_t position, end
        cdef int found
        cdef PageCacheMiss miss
        if self.file is None:
            miss = attempt.miss_of_unloaded(self, attempt.offset, slack)
            if miss is not None:
                return miss
        self.load()
        found = self.find(attempt.offset, attempt, &position, &header, &window)
        if found == INCONSISTENT:
            found = self.find_damaged(attempt.offset, bound, &position, &header, &window)
        if found != FOUND:
            return self.read_failure(found, attempt, position, slack)
        if last_offset_of(&header) >= attempt.end_offset:
            return []
        if not attempt.wait and not window.recent:
            max_bytes = min(max_bytes, <int64_t> READ_AHEAD_BYTES)
        end = position
        if self.whole_until(position + max_bytes, attempt.end_offset, &end, &window) == CACHE_MISS:
            return self.miss_at(attempt, end, READ_AHEAD_SLACK)
        if end == position:                     # the first batch is larger than `max_bytes`
            if not attempt.min_one:
                return []
            end = end_position(position, &header)
            found = self.confirm_end(end, bound, &header, &window)
            if found != FOUND:
                return self.read_failure(found, attempt, position, end - position + READ_AHEAD_SLACK)
        return self.region(attempt, position, end, &window)

    cdef object read_failure(self, int found, ReadAttempt attempt, int64_t position, int64_t size):
        """The result of a read that stopped at `position`; `size`: bytes to read ahead after a page-cache miss."""
        if found == NO_BATCH:
            return None
        if found == CACHE_MISS:
            return self.miss_at(attempt, position, size)
        self.report_damage(position, attempt.offset)
        return KafkaErrorCode.CORRUPT_MESSAGE

    cdef object region(self, ReadAttempt attempt, int64_t position, int64_t end, Window *window):
        """The bytes between two positions as a file region, or a miss if the page cache does not have all of them."""
        cdef PageCacheMiss before
        cdef int resident
        if not window.wait and not window.recent:
            resident = self.file.resident_now(position, end - position)
            before = attempt.read_ahead_of(self)
            if resident == 0 or (resident == -1 and (before is None or not before.covers(position, end - position))):
                return self.miss_at(attempt, position, end - position)
        return [FileRegion(self.file, position, end - position)]

    cdef int find(
        self, int64_t offset, ReadAttempt attempt, int64_t *position, BatchHeader *header, Window *window
    ) except -1:
        """Find the first batch that ends at or above `offset`.

        Arguments:
            attempt: the attempt that reads; None for a reader that may wait for the disk.

        Result: FOUND; CACHE_MISS, with the position where the search stopped; INCONSISTENT if the headers contradict
        the index or each other, also if no batch was found: then `find_damaged` decides.
        """
        cdef int entry = self.offset_index.entry_of(offset)
        cdef int64_t expected, last
        cdef int found
        position[0] = self.offset_index.position_at(entry)
        open_window(window, attempt, self, position[0], self.is_recent(position[0]))
        found = header_at(self.file, window, position[0], self.size, header)
        if misled(self, position[0], offset, header, found):
            self.index_again()
            entry = self.offset_index.entry_of(offset)
            position[0] = self.offset_index.position_at(entry)
            found = header_at(self.file, window, position[0], self.size, header)
        # The first header is compared with its index entry, each other one with the header before it.
        expected = self.base_offset
        if entry >= 0 and found == FOUND:
            expected += self.offset_index.relative(entry) - header.last_offset_delta
        while found == FOUND:
            last = last_offset_of(header)
            if last >= offset:
                return FOUND if header.base_offset <= offset and header.base_offset == expected else INCONSISTENT
            expected = last + 1
            position[0] = end_position(position[0], header)
            found = header_at(self.file, window, position[0], self.size, header)
        return CACHE_MISS if found == CACHE_MISS else INCONSISTENT

    cdef int find_damaged(
        self, int64_t offset, int64_t bound, int64_t *position, BatchHeader *header, Window *window
    ) except -1:
        """As `find`, after it returned INCONSISTENT: FOUND, NO_BATCH, CACHE_MISS or DAMAGED.

        Arguments:
            bound: no batch of the segment reaches this offset.
        """
        return damaged_header_search(
            self.file, self.offset_index, window, self.base_offset, bound, self.size
        ).find(offset, position, header)

    cdef int confirm_end(self, int64_t end, int64_t bound, const BatchHeader *header, Window *window) except -1:
        """Confirm that a batch ends at the position `end`: FOUND, DAMAGED or CACHE_MISS.

        Otherwise a flipped bit in a length could return hundreds of megabytes.
        """
        cdef BatchHeader other
        cdef int64_t last = last_offset_of(header)
        cdef int64_t position
        cdef int found
        if end == self.size:
            if bound == last + 1:
                return FOUND
        else:
            found = header_at(self.file, window, end, self.size, &other)
            if found == CACHE_MISS or (found == FOUND and other.base_offset == last + 1):
                return found
        found = self.find_damaged(last, bound, &position, &other, window)
        if found == CACHE_MISS:
            return CACHE_MISS
        return FOUND if found == FOUND and end_position(position, &other) == end else DAMAGED

    cdef int skip_damage(self, int64_t *position, BatchHeader *header, Window *window) except -1:
        """Continue a walk that stopped at a damaged batch; as `header_at`."""
        cdef DamagedHeaderSearch search
        if position[0] >= self.size:
            return NO_BATCH
        search = damaged_header_search(
            self.file, self.offset_index, window, self.base_offset, INT64_MAX, self.size
        )
        if search.next_batch(position, header) == CACHE_MISS:
            position[0] = search.missed
            return CACHE_MISS
        return header_at(self.file, window, position[0], self.size, header)

    def batch_behind(self, int64_t position, int64_t size):
        """Position of the next valid batch after a damaged one at `position`; `size` if there is none.

        Arguments:
            size: bytes of the file.

        Raises OSError.
        """
        cdef Window window
        cdef BatchHeader header
        open_window(&window, None, self, position, False)
        damaged_header_search(
            self.file, self.offset_index, &window, self.base_offset, INT64_MAX, size
        ).next_batch(&position, &header)
        return position

    cdef int whole_until(self, int64_t limit, int64_t end_offset, int64_t *end, Window *window) except -1:
        """Find the end of the last batch that ends at or below the position `limit` and below `end_offset`.

        Arguments:
            end: in: where a batch begins; out: the result, unchanged if not even this batch fits.

        Result: 0, or CACHE_MISS with the position where the search stopped.
        """
        cdef BatchHeader header
        cdef int64_t expected = self.base_offset
        cdef int64_t named
        cdef int found
        limit = min(limit, self.size)
        named = min(self.offset_index.position_before(limit), self.offset_index.position_of(end_offset))
        if named > end[0]:
            if misled(self, named, end_offset, &header, header_at(self.file, window, named, self.size, &header)):
                self.index_again()
                named = min(self.offset_index.position_before(limit), self.offset_index.position_of(end_offset))
            end[0] = max(end[0], named)
        found = header_at(self.file, window, end[0], limit, &header)
        while found == FOUND and expected <= header.base_offset < end_offset - header.last_offset_delta:
            expected = last_offset_of(&header) + 1
            end[0] = end_position(end[0], &header)
            found = header_at(self.file, window, end[0], limit, &header)
        return CACHE_MISS if found == CACHE_MISS else 0

    def batches(self, int64_t position=0):
        """The locations of all batches from the one that begins at `position` on. Raises OSError."""
        cdef Window window
        cdef BatchHeader header
        locations = []
        self.load()
        open_window(&window, None, self, position, False)
        while header_at(self.file, &window, position, self.size, &header) == FOUND:
            locations.append(located(position, &header))
            position = end_position(position, &header)
        return locations

    def find_time(self, int64_t timestamp, ReadAttempt attempt not None):
        """Find the first batch at or above the wanted offset whose largest timestamp is at least `timestamp`.

        Result: BatchLocation, None or PageCacheMiss. Raises OSError.
        """
        cdef object result
        if self.file is None:
            result = attempt.miss_of_unloaded(self, attempt.offset, READ_AHEAD_SLACK)
            if result is not None:
                return result
        self.load()
        result = self.look_for_time(timestamp, attempt, False)
        if result is NotImplemented:
            self.index_again()
            result = self.look_for_time(timestamp, attempt, True)
        return result

    cdef object look_for_time(self, int64_t timestamp, ReadAttempt attempt, bint trust_indexes):
        """The result of `find_time`; NotImplemented if an index turns out to be wrong and is not to be trusted."""
        cdef Window window
        cdef BatchHeader header
        cdef int entry = self.time_index.older_than(timestamp)
        cdef int64_t begin = self.base_offset + (self.time_index.relative(entry) if entry >= 0 else 0)
        cdef int64_t from_offset = max(attempt.offset, begin)
        cdef int64_t position = self.offset_index.position_of(from_offset)
        cdef int found
        open_window(&window, attempt, self, position, False)
        found = header_at(self.file, &window, position, self.size, &header)
        if not trust_indexes and misled(self, position, from_offset, &header, found):
            return NotImplemented
        if found == NO_BATCH:
            found = self.skip_damage(&position, &header, &window)
        while found == FOUND:
            if entry >= 0 and last_offset_of(&header) >= begin:
                if (not trust_indexes and begin >= attempt.offset
                        and header.max_timestamp != self.time_index.timestamp(entry)):
                    return NotImplemented
                entry = -1                 # its batch was read, and has the entry's timestamp
            if header.max_timestamp >= timestamp and last_offset_of(&header) >= from_offset:
                return located(position, &header)
            position = end_position(position, &header)
            found = header_at(self.file, &window, position, self.size, &header)
            if found == NO_BATCH:
                found = self.skip_damage(&position, &header, &window)
        return self.miss_at(attempt, position, READ_AHEAD_BYTES) if found == CACHE_MISS else None

    def read_batch(self, BatchLocation location not None, ReadAttempt attempt not None):
        """The bytes of a batch, or a PageCacheMiss. Raises OSError."""
        cdef int64_t position = location.position
        cdef int64_t size = location.size
        cdef PageCacheMiss before
        cdef int resident
        if self.file is None:
            before = attempt.miss_of_unloaded(self, self.base_offset, READ_AHEAD_SLACK)
            if before is not None:
                return before
        self.load()
        if not attempt.wait:
            resident = self.file.resident_now(position, size)
            before = attempt.read_ahead_of(self)
            if before is not None and not before.covers(position, size):
                before = None
            if resident != 1 and (before is None or (resident == 0 and not before.is_last())):
                return self.miss_at(attempt, position, size)
        return self.file.pread(size, position)

    def position_of_batch(self, int64_t offset):
        """(position, base offset) of the first batch that ends at or above `offset`, or None.

        If that batch is damaged: where the damage begins, and the base offset that it should have. Raises OSError.
        """
        cdef Window window
        cdef BatchHeader header
        cdef int64_t position
        cdef int found
        self.load()
        found = self.find(offset, None, &position, &header, &window)
        if found == INCONSISTENT:
            found = self.find_damaged(offset, INT64_MAX, &position, &header, &window)
        return None if found == NO_BATCH else (position, header.base_offset)

    def end_before(self, int64_t position):
        """The offset behind the last batch that ends at or before a position; the base offset without one.

        Raises OSError.
        """
        cdef Window window
        cdef BatchHeader header
        cdef int64_t end = self.base_offset
        cdef int64_t at
        self.load()
        at = self.offset_index.position_before(position - 1)
        open_window(&window, None, self, at, False)
        while at < position and header_at(self.file, &window, at, position, &header) == FOUND:
            end = last_offset_of(&header) + 1
            at = end_position(at, &header)
        return end
