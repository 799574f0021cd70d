from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalite._speedups.storage.file cimport iovec
from kafkalite._speedups.storage.producer_state cimport EndMarker, ProducerState
from kafkalite._speedups.storage.segment_reader cimport PageCacheMiss, Queued, SegmentCore
from kafkalite._speedups.storage.header_window cimport Window
from kafkalite._speedups.wire.wire cimport BatchHeader


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
    cdef int written                         # how many of the queue are in the file while `write` is under way

    cdef int64_t judge_producer(
        self, const uint8_t *p, int64_t size, const BatchHeader *header, EndMarker *marker, bint client
    ) except? -1000
    cdef Queued *slot(self) except NULL
    cdef int release(self) except -1
    cdef int write_queued(self) except -1
    cdef int fitting(self, int first) noexcept
    cdef SegmentCore segment_of(self, int64_t offset)
    cdef object one_batch(
        self, SegmentCore segment, int64_t position, const BatchHeader *header, Window *window, PageCacheMiss brought
    )
    cdef int ends_there(self, SegmentCore segment, int64_t end, const BatchHeader *header, Window *window) except -1
    cdef int64_t end_of_segment(self, SegmentCore segment) except -1
    cdef object region_of(self, SegmentCore segment, int64_t position, int64_t end, Window *window,
                          PageCacheMiss brought)
