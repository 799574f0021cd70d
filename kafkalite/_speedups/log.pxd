from cpython.buffer cimport Py_buffer
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkalite._speedups.file cimport File, iovec
from kafkalite._speedups.index cimport OffsetIndex, TimeIndex
from kafkalite._speedups.producers cimport ProducerState
from kafkalite._speedups.wire cimport BatchHeader

cdef enum:
    WINDOW_BYTES = 4096


cdef struct Window:
    # A piece of a file, so that the headers of small batches cost one system call together.
    int64_t start
    int64_t size
    uint8_t data[WINDOW_BYTES]


cdef struct Queued:
    Py_buffer view
    int64_t base_offset
    int64_t last_offset
    int64_t max_timestamp
    int32_t leader_epoch


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

    cdef int load(self) except -1
    cdef int note(self, const BatchHeader *header, int64_t last_offset, int64_t size, int64_t interval) except -1
    cdef int write_run(self, Queued *queue, int count, iovec *parts, int64_t interval) except -1
    cdef int find(self, int64_t offset, int64_t *position, BatchHeader *header) except -1
    cdef int64_t whole_until(self, int64_t limit, int64_t end_offset) except -1


cdef class LogCore:
    cdef public tuple segments               # replaced whole: readers keep the one they began with
    cdef public SegmentCore active
    cdef public int64_t log_start_offset
    cdef public int64_t recovery_point
    cdef public int64_t log_end_offset
    cdef readonly int64_t next_offset
    cdef readonly int64_t pending_bytes
    cdef readonly bint failed                # a failed write could not be taken back: nothing is appended any more
    cdef public ProducerState producers
    cdef public int64_t segment_bytes
    cdef public int64_t segment_ms
    cdef public int64_t index_interval_bytes
    cdef int32_t epoch
    cdef int64_t stamp
    cdef Queued *queue
    cdef iovec *parts
    cdef int count
    cdef int room

    cdef Queued *slot(self) except NULL
    cdef int release(self) except -1
    cdef int write_queued(self) except -1
    cdef int fitting(self, int first) noexcept
    cdef SegmentCore segment_of(self, int64_t offset)
