"""Appends records to the columns of a batch."""

from libc.stdint cimport int32_t, int64_t

from kafkalite._speedups.wire.wire cimport Span
from kafkalite_sdk._speedups.column_batch cimport ColumnMemory
from kafkalite_sdk._speedups.consumer_records cimport Record

cdef enum:
    # Why `append_records` has returned before the end of the batch; above 0 it is a RecordFault.
    COLUMNS_FULL = -1
    COLUMNS_END = -2          # the next record is at or behind `end`
    COLUMNS_NO_MEMORY = -3
    COLUMNS_TIME = -4         # the next record has a time that the unit cannot represent: `time_ms`


cdef struct RecordCursor:
    # The unread records of a batch; `append_records` advances it behind the records that it has read.
    Span span
    int32_t left
    int64_t base_offset
    int64_t last_offset
    int64_t before            # offset of the record before; each next one is larger
    int64_t position          # records below it are skipped
    int64_t end               # records from here on are not read
    int64_t base_timestamp
    int64_t append_timestamp
    int32_t timestamp_type
    int64_t time_ms           # of the record that COLUMNS_TIME is about


cdef class ColumnBuilder:
    cdef ColumnMemory *memory
    cdef tuple columns
    cdef bint microseconds
    cdef Py_ssize_t rows_max
    cdef readonly Py_ssize_t bytes_max
    cdef Py_ssize_t rows_capacity
    cdef Py_ssize_t row_bytes         # of the columns of fixed size
    cdef Py_ssize_t values_before     # size of the values of the batch before
    cdef bint lines                   # the values are lines
    cdef bint with_keys
    cdef bytes separator              # between the key and the value of a line
    cdef bytes line_end

    cdef bint is_full(self) noexcept nogil
    cdef object time_error(self, str topic, int32_t partition, int64_t offset, int64_t time_ms)
    cdef int expect(self, Py_ssize_t bytes_left) except -1
    cdef int append_records(self, RecordCursor *cursor, str topic, int32_t partition) except? -9
