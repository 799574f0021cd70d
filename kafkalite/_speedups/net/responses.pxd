"""Answers to requests; see replies.pyx."""

from kafkalite._speedups.net.loop cimport ConnectionBase

cdef enum:
    SIZE_BYTES = 4             # every frame begins with its length


cdef class RespondingConnection(ConnectionBase):
    cdef readonly Py_ssize_t unsent, requests_bytes
    cdef Py_ssize_t pinned_bytes   # of requests that pin their frame, and those that a driver charges
    cdef int pending               # requests that are not answered
    cdef int paused                # requests that are decoded or served in slices: no other one is parsed meanwhile


cdef class Reply:
    cdef readonly RespondingConnection connection
    cdef Reply following
    cdef object parts
    cdef Py_ssize_t size, request_size
    cdef bint answered, closes
    cdef bint pins             # its frame is needed until it is answered
    cdef bint in_work          # its answer is computed in slices
    cdef object gone
    cpdef send(self, parts)
    cpdef skip(self)
    cpdef close(self, str reason)
    cpdef pause(self)
    cpdef resume(self, bint pinned)
    cdef int finish(self, Py_ssize_t size) except -1
