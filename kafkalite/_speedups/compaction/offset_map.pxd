from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef struct Digest:
    uint64_t low
    uint64_t high


cdef struct Entry:
    Digest digest
    int64_t after              # the offset plus one; 0: an empty slot


cdef class OffsetMap:
    cdef Entry *entries
    cdef uint64_t secret[2]
    cdef readonly int64_t slots_max
    cdef readonly int64_t slots
    cdef readonly int64_t capacity
    cdef readonly int64_t count
    cdef readonly double load_factor
    cdef public int64_t latest_offset

    cdef Digest digest(self, const uint8_t *key, Py_ssize_t size) noexcept nogil
    cdef Entry *home(self, const Digest *digest) noexcept nogil
    cdef Entry *seek(self, const Digest *digest) noexcept nogil
    cdef bint note(self, const Digest *digest, int64_t offset) noexcept nogil
    cdef int64_t offset_of(self, const Digest *digest) noexcept nogil
