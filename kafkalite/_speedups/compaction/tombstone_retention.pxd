from libc.stdint cimport int16_t, int64_t

from kafkalite._speedups.wire.wire cimport BatchHeader


cdef struct LastRecord:
    int64_t producer_id
    int64_t last_offset        # of its last data batch, -1: none is known
    int16_t epoch


cdef class RetentionRules:
    cdef readonly int64_t now_ms
    cdef readonly int64_t horizon_ms        # of tombstones first seen now
    cdef readonly int64_t upper_offset
    cdef LastRecord *last
    cdef int last_count

    cdef bint at_horizon(self, const BatchHeader *header) noexcept nogil
    cdef bint is_last(self, const BatchHeader *header) noexcept nogil
