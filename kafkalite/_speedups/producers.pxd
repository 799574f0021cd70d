from libc.stdint cimport int16_t, int32_t, int64_t

from kafkalite._speedups.wire cimport BatchHeader

cdef enum:
    BATCHES_KEPT = 5
    NEW_BATCH = -1               # the verdict of `judge`: in order, to be appended


cdef struct SeenBatch:
    int32_t last_sequence
    int32_t offset_delta
    int64_t last_offset
    int64_t timestamp


cdef class Producer:
    cdef readonly int64_t producer_id
    cdef readonly int16_t epoch
    cdef public int32_t coordinator_epoch
    cdef public int64_t first_offset_of_transaction
    cdef readonly int64_t last_timestamp
    cdef SeenBatch batches[BATCHES_KEPT]
    cdef int count
    cdef int64_t appended_ms      # when `expire` first saw its last batch; -1 = not yet

    cdef Producer copy(self)
    cdef int64_t duplicate(self, const BatchHeader *header) noexcept nogil
    cdef int note(self, const BatchHeader *header, int64_t base_offset) noexcept nogil


cdef class ProducerState:
    cdef readonly dict entries
    cdef dict undo
    cdef readonly int64_t duplicates

    cdef int64_t judge(self, const BatchHeader *header) except? -1000
    cdef int note(self, const BatchHeader *header, int64_t base_offset) except -1
