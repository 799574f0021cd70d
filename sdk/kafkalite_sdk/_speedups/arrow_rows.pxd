"""Rows of an Arrow table that become records."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalite_sdk._speedups.arrow cimport ArrowArray


cdef struct ArrowColumn:
    # A column of any supported type; `form` 0 = the column does not exist.
    int form
    bint required             # nulls are rejected
    int32_t width             # of a value, for columns of fixed size
    int64_t multiplier        # of times, to ms; 0 = divide
    int64_t divisor
    int64_t offset            # of row 0 in the buffers
    const uint8_t *valid
    const uint8_t *offsets    # or the integers, or the views
    const uint8_t *data
    const void **buffers      # of views


cdef class ArrowRows:
    cdef ArrowArray array
    cdef readonly int64_t count
    cdef ArrowColumn key
    cdef ArrowColumn value
    cdef ArrowColumn partition
    cdef ArrowColumn timestamp
    cdef ArrowColumn headers
    cdef ArrowColumn header_key
    cdef ArrowColumn header_value
    cdef list memory          # of copied columns

    cdef ArrowRows kept(self)
    cdef int64_t check_row(self, int64_t row, int64_t number) except -1
    cdef int64_t header_range(self, int64_t row, int64_t *begin) noexcept nogil
    cdef Py_ssize_t headers_size(self, int64_t begin, int64_t count) noexcept nogil
    cdef uint8_t *put_headers(self, uint8_t *p, int64_t begin, int64_t count) noexcept nogil


cdef const uint8_t *bytes_at(const ArrowColumn *column, int64_t row, int64_t *size) noexcept nogil
cdef bint integer_at(const ArrowColumn *column, int64_t row, int64_t *value) noexcept nogil
