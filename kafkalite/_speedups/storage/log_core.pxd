from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalite._speedups.storage.file cimport iovec
from kafkalite._speedups.storage.producer_state cimport EndMarker, ProducerState, Verification
from kafkalite._speedups.storage.segment_core cimport Queued, SegmentCore
from kafkalite._speedups.wire.wire cimport BatchHeader


cdef class LogCore:
    cdef public tuple segments               # replaced as a whole: readers keep the tuple that they began with
    cdef public SegmentCore active
    cdef public int64_t log_start_offset
    cdef public int64_t recovery_point
    cdef public int64_t log_end_offset
    cdef public int64_t high_watermark       # for the checkpoint, assigned by the role of the partition; -1: none
    cdef readonly int64_t next_offset
    cdef readonly int64_t pending_bytes
    cdef readonly bint failed                # a failed write could not be undone: all appends are rejected
    cdef bint held                           # a job changes the files
    cdef bint blocked                        # failed or held
    cdef public ProducerState producers
    cdef public int64_t segment_bytes
    cdef public int64_t segment_ms
    cdef public int64_t index_interval_bytes
    cdef int32_t epoch
    cdef int64_t reads                       # sequence number of the last read of a segment
    cdef Queued *queue
    cdef iovec *parts
    cdef int count
    cdef int capacity
    cdef int written                         # queued batches that are in the file while `write` runs
    cdef bint in_append                      # the next slot has a buffer, and the producers may have its batch

    cdef int64_t refusal(self) except? -1000
    cdef int queue_replicated(self, Queued *slot, const BatchHeader *header) except -1
    cdef int64_t check_producer(
        self,
        const uint8_t *p,
        int64_t size,
        const BatchHeader *header,
        EndMarker *marker,
        bint client,
        Verification verification,
        int marker_version,
    ) except? -1000
    cdef Queued *slot(self) except NULL
    cdef int release(self) except -1
    cdef int write_queued(self) except -1
    cdef int give_up(self, error) except -1
    cdef Py_ssize_t index_of(self, int64_t offset)
    cpdef int64_t end_of_segment(self, SegmentCore segment) except -1
