"""The output of compaction."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalite._speedups.compaction.input cimport Buffer
from kafkalite._speedups.storage.segment_core cimport SegmentCore
from kafkalite._speedups.wire.wire cimport BatchHeader


cdef struct Kept:
    # The retained records of a batch.
    int32_t count
    bint all
    bint tombstones
    bint to_horizon            # it gets a delete horizon
    int64_t max_timestamp
    int64_t horizon_ms


cdef class Output:
    cdef int64_t capacity
    cdef Buffer ready          # whole batches
    cdef Buffer moved          # records with other timestamp deltas

    cdef int begin(self) except -1
    cdef bint full(self) noexcept nogil
    cdef uint8_t *emit(self, const uint8_t *header, const uint8_t *records, int64_t size) noexcept nogil
    cdef int put_whole(self, const uint8_t *batch, int64_t size) noexcept nogil
    cdef int put_part(self, const uint8_t *batch, const BatchHeader *header, const uint8_t *records, int64_t size,
                      const Kept *kept) noexcept nogil
    cdef int put_empty(self, const uint8_t *batch, const BatchHeader *header) noexcept nogil
    cdef Buffer *move_timestamps(self, const BatchHeader *header, const Buffer *plain, const Kept *kept) noexcept nogil
    cdef int64_t write_pending(self, SegmentCore target, int64_t interval) except -1
