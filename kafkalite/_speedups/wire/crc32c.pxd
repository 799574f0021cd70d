from libc.stdint cimport uint8_t, uint32_t


cdef uint32_t crc32c(const uint8_t *p, size_t n) noexcept nogil
cdef uint32_t crc32c_more(uint32_t crc, const uint8_t *p, size_t n) noexcept nogil  # crc: of the bytes before
