from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t

from kafkalite._speedups.storage.file cimport File, iovec
from kafkalite._speedups.storage.index cimport OffsetIndex, TimeIndex
from kafkalite._speedups.storage.header_window cimport Window
from kafkalite._speedups.wire.wire cimport BatchHeader

cdef enum:
    COLD_BYTES = 4 << 20      # brought in and answered at once at most, unless one batch is larger
    COLD_SLACK = 64 << 10     # from the index entry to the batch, and from there behind the last header


cdef struct Queued:
    Py_buffer view
    int64_t base_offset
    int64_t last_offset
    int64_t max_timestamp
    int32_t leader_epoch


cdef class PageCacheMiss


cdef class SegmentCore:
    cdef readonly int64_t base_offset
    cdef public File file                    # None while a closed segment is unloaded
    cdef public OffsetIndex offset_index
    cdef public TimeIndex time_index
    cdef public int64_t size
    cdef public int64_t max_timestamp        # -1: no batch yet
    cdef public int64_t max_timestamp_offset
    cdef public int64_t first_timestamp
    cdef public int64_t bytes_since_index
    cdef public int64_t created_ms
    cdef public int64_t used                 # stamp of the last look-up, for the cache
    cdef public int64_t written_from         # from here on this process wrote the bytes itself

    cdef int load(self) except -1
    cdef int note(self, const BatchHeader *header, int64_t last_offset, int64_t size, int64_t interval) except -1
    cdef int write_run(self, Queued *queue, int count, iovec *parts, int64_t interval) except -1
    cdef int open_window(self, Window *window, bint active, bint wait, PageCacheMiss brought,
                         int64_t position) except -1
    cdef int find(self, int64_t offset, int entry, int64_t *position, BatchHeader *header, Window *window) except -1
    cdef int resolve_doubt(
        self, int64_t offset, int64_t bound, int64_t *position, BatchHeader *header, Window *window
    ) except -1
    cdef int whole_until(self, int64_t limit, int64_t end_offset, int64_t *end, Window *window) except -1
    cdef object look_for_time(self, int64_t timestamp, int64_t wanted, bint wait, PageCacheMiss brought, bint believe)
    cdef int skip(self, int64_t *position, BatchHeader *header, Window *window) except -1


cdef class PageCacheMiss:
    cdef readonly SegmentCore segment
    cdef readonly File file                  # None: the segment is to be opened
    cdef readonly int64_t offset             # what is looked for
    cdef readonly int64_t position           # what is to be brought in; -1 = where the index says
    cdef readonly int64_t size
    cdef readonly int attempts               # how often this reader was told Cold of this segment before

    cdef bint holds(self, int64_t position, int64_t size) noexcept


cdef object closed(SegmentCore segment, int64_t offset, int64_t size, PageCacheMiss brought)
cdef PageCacheMiss cold_at(SegmentCore segment, int64_t offset, int64_t position, int64_t size, PageCacheMiss brought)
