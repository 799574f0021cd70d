"""One run of a log: reading the headers of a file of batches by its indexes, and what is not in memory of it.

Laws:
1. Nothing here reads a record: headers only.
2. A reader that must not wait for the disk is told what is `Cold`; a job brings that in, then the reader asks again.

Source: LogSegment.java.
"""

from libc.stdint cimport int64_t

from kafkalite._speedups.file cimport NOT_RESIDENT, RESIDENCE_UNKNOWN, File, iovec
from kafkalite._speedups.wire cimport HEADER_SIZE, LENGTH_OVERHEAD, BatchHeader, read_batch_header

cdef enum:
    RECENT_BYTES = 8 << 20       # so much at the end of the active segment is in memory while anybody writes
    BROUGHT_BYTES = 16 << 20     # what a reader came past, it need not ask for again where nobody can tell
    COLD_ATTEMPTS = 8            # a machine that drops pages as fast as they come stalls in any case: then read


cdef int fill(File file, Window *window, int64_t position, int64_t wanted) except -1:
    """Read a piece of the file into the window; answer 0, or COLD where its first header is not in memory."""
    cdef Py_ssize_t got = RESIDENCE_UNKNOWN
    if not window.wait:
        got = file.read_now(window.data, wanted, position)
        if got == RESIDENCE_UNKNOWN:
            if not window.recent and not window.brought_from <= position < window.brought_to:
                return COLD
        elif got == NOT_RESIDENT or got < HEADER_SIZE:
            return COLD
    if got == RESIDENCE_UNKNOWN:
        got = file.read_into(window.data, wanted, position)
    window.size = got
    window.start = position
    return 0


cdef int header_at(File file, Window *window, int64_t position, int64_t limit, BatchHeader *out) except -1:
    """Read the header of the batch at `position`; answer 1, 0 where no whole batch lies below `limit`, or COLD."""
    cdef int64_t at = position - window.start
    if limit - position < HEADER_SIZE:
        return 0
    if at < 0 or at + HEADER_SIZE > window.size:
        if fill(file, window, position, min(<int64_t> WINDOW_BYTES, limit - position)) == COLD:
            return COLD
        at = 0
    if read_batch_header(window.data + at, window.size - at, out) < 0:
        return 0
    if out.batch_length < HEADER_SIZE - LENGTH_OVERHEAD or out.batch_length > limit - position - LENGTH_OVERHEAD:
        return 0
    if out.magic < 2:        # an old log: its messages carry one offset, that of their last record
        out.last_offset_delta = 0
        out.max_timestamp = -1
    return 1


cdef class Cold:
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

    def placed(self, int64_t position):
        """This, once the segment was opened and its bytes were brought in from `position` on."""
        return Cold(self.segment, self.segment.file, self.offset, position, self.size, self.attempts)


cdef object closed(SegmentCore segment, int64_t offset, int64_t size, Cold brought):
    """What a reader asks for that found the segment unloaded; None where it has asked too often."""
    cdef int attempts = attempts_of(segment, brought)
    return Cold(segment, None, offset, -1, size, attempts) if attempts < COLD_ATTEMPTS else None


cdef Cold cold_at(SegmentCore segment, int64_t offset, int64_t position, int64_t size, Cold brought):
    """What a reader asks for that stopped at `position` of an open segment."""
    cdef int64_t end = position + min(size, max(segment.size - position, <int64_t> 1))
    if brought is not None and brought.segment is segment and brought.holds(position - 1, 1):
        if end - brought.position <= BROUGHT_BYTES:
            end = max(end, brought.position + brought.size)
            position = brought.position
    return Cold(segment, segment.file, offset, position, end - position, attempts_of(segment, brought))


cdef int attempts_of(SegmentCore segment, Cold brought) noexcept:
    return brought.attempts + 1 if brought is not None and brought.segment is segment else 0


cdef bint astray(SegmentCore segment, int64_t position, int64_t offset, BatchHeader *header, int found) noexcept:
    """Whether an index entry leads past `offset`, or to what is no batch: its file is damaged."""
    if position == 0 or found == COLD:
        return False
    return found == 0 or header.magic > 2 or not segment.base_offset <= header.base_offset <= offset


