"""Framing of one connection; framing.pyx has the rules."""

from libc.stdint cimport uint8_t, uint32_t

from kafkalite._speedups.net.loop cimport KEYS_MAX, Chunk, Hub, Limits
from kafkalite._speedups.net.responses cimport RespondingConnection, Reply


cdef class FrameInterceptor:
    cdef uint8_t[KEYS_MAX] takes
    cdef bytes answer(self, Connection connection, const uint8_t *frame, Py_ssize_t size)


cdef class Frames(RespondingConnection):
    cdef Reply head, tail
    cdef Py_ssize_t head_sent
    cdef public double active_at   # of the loop's clock, in seconds
    cdef uint32_t late_run         # the low bits of `Hub.runs`
    cdef readonly int open_replies
    cdef Chunk kept
    cdef uint32_t kept_from, kept_to, copied, largest
    cdef uint8_t in_kept
    cdef readonly bint ended    # nothing more is received
    cdef readonly bint hung_up  # the peer sends no more
    cdef bint is_stalled(self) noexcept
    cdef Py_ssize_t smallest_frame(self) noexcept
    cdef Py_ssize_t largest_frame(self) noexcept
    cdef bint wants_bytes(self) noexcept
    cdef int recount(self, bint received) except -1
    cdef Py_ssize_t quota(self) noexcept
    cdef uint8_t *target(self, Py_ssize_t *capacity) except NULL
    cdef uint8_t *target_kept(self, Py_ssize_t *capacity) except NULL
    cdef int received(self, Py_ssize_t n) except -1
    cdef Py_ssize_t parse(self, Chunk chunk, Py_ssize_t start, Py_ssize_t end) except -1
    cdef bint answered_quickly(self, Reply reply, const uint8_t *frame, Py_ssize_t size) except -1
    cdef int keep(self, Chunk chunk, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int release_kept(self) except -1
    cdef int end_where_delayed(self) except -1
    cdef int refuse(self, const uint8_t *p, Py_ssize_t size) except -1
    cdef int skip_empty(self) except -1
    cpdef advance(self, Py_ssize_t n)
    cpdef eof(self)
    cpdef hang_up(self)
    cpdef drain(self)
    cpdef str overdue(self, double now, double idle_s, double half_closed_s, bint blocked)


cdef class Connection(Frames):
    cdef readonly str peer_host, local_host, listener
    cdef readonly int peer_port, local_port
    cdef public bint authenticated
    cdef public object state, principal, decisions
