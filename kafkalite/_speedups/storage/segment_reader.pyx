"""One run of a log: reading the headers of a file of batches by its indexes, and what is not in memory of it.

Laws:
1. Nothing here reads a record: headers only.
2. A reader that must not wait for the disk is told what is `PageCacheMiss`; a job brings that in, then the reader asks
   again.
3. A header is believed that is in line with the one before it, or with its entry in the index; else `resync` decides.

Source: LogSegment.java.
"""

from libc.stdint cimport INT64_MAX, int64_t

from kafkalite._speedups.storage.file cimport File, iovec
from kafkalite._speedups.storage.damaged_headers cimport DOUBT, DamagedHeaderSearch, resync
from kafkalite._speedups.storage.header_window cimport COLD, Window, header_at
from kafkalite._speedups.wire.wire cimport LENGTH_OVERHEAD, BatchHeader

cdef enum:
    RECENT_BYTES = 8 << 20       # so much at the end of the active segment is in memory while anybody writes
    BROUGHT_BYTES = 16 << 20     # what a reader came past, it need not ask for again where nobody can tell
    COLD_ATTEMPTS = 8            # a machine that drops pages as fast as they come stalls in any case: then read

ATTEMPTS_MAX = COLD_ATTEMPTS


cdef class PageCacheMiss:
    """Bytes that are to be brought into memory before the loop may read on.

    Attributes: the segment; its `file` (None: the segment is to be opened); the `offset` or timestamp looked for;
    `position` and `size` of the bytes (position -1: where the opened index says); `attempts` of the same reader before.
    """

    def __init__(self, SegmentCore segment not None, File file, int64_t offset, int64_t position, int64_t size,
                 int attempts=0):
        self.segment = segment
        self.file = file
        self.offset = offset
        self.position = position
        self.size = size
        self.attempts = attempts

    def __repr__(self):
        return f"Cold({self.file!r}, {self.position}, {self.size}, attempts={self.attempts})"

    cdef bint holds(self, int64_t position, int64_t size) noexcept:
        return self.position <= position and position + size <= self.position + self.size

    def at_position(self, int64_t position):
        """This, once the segment was opened and its bytes were brought in from `position` on."""
        return PageCacheMiss(self.segment, self.segment.file, self.offset, position, self.size, self.attempts)


cdef object closed(SegmentCore segment, int64_t offset, int64_t size, PageCacheMiss brought):
    """What a reader asks for that found the segment unloaded; None where it has asked too often."""
    cdef int attempts = attempts_of(segment, brought)
    return PageCacheMiss(segment, None, offset, -1, size, attempts) if attempts < COLD_ATTEMPTS else None


cdef PageCacheMiss cold_at(SegmentCore segment, int64_t offset, int64_t position, int64_t size, PageCacheMiss brought):
    """What a reader asks for that stopped at `position` of an open segment."""
    cdef int64_t end = position + min(size, max(segment.size - position, <int64_t> 1))
    if brought is not None and brought.segment is segment and brought.holds(position - 1, 1):
        if end - brought.position <= BROUGHT_BYTES:
            end = max(end, brought.position + brought.size)
            position = brought.position
    return PageCacheMiss(segment, segment.file, offset, position, end - position, attempts_of(segment, brought))


cdef int attempts_of(SegmentCore segment, PageCacheMiss brought) noexcept:
    return brought.attempts + 1 if brought is not None and brought.segment is segment else 0


