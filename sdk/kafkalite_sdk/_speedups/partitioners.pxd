"""Hashes that map a key to a partition."""

from libc.stdint cimport uint8_t, uint32_t


cdef uint32_t murmur2_of(const uint8_t *p, Py_ssize_t n) noexcept nogil
