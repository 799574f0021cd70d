"""Batches of records that a producer sends, and one awaitable per record."""

from libc.stdint cimport int32_t, int64_t

from kafkalite._speedups.records.batch_builder cimport Builder


cdef class ProducerBatch:
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly double created_s
    cdef readonly Builder builder
    cdef readonly int32_t records_count
    cdef readonly object error
    cdef readonly int64_t base_offset
    cdef readonly bint done
    cdef readonly int32_t observed
    cdef public int32_t base_sequence
    cdef public bint in_doubt
    cdef public bint compressing
    cdef public object queue          # the PartitionQueue that it was opened for; None = none
    cdef int64_t log_append_time_ms
    cdef list awaited
    cdef list parts
    cdef int32_t parts_open
    cdef ProducerBatch whole
    cdef object loop

    cdef int add(self, FutureRecordMetadata future, int64_t timestamp_ms, key, value, headers) except -1
    cdef int adopt(self, FutureRecordMetadata future, int64_t timestamp_ms) except -1
    cdef ProducerBatch root(self)
    cdef int32_t first_index(self) except -1
    cdef int divide(self, list parts) except -1
    cdef int complete(self) except -1


cdef int64_t open_records(ProducerBatch batch) noexcept


cdef class FutureRecordMetadata:
    cdef ProducerBatch batch
    cdef object callbacks
    cdef int64_t timestamp_ms
    cdef int32_t index
    cdef int32_t more                 # records behind the first one that it stands for
    cdef bint blocking
    cdef bint is_cancelled
    cdef bint is_observed

    cdef bint is_done(self) noexcept
    cdef int observe(self) except -1
    cdef object outcome(self)
    cdef int run_callbacks(self) except -1


cdef class RecordMetadata:
    cdef bint appended                # the timestamp is the time of the append
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ms
