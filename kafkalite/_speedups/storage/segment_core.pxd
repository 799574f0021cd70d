from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t

from kafkalite._speedups.storage.file cimport File, iovec
from kafkalite._speedups.storage.index cimport OffsetIndex, TimeIndex
from kafkalite._speedups.storage.page_cache cimport PageCacheMiss, ReadAttempt, Window
from kafkalite._speedups.wire.wire cimport BatchHeader


cdef struct Queued:
    Py_buffer view
    int64_t base_offset
    int64_t last_offset
    int64_t max_timestamp
    int32_t leader_epoch


cdef class BatchLocation:
    cdef readonly int64_t position
    cdef readonly int64_t size
    cdef readonly int64_t base_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t max_timestamp
    cdef readonly int32_t leader_epoch


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
    cdef public int64_t used                 # sequence number of the last read, for the segment cache
    cdef public int64_t written_from         # this process wrote the bytes from this position on
    cdef public bint closed                  # nothing is appended any more

    cdef int load(self) except -1
    cdef int note(self, const BatchHeader *header, int64_t last_offset, int64_t size, int64_t interval) except -1
    cdef int write_run(self, Queued *queue, int count, iovec *parts, int64_t interval) except -1
    cdef bint is_recent(self, int64_t position) noexcept
    cdef PageCacheMiss miss_at(self, ReadAttempt attempt, int64_t position, int64_t size)
    cdef object read(self, ReadAttempt attempt, int64_t bound)
    cdef object read_failure(self, int found, ReadAttempt attempt, int64_t position, int64_t size)
    cdef object region(self, ReadAttempt attempt, int64_t position, int64_t end, Window *window)
    cdef int find(
        self, int64_t offset, ReadAttempt attempt, int64_t *position, BatchHeader *header, Window *window
    ) except -1
    cdef int find_damaged(
        self, int64_t offset, int64_t bound, int64_t *position, BatchHeader *header, Window *window
    ) except -1
    cdef int whole_until(self, int64_t limit, int64_t end_offset, int64_t *end, Window *window) except -1
    cdef int confirm_end(self, int64_t end, int64_t bound, const BatchHeader *header, Window *window) except -1
    cdef object look_for_time(self, int64_t timestamp, ReadAttempt attempt, bint trust_indexes)
    cdef int skip_damage(self, int64_t *position, BatchHeader *header, Window *window) except -1
