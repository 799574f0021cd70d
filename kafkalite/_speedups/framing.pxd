"""The pipeline of one connection; see framing.pyx for the laws."""

from libc.stdint cimport uint8_t

from kafkalite._speedups.passes cimport Chunk, Hub, Limits, Visited


cdef enum:
    QUICK_KEYS = 128           # api keys that a Quick can name


cdef class Reply:
    cdef readonly Connection connection
    cdef Reply following
    cdef object parts
    cdef Py_ssize_t size, request_size
    cdef bint answered, closes
    cdef object gone
    cpdef send(self, parts)
    cpdef skip(self)
    cpdef close(self, str reason)
    cdef int finish(self, Py_ssize_t size) except -1


cdef class Quick:
    cdef uint8_t[QUICK_KEYS] takes
    cdef bytes answer(self, Connection connection, const uint8_t *frame, Py_ssize_t size)


cdef class Frames(Visited):
    cdef Reply head, tail
    cdef Py_ssize_t head_sent
    cdef readonly Py_ssize_t unsent, requests_bytes
    cdef Py_ssize_t counted    # of requests_bytes, in those of the hub
    cdef readonly int open_replies
    cdef int pending
    cdef Chunk kept
    cdef Py_ssize_t kept_from, kept_to, copied, largest
    cdef bint in_kept, held
    cdef readonly bint ended
    cdef bint is_stalled(self) noexcept
    cdef bint wants_bytes(self) noexcept
    cdef uint8_t *target(self, Py_ssize_t *room) except NULL
    cdef uint8_t *target_kept(self, Py_ssize_t *room) except NULL
    cdef int received(self, Py_ssize_t n) except -1
    cdef Py_ssize_t parse(self, Chunk chunk, Py_ssize_t start, Py_ssize_t end) except -1
    cdef bint answered_quickly(self, Reply reply, const uint8_t *frame, Py_ssize_t size) except -1
    cdef int keep(self, Chunk chunk, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int release_kept(self) except -1
    cdef int refuse(self, const uint8_t *p, Py_ssize_t size) except -1
    cdef int skip_empty(self) except -1
    cpdef advance(self, Py_ssize_t n)
    cpdef eof(self)


cdef class Connection(Frames):
    cdef readonly str peer_host, local_host, listener
    cdef readonly int peer_port, local_port
    cdef public bint authenticated
    cdef public object state
    cdef object remembered     # what the hub's Quick wants to know when the next request comes