cdef bint astray(SegmentCore segment, int64_t position, int64_t offset, BatchHeader *header, int found) noexcept:
    """Whether an index entry leads past `offset`, or to what is no batch: its file is damaged."""
    if position == 0 or found == COLD:
        return False
    return found == 0 or not segment.base_offset <= header.base_offset <= offset


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
        """Open the file and load the indexes of an unloaded segment; the subclass does. Raises OSError."""
        raise NotImplementedError

    def index_again(self):
        """Build both indexes anew from the batches, as they were seen to lie; the subclass does. Raises OSError."""
        raise NotImplementedError

    def report_damage(self, int64_t position, int64_t offset):
        """Somebody asked for `offset` and met a damaged batch at `position`; the subclass tells the outside."""
        raise NotImplementedError

    cdef int load(self) except -1:
        if self.file is None:
            self.open_again()
            if self.file is None or self.offset_index is None or self.time_index is None:
                raise RuntimeError("a segment is loaded with its file and both indexes")
        return 0

    cdef int note(self, const BatchHeader *header, int64_t last_offset, int64_t size, int64_t interval) except -1:
        """Index a batch of `size` bytes that lies at the end of the segment, and count it in."""
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
        """Write `count` queued batches with one call, then index them."""
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

    cdef int open_window(self, Window *window, bint active, bint wait, PageCacheMiss brought,
                         int64_t position) except -1:
        """Begin to read headers at `position`; `brought`: what a job has brought in for this reader."""
        window.start = window.size = 0
        window.brought_from = window.brought_to = 0
        window.wait = wait
        window.recent = active and position >= self.written_from and self.size - position <= RECENT_BYTES
        if brought is not None and brought.segment is self:
            window.brought_from = brought.position
            window.brought_to = brought.position + brought.size
            window.wait = wait or brought.attempts >= COLD_ATTEMPTS
        return 0

    cdef int find(self, int64_t offset, int entry, int64_t *position, BatchHeader *header, Window *window) except -1:
        """Find the first batch that ends at or beyond `offset`.

        Arguments:
            entry, position: the last index entry at or below `offset`, as `entry_of` has it, and its position.

        Result: 1, COLD with the position where it stopped, or DOUBT: not in line with its neighbours, so that
        `resolve_doubt` is to be asked. Never 0: that, too, is in doubt.
        """
        cdef int found = header_at(self.file, window, position[0], self.size, header)
        cdef int64_t expected, last
        if astray(self, position[0], offset, header, found):
            self.index_again()
            entry = self.offset_index.entry_of(offset)
            position[0] = self.offset_index.position_at(entry)
            found = header_at(self.file, window, position[0], self.size, header)
        # The first one is in line with its entry, the others are with the one before.
        expected = self.base_offset
        if entry >= 0 and found == 1:
            expected += self.offset_index.relative(entry) - header.last_offset_delta
        while found == 1:
            last = header.base_offset + header.last_offset_delta
            if last >= offset:
                return 1 if header.base_offset <= offset and header.base_offset == expected else DOUBT
            expected = last + 1
            position[0] += LENGTH_OVERHEAD + header.batch_length
            found = header_at(self.file, window, position[0], self.size, header)
        return COLD if found == COLD else DOUBT

    cdef int resolve_doubt(
        self, int64_t offset, int64_t bound, int64_t *position, BatchHeader *header, Window *window
    ) except -1:
        """What `find` doubts. `bound`: no batch of the segment reaches it. Result: as of `DamagedHeaderSearch.find`."""
        return resync(self.file, self.offset_index, window, self.base_offset, bound, self.size).find(
            offset, position, header
        )

    cdef int skip(self, int64_t *position, BatchHeader *header, Window *window) except -1:
        """Go on behind damage at `position`, where a walk stopped; as `header_at`."""
        cdef DamagedHeaderSearch way
        if position[0] >= self.size:
            return 0
        way = resync(self.file, self.offset_index, window, self.base_offset, INT64_MAX, self.size)
        if way.walk_on(position, header) == COLD:
            position[0] = way.cold
            return COLD
        return header_at(self.file, window, position[0], self.size, header)

    def batch_behind(self, int64_t position, int64_t size):
        """Where the next whole batch begins behind damage at `position` of a file of `size` bytes; `size` for none.

        Raises OSError.
        """
        cdef Window window
        cdef BatchHeader header
        self.open_window(&window, False, True, None, position)
        resync(self.file, self.offset_index, &window, self.base_offset, INT64_MAX, size).walk_on(&position, &header)
        return position

    cdef int whole_until(self, int64_t limit, int64_t end_offset, int64_t *end, Window *window) except -1:
        """Where the last batch ends that lies below the position `limit` and below `end_offset` altogether.

        Arguments:
            end: where a batch begins; that is the answer where not even that one does.

        Result: 0, or COLD with the position where it stopped.
        """
        cdef BatchHeader header
        cdef int64_t expected = self.base_offset
        cdef int64_t named
        cdef int found
        limit = min(limit, self.size)
        named = min(self.offset_index.position_before(limit), self.offset_index.position_of(end_offset))
        if named > end[0]:
            if astray(self, named, end_offset, &header, header_at(self.file, window, named, self.size, &header)):
                self.index_again()
                named = min(self.offset_index.position_before(limit), self.offset_index.position_of(end_offset))
            end[0] = max(end[0], named)
        found = header_at(self.file, window, end[0], limit, &header)
        while found == 1 and expected <= header.base_offset < end_offset - header.last_offset_delta:
            expected = header.base_offset + header.last_offset_delta + 1
            end[0] += LENGTH_OVERHEAD + header.batch_length
            found = header_at(self.file, window, end[0], limit, &header)
        return COLD if found == COLD else 0

    def batches(self, int64_t position=0):
        """Walk the headers from a batch start: (position, size, base offset, last offset, max timestamp, epoch) each.

        Raises OSError.
        """
        cdef Window window
        cdef BatchHeader header
        found = []
        self.load()
        self.open_window(&window, False, True, None, position)
        while header_at(self.file, &window, position, self.size, &header) == 1:
            found.append((
                position, LENGTH_OVERHEAD + header.batch_length, header.base_offset,
                header.base_offset + header.last_offset_delta, header.max_timestamp, header.leader_epoch,
            ))
            position += LENGTH_OVERHEAD + header.batch_length
        return found

    def find_time(self, int64_t timestamp, int64_t from_offset, bint wait=True, PageCacheMiss brought=None):
        """(position, size) of the first batch at or after `from_offset` that reaches `timestamp`, or None.

        Without `wait` also Cold, after which it is asked again with that as `brought`.
        """
        cdef object asked
        if not wait and self.file is None:
            asked = closed(self, from_offset, COLD_SLACK, brought)
            if asked is not None:
                return asked
        self.load()
        asked = self.look_for_time(timestamp, from_offset, wait, brought, False)
        if asked is NotImplemented:
            self.index_again()
            asked = self.look_for_time(timestamp, from_offset, wait, brought, True)
        return asked

    cdef object look_for_time(self, int64_t timestamp, int64_t wanted, bint wait, PageCacheMiss brought, bint believe):
        """What `find_time` answers; NotImplemented where an index lies, unless it is to be believed."""
        cdef Window window
        cdef BatchHeader header
        cdef int entry = self.time_index.older_than(timestamp)
        cdef int64_t begin = self.base_offset + (self.time_index.relative(entry) if entry >= 0 else 0)
        cdef int64_t from_offset = max(wanted, begin)
        cdef int64_t position = self.offset_index.position_of(from_offset)
        cdef int found
        self.open_window(&window, False, wait, brought, position)
        found = header_at(self.file, &window, position, self.size, &header)
        if not believe and astray(self, position, from_offset, &header, found):
            return NotImplemented
        if found == 0:
            found = self.skip(&position, &header, &window)
        while found == 1:
            if entry >= 0 and header.base_offset + header.last_offset_delta >= begin:
                if not believe and begin >= wanted and header.max_timestamp != self.time_index.timestamp(entry):
                    return NotImplemented
                entry = -1                 # the batch it names was seen, and has the timestamp it says
            if header.max_timestamp >= timestamp and header.base_offset + header.last_offset_delta >= from_offset:
                return position, LENGTH_OVERHEAD + header.batch_length
            position += LENGTH_OVERHEAD + header.batch_length
            found = header_at(self.file, &window, position, self.size, &header)
            if found == 0:
                found = self.skip(&position, &header, &window)
        return cold_at(self, from_offset, position, COLD_BYTES, brought) if found == COLD else None

    def batch_now(self, int64_t position, int64_t size, PageCacheMiss brought=None):
        """The bytes of a batch, or Cold where they are not in memory. Raises OSError."""
        cdef int resident
        cdef object asked
        if self.file is None:
            asked = closed(self, self.base_offset, COLD_SLACK, brought)
            if asked is not None:
                return asked
        self.load()
        resident = self.file.resident_now(position, size)
        cdef bint tried = brought is not None and brought.segment is self and brought.holds(position, size)
        if resident == 1 or (tried and (resident == -1 or brought.attempts >= COLD_ATTEMPTS)):
            return self.file.pread(size, position)
        return cold_at(self, self.base_offset, position, size, brought)

    def position_of_batch(self, int64_t offset):
        """(position, base offset) of the first batch that ends at or beyond `offset`, or None.

        Where that one is damaged: where the damage begins, and the offset that should be there.
        """
        cdef Window window
        cdef BatchHeader header
        cdef int entry, found
        cdef int64_t position
        self.load()
        entry = self.offset_index.entry_of(offset)
        position = self.offset_index.position_at(entry)
        self.open_window(&window, False, True, None, position)
        found = self.find(offset, entry, &position, &header, &window)
        if found == DOUBT:
            found = self.resolve_doubt(offset, INT64_MAX, &position, &header, &window)
        if found == 0:
            return None
        return position, header.base_offset
