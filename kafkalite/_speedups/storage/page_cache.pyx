"""Reads batch headers without waiting for the disk, and reports which bytes a job must read into the page cache first.

1. A reader that must not wait for the disk gets CACHE_MISS, and nothing was read then.
2. A header that is returned is valid by itself: its batch ends below the limit, and its offsets cannot overflow.
   Only its neighbours and the CRC show whether it is intact (`damaged_headers`).
"""

from libc.stdint cimport INT64_MAX, int64_t

cimport cython

from kafkalite._speedups.storage.file cimport NOT_RESIDENT, RESIDENCE_UNKNOWN, File
from kafkalite._speedups.wire.wire cimport HEADER_SIZE, LENGTH_OVERHEAD, BatchHeader, read_batch_header

cdef enum:
    READ_AHEAD_MERGED_BYTES = 16 << 20   # a retry includes the bytes read ahead before it up to this size
    READ_AHEAD_ATTEMPTS = 8              # where pages are dropped as fast as they are read: then the read waits
cdef int64_t OFFSET_MAX = <int64_t> 1 << 62


@cython.final
cdef class PageCacheMiss:
    """Bytes that a job must read into the page cache before the loop can read on.

    Attributes:
        segment: the segment that was read.
        file: its file; None: the job must load the segment first.
        offset: the first offset that was wanted.
        position, size: the bytes to read ahead; position -1: where the loaded index finds `offset`.
        attempts: how many misses in this segment the same reader had before.
    """

    def __init__(self, segment not None, File file, int64_t offset, int64_t position, int64_t size, int attempts=0):
        self.segment = segment
        self.file = file
        self.offset = offset
        self.position = position
        self.size = size
        self.attempts = attempts

    def __repr__(self):
        return f"PageCacheMiss({self.file!r}, {self.position}, {self.size}, attempts={self.attempts})"

    cdef bint covers(self, int64_t position, int64_t size) noexcept:
        return self.position <= position and position + size <= self.position + self.size

    cdef bint is_last(self) noexcept:
        """Whether this miss was the last one of its reader: the next read waits for the disk."""
        return self.attempts >= READ_AHEAD_ATTEMPTS

    def at_position(self, int64_t position):
        """This miss, after a job has loaded the segment and read the bytes from `position` on."""
        return PageCacheMiss(self.segment, self.segment.file, self.offset, position, self.size, self.attempts)


@cython.final
@cython.freelist(16)
cdef class ReadAttempt:
    """One attempt to read from a log; after a page-cache miss the reader makes another one.

    Arguments:
        offset: the first offset wanted.
        max_bytes: bound on the bytes of the batches; a negative one counts as 0.
        end_offset: only batches that end below it are returned.
        min_one: whether the first batch is returned even if it is larger than `max_bytes` (KIP-74).
        wait: whether the read may wait for the disk; then it has no page-cache miss.
        read_ahead: the miss of the previous attempt, after a job has read its bytes; None at the first attempt.
    """

    def __init__(self, int64_t offset, int64_t max_bytes=0, int64_t end_offset=INT64_MAX, *,
                 bint min_one=True, bint wait=False, PageCacheMiss read_ahead=None):
        self.offset = offset
        self.max_bytes = max(max_bytes, <int64_t> 0)
        self.end_offset = end_offset
        self.min_one = min_one
        self.wait = wait
        self.read_ahead = read_ahead

    cdef ReadAttempt until(self, int64_t end_offset):
        """The same attempt up to an earlier end offset."""
        return ReadAttempt(
            self.offset, self.max_bytes, end_offset, min_one=self.min_one, wait=self.wait, read_ahead=self.read_ahead
        )

    cpdef PageCacheMiss miss_of_unloaded(self, object segment, int64_t offset, int64_t size):
        """The miss of a reader that found the segment unloaded; None if this reader loads it itself.

        Arguments:
            offset: where the job reads `size` bytes after it has loaded the segment.
        """
        cdef PageCacheMiss before = self.read_ahead_of(segment)
        cdef int attempts = 0 if before is None else before.attempts + 1
        if self.wait or attempts >= READ_AHEAD_ATTEMPTS:
            return None
        return PageCacheMiss(segment, None, offset, -1, size, attempts)

    cdef PageCacheMiss miss_at(self, object segment, File file, int64_t segment_size, int64_t position, int64_t size):
        """The miss of a reader that stopped at `position` of a loaded segment."""
        cdef PageCacheMiss before = self.read_ahead_of(segment)
        cdef int64_t end = position + min(size, max(segment_size - position, <int64_t> 1))
        if before is not None and before.covers(position - 1, 1) and end - before.position <= READ_AHEAD_MERGED_BYTES:
            end = max(end, before.position + before.size)
            position = before.position
        return PageCacheMiss(
            segment, file, self.offset, position, end - position, 0 if before is None else before.attempts + 1
        )

    cdef PageCacheMiss read_ahead_of(self, object segment):
        """Return the miss whose bytes a job has read ahead in this segment for this reader, or None."""
        return self.read_ahead if self.read_ahead is not None and self.read_ahead.segment is segment else None


cdef int open_window(Window *window, ReadAttempt attempt, object segment, int64_t position, bint recent) except -1:
    """Prepare to read headers from `position` on.

    Arguments:
        attempt: the attempt that reads; None for a reader that may wait for the disk.
        recent: whether this process wrote the bytes lately.
    """
    cdef PageCacheMiss before
    window.start = window.size = 0
    window.read_ahead_from = window.read_ahead_to = 0
    window.wait = attempt is None or attempt.wait
    window.recent = recent
    if window.wait or attempt.read_ahead is None:
        return 0
    before = attempt.read_ahead_of(segment)
    if before is not None:
        window.read_ahead_from = before.position
        window.read_ahead_to = before.position + before.size
        window.wait = before.is_last()
    return 0


cdef int fill(File file, Window *window, int64_t position, int64_t wanted) except -1:
    """Read a piece of the file into the window. Returns 0, or CACHE_MISS if its first header is not in the cache."""
    cdef Py_ssize_t got = RESIDENCE_UNKNOWN
    if not window.wait:
        got = file.read_now(window.data, wanted, position)
        if got == RESIDENCE_UNKNOWN:
            if not window.recent and not window.read_ahead_from <= position < window.read_ahead_to:
                return CACHE_MISS
        elif got == NOT_RESIDENT or got < min(wanted, <int64_t> HEADER_SIZE):
            return CACHE_MISS
    if got == RESIDENCE_UNKNOWN:
        got = file.read_into(window.data, wanted, position)
    window.size = got
    window.start = position
    return 0


cdef int header_at(File file, Window *window, int64_t position, int64_t limit, BatchHeader *out) except -1:
    """Read the header of the batch at `position`: FOUND, NO_BATCH if no whole batch ends below `limit`, CACHE_MISS."""
    cdef int64_t at = position - window.start
    if limit - position < HEADER_SIZE:
        return NO_BATCH
    if at < 0 or at + HEADER_SIZE > window.size:
        if fill(file, window, position, min(<int64_t> WINDOW_BYTES, limit - position)) == CACHE_MISS:
            return CACHE_MISS
        at = 0
    if read_batch_header(window.data + at, window.size - at, out) < 0:
        return NO_BATCH
    if out.batch_length < HEADER_SIZE - LENGTH_OVERHEAD or out.batch_length > limit - position - LENGTH_OVERHEAD:
        return NO_BATCH
    return out.magic == 2 and out.last_offset_delta >= 0 and 0 <= out.base_offset <= OFFSET_MAX
