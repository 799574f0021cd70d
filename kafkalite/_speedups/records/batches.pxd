from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from kafkalite._speedups.records.record_walk cimport RecordFields
from kafkalite._speedups.wire.held_buffer cimport HeldBuffer
from kafkalite._speedups.wire.wire cimport BatchHeader, Span


cdef class Record:
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly bytes key
    cdef readonly bytes value
    cdef readonly tuple headers


cdef class Batch:
    cdef HeldBuffer held
    cdef object plain               # bytes of the decompressed records, once they were needed
    cdef readonly Py_ssize_t position
    cdef readonly Py_ssize_t size
    cdef readonly int64_t decompressed_max
    cdef readonly int64_t base_offset
    cdef readonly int32_t leader_epoch
    cdef readonly uint32_t crc
    cdef readonly int16_t attributes
    cdef readonly int32_t last_offset_delta
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef readonly int32_t base_sequence
    cdef readonly int32_t records_count

    cdef void fill(self, const BatchHeader *header) noexcept
    cdef int open(self, Span *span) except -1
    cdef Record make(self, const RecordFields *fields)


cdef class Records:
    cdef Batch batch
    cdef Span span
    cdef int32_t left
