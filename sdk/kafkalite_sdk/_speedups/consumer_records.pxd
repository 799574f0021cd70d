"""Records of a consumer: light objects that read their fields from their batch."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t

from kafkalite._speedups.records.record_walk cimport RecordFields
from kafkalite._speedups.wire.wire cimport Span


cdef enum:
    BY_CREATE_TIME = 0                # TimestampType.java
    BY_LOG_APPEND_TIME = 1


cdef class RecordDecoder:
    cdef object key_deserializer
    cdef object value_deserializer
    cdef bint key_in_context          # it takes topic and headers, too
    cdef bint value_in_context
    cdef bint read_committed
    cdef bint check_crcs
    cdef int64_t decompressed_max
    cdef Py_ssize_t offload_bytes


cdef class RecordBatch:
    cdef RecordDecoder decoder
    cdef str topic
    cdef int32_t partition
    cdef bytes memory
    cdef const uint8_t *records
    cdef Py_ssize_t size
    cdef int64_t base_offset
    cdef int64_t base_timestamp
    cdef int64_t append_timestamp     # of all records, with LOG_APPEND_TIME
    cdef int32_t leader_epoch
    cdef int8_t timestamp_type


cdef class Record:
    cdef RecordBatch batch
    cdef object key_object
    cdef object value_object
    cdef tuple header_objects
    cdef readonly int64_t offset
    cdef uint32_t at                  # of the record in its batch
    cdef uint8_t flags

    cdef int fields(self, RecordFields *out) except -1
    cdef object deserialized(self, deserializer, bint in_context, bytes data, str field)


cdef str fault_text(int fault)
cdef bytes nullable(const uint8_t *at, int32_t size)
cdef tuple read_headers(Span span, int32_t count)
cdef int64_t timestamp_of(Record record, RecordFields *fields) noexcept