cdef int older_than(TimeIndex index, int64_t timestamp) noexcept:
    """The last entry below `timestamp`, -1 for none."""
    cdef int low = 0
    cdef int high = index.count
    cdef int middle
    while low < high:
        middle = low + (high - low) // 2
        if index.timestamp(middle) < timestamp:
            low = middle + 1
        else:
            high = middle
    return low - 1


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

    cdef int open_window(self, Window *window, bint active, bint wait, Cold brought, int64_t position) except -1:
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

    cdef int find(self, int64_t offset, int64_t *position, BatchHeader *header, Window *window) except -1:
        """Find the first batch that ends at or beyond `offset` from `position` on; answer 1, 0 where there is none, or
        COLD with the position where it stopped."""
        cdef int found = header_at(self.file, window, position[0], self.size, header)
        if astray(self, position[0], offset, header, found) and position[0] == self.offset_index.position_of(offset):
            self.index_again()
            position[0] = self.offset_index.position_of(offset)
            found = header_at(self.file, window, position[0], self.size, header)
        while found == 1:
            if header.base_offset + header.last_offset_delta >= offset:
                return 1
            position[0] += LENGTH_OVERHEAD + header.batch_length
            found = header_at(self.file, window, position[0], self.size, header)
        return found

    cdef int whole_until(self, int64_t limit, int64_t end_offset, int64_t *end, Window *window) except -1:
        """Where the last batch ends that lies below the position `limit` and below `end_offset` altogether; answer 0,
        or COLD with the position where it stopped."""
        cdef BatchHeader header
        cdef int found
        limit = min(limit, self.size)
        end[0] = min(self.offset_index.position_before(limit), self.offset_index.position_of(end_offset))
        if astray(self, end[0], end_offset, &header, header_at(self.file, window, end[0], self.size, &header)):
            self.index_again()
            end[0] = min(self.offset_index.position_before(limit), self.offset_index.position_of(end_offset))
        found = header_at(self.file, window, end[0], limit, &header)
        while found == 1 and header.base_offset + header.last_offset_delta < end_offset:
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
        while header_at(self.file, &window, position, self.size, &header):
            found.append((
                position, LENGTH_OVERHEAD + header.batch_length, header.base_offset,
                header.base_offset + header.last_offset_delta, header.max_timestamp, header.leader_epoch,
            ))
            position += LENGTH_OVERHEAD + header.batch_length
        return found

    def find_time(self, int64_t timestamp, int64_t from_offset, bint wait=True, Cold brought=None):
        """(position, size) of the first batch at or after `from_offset` that reaches `timestamp`, or None.

        Without `wait` also Cold, after which it is asked again with that as `brought`.
        """
        cdef Window window
        cdef BatchHeader header
        cdef int64_t position
        cdef int found
        cdef object asked
        if not wait and self.file is None:
            asked = closed(self, from_offset, COLD_SLACK, brought)
            if asked is not None:
                return asked
        self.load()
        cdef int64_t wanted = from_offset
        cdef int entry = older_than(self.time_index, timestamp)
        cdef int64_t begin = self.base_offset + self.time_index.relative(entry) if entry >= 0 else self.base_offset
        from_offset = max(wanted, begin)
        position = self.offset_index.position_of(from_offset)
        self.open_window(&window, False, wait, brought, position)
        found = header_at(self.file, &window, position, self.size, &header)
        if astray(self, position, from_offset, &header, found):
            self.index_again()
            return self.find_time(timestamp, wanted, wait, brought)
        while found == 1:
            if entry >= 0 and header.base_offset + header.last_offset_delta >= begin:
                if header.magic >= 2 and begin >= wanted and header.max_timestamp != self.time_index.timestamp(entry):
                    self.index_again()
                    return self.find_time(timestamp, wanted, wait, brought)
                entry = -1                 # the batch it names was seen, and has the timestamp it says
            if header.max_timestamp >= timestamp and header.base_offset + header.last_offset_delta >= from_offset:
                return position, LENGTH_OVERHEAD + header.batch_length
            position += LENGTH_OVERHEAD + header.batch_length
            found = header_at(self.file, &window, position, self.size, &header)
        return cold_at(self, from_offset, position, COLD_BYTES, brought) if found == COLD else None

    def batch_now(self, int64_t position, int64_t size, Cold brought=None):
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
        """(position, size, base offset) of the first batch that ends at or beyond `offset`, or None."""
        cdef Window window
        cdef BatchHeader header
        cdef int64_t position
        self.load()
        position = self.offset_index.position_of(offset)
        self.open_window(&window, False, True, None, position)
        if not self.find(offset, &position, &header, &window):
            return None
        return position, LENGTH_OVERHEAD + header.batch_length, header.base_offset
