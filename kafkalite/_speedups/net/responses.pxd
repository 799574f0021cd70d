"""Replies; see responses.pyx."""

from kafkalite._speedups.net.loop cimport ConnectionBase

cdef enum:
    SIZE_BYTES = 4             # length in front of a frame


cdef class RespondingConnection(ConnectionBase):
    cdef readonly Py_ssize_t unsent, requests_bytes
    cdef Py_ssize_t pinned_bytes   # of pinned frames, and bytes charged by a driver
    cdef int pending               # unanswered requests
    cdef int paused                # requests in slices: no other request is parsed meanwhile


cdef class Reply:
    cdef readonly RespondingConnection connection
    cdef Reply following
    cdef object parts
    cdef Py_ssize_t size
    cdef readonly Py_ssize_t request_size
    cdef bint answered, closes
    cdef bint pins             # its frame is in use, and counts as request memory
    cdef bint released         # the service has released its frame
    cdef bint in_work          # its response is computed in slices
    cdef object gone
    cpdef send(self, parts)
    cpdef skip(self)
    cpdef close(self, str reason)
    cpdef pause(self)
    cpdef resume(self, bint pinned)
    cpdef release_frame(self)
    cdef int unpin(self) except -1
    cdef int finish(self, Py_ssize_t size) except -1
