from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalite._speedups.wire.wire cimport BatchHeader


cdef class ReplicatedAppend:
    cdef readonly int64_t next_offset
    cdef readonly int count
    cdef readonly int64_t size
    cdef readonly int error
    cdef readonly int64_t offset
    cdef readonly str reason
    cdef readonly int64_t restart_offset
    cdef int64_t lowest                      # base offset that the first batch may have: below the end of an empty log
    cdef int32_t epoch

    cdef ReplicatedAppend rejected(self, int error, int64_t offset, str reason)
    cdef int64_t next_batch(self, const uint8_t *p, int64_t left, BatchHeader *header) except -1
    cdef str violation(self, const uint8_t *p, int64_t size, const BatchHeader *header)
    cdef bint goes_back(self, const BatchHeader *header) noexcept
