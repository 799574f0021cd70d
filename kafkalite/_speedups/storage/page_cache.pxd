from libc.stdint cimport int64_t, uint8_t

from kafkalite._speedups.storage.file cimport File
from kafkalite._speedups.wire.wire cimport LENGTH_OVERHEAD, BatchHeader

cdef enum:
    WINDOW_BYTES = 4096
    # Results of a search for a batch.
    NO_BATCH = 0
    FOUND = 1
    CACHE_MISS = 2                 # the next bytes are not in the page cache
    INCONSISTENT = 3               # the header contradicts its index entry or the header before it
    DAMAGED = 4                    # the batch with the wanted offset is damaged
    READ_AHEAD_BYTES = 4 << 20     # largest amount that is read ahead and returned at once, unless one batch is larger
    READ_AHEAD_SLACK = 64 << 10    # from the index entry to the batch, and from there beyond the last header


cdef struct Window:
    # A piece of a file: one system call reads the headers of many small batches.
    int64_t start
    int64_t size
    bint wait                      # reads may wait for the disk
    bint recent                    # written lately: in the page cache, also if the file system does not know
    int64_t read_ahead_from        # a job has just read the bytes between these two
    int64_t read_ahead_to
    uint8_t data[WINDOW_BYTES]


cdef class PageCacheMiss:
    cdef readonly object segment
    cdef readonly File file
    cdef readonly int64_t offset
    cdef readonly int64_t position
    cdef readonly int64_t size
    cdef readonly int attempts

    cdef bint covers(self, int64_t position, int64_t size) noexcept
    cdef bint is_last(self) noexcept


cdef class ReadAttempt:
    cdef readonly int64_t offset
    cdef readonly int64_t max_bytes
    cdef readonly int64_t end_offset
    cdef readonly bint min_one
    cdef readonly bint wait
    cdef readonly PageCacheMiss read_ahead

    cdef ReadAttempt until(self, int64_t end_offset)
    cpdef PageCacheMiss miss_of_unloaded(self, object segment, int64_t offset, int64_t size)
    cdef PageCacheMiss miss_at(self, object segment, File file, int64_t segment_size, int64_t position, int64_t size)
    cdef PageCacheMiss read_ahead_of(self, object segment)


cdef int open_window(Window *window, ReadAttempt attempt, object segment, int64_t position, bint recent) except -1
cdef int fill(File file, Window *window, int64_t position, int64_t wanted) except -1
cdef int header_at(File file, Window *window, int64_t position, int64_t limit, BatchHeader *out) except -1


cdef inline int64_t last_offset_of(const BatchHeader *header) noexcept:
    return header.base_offset + header.last_offset_delta


cdef inline int64_t end_position(int64_t position, const BatchHeader *header) noexcept:
    return position + LENGTH_OVERHEAD + header.batch_length
