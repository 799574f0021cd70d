from libc.stdint cimport int32_t, int64_t, uint8_t


cdef class Builder:
    cdef uint8_t *at
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t size_max
    cdef readonly int32_t records_count
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef bytes packed
    cdef int32_t packed_count
    cdef int packed_codec

    cdef int reserve(self, Py_ssize_t n) except -1
    cdef int32_t add(self, int64_t timestamp, key, value, headers) except -2
    cdef bytes assembled(self, int codec, level)


cdef bytes as_bytes(value)
cdef tuple frozen_headers(headers)


cdef int32_t add_record(
    Builder b, int64_t timestamp,
    const char *key, Py_ssize_t key_size, const char *value, Py_ssize_t value_size, headers,
) except -2


cdef uint8_t *begin_record(
    Builder b, int64_t timestamp,
    const char *key, Py_ssize_t key_size, const char *value, Py_ssize_t value_size,
    Py_ssize_t headers_count, Py_ssize_t headers_size,
) except? NULL
