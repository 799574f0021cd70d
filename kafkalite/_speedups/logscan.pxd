"""What other Cython modules may call of the scan: CRC-32C in C, without the GIL."""

from libc.stdint cimport uint8_t, uint32_t


cdef uint32_t crc32c(const uint8_t *p, size_t n) noexcept nogil
