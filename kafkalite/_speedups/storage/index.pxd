from libc.stdint cimport int32_t, int64_t, uint8_t


cdef class Index:
    cdef uint8_t *data           # entries as in the file
    cdef readonly int count
    cdef readonly int entries_max
    cdef int capacity                # entries that `data` has memory for
    cdef readonly int entry_size
    cdef readonly int64_t base_offset
    cdef readonly int written    # entries that are in the file already

    cdef uint8_t *grow(self) except NULL
    cdef bint full(self, int spare) noexcept nogil
    cdef int fill(self, bytes data) except -1
    cdef int keep_first(self, int count) except -1


cdef class OffsetIndex(Index):
    cdef int64_t relative(self, int i) noexcept nogil
    cdef int64_t position(self, int i) noexcept nogil
    cdef int add(self, int64_t offset, int64_t position) except -1
    cdef int entry_of(self, int64_t offset) noexcept nogil
    cdef int64_t position_at(self, int i) noexcept nogil
    cdef int64_t position_of(self, int64_t offset) noexcept nogil
    cdef int64_t position_before(self, int64_t position) noexcept nogil
    cdef int64_t position_after(self, int64_t position) noexcept nogil


cdef class TimeIndex(Index):
    cdef int64_t timestamp(self, int i) noexcept nogil
    cdef int64_t relative(self, int i) noexcept nogil
    cdef int add(self, int64_t timestamp, int64_t offset) except -1
    cdef int64_t last_timestamp(self) noexcept nogil
    cdef int older_than(self, int64_t timestamp) noexcept nogil
