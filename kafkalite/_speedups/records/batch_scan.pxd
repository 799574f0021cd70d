"""What other Cython modules may call of the scan."""

from libc.stdint cimport uint8_t

from kafkalite._speedups.wire.wire cimport BatchHeader


cdef class Scan:
    cdef BatchHeader *headers       # `count` of them
    cdef Py_ssize_t *positions      # where each batch begins in the buffer
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t end
    cdef readonly Py_ssize_t needs
    cdef readonly int error
    cdef readonly str message

    cdef int add(self, const BatchHeader *header, Py_ssize_t position) except -1


cdef Scan scan(const uint8_t *p, Py_ssize_t size, Py_ssize_t position, Py_ssize_t batches_max)
