"""What the drivers share of the sans-I/O pipeline; see framing.pyx for the laws."""

from libc.stdint cimport uint8_t


cdef class Limits:
    cdef readonly Py_ssize_t request_bytes_max, unsent_bytes_max, memory_kept_max
    cdef readonly int open_replies_max, connections_max, connections_per_ip_max
    cdef readonly long long idle_ms_max
    cdef readonly dict connections_per_ip_overrides
    cdef readonly bint authenticate


cdef class Chunk:
    cdef uint8_t *data
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t view_from, view_length
    cdef object view(self, Py_ssize_t start, Py_ssize_t length)


cdef class Pool:
    cdef list shelves
    cdef Py_ssize_t kept, kept_max
    cdef Chunk take(self, Py_ssize_t size)
    cdef int give(self, Chunk chunk) except -1


cdef class Hub:
    cdef readonly object service
    cdef readonly Limits limits
    cdef readonly Pool pool
    cdef object on_request, on_flush
    cdef Chunk arena
    cdef Py_ssize_t arena_at, retired_bytes
    cdef list retired, active, closing, orphans
    cdef readonly bint in_pass
    cdef bint scheduled
    cdef readonly unsigned long long requests, passes, flushes, bytes_in, bytes_out
    cdef dict faults
    cpdef wake(self)
    cpdef begin(self)
    cpdef end(self)
    cdef int flush(self) except -1
    cdef int retire(self, Chunk chunk) except -1
    cdef int note(self, Connection connection) except -1
    cdef int send_all(self) except -1
    cdef int close_all(self) except -1
    cpdef fault(self, str site, error)


cdef class Reply:
    cdef readonly Connection connection
    cdef Reply following
    cdef object parts
    cdef Py_ssize_t size
    cdef bint answered, closes
    cdef object gone
    cpdef send(self, parts)
    cpdef skip(self)
    cpdef close(self, str reason)
    cdef int finish(self, Py_ssize_t size) except -1


cdef class Frames:
    cdef readonly Hub hub
    cdef Reply head, tail
    cdef Py_ssize_t head_sent
    cdef readonly Py_ssize_t unsent
    cdef readonly int open_replies
    cdef int pending
    cdef Chunk kept
    cdef Py_ssize_t kept_from, kept_to, copied, largest
    cdef bint in_kept, held, listed, settled, known
    cdef readonly bint closed, ended
    cdef readonly str reason
    cdef bint is_stalled(self) noexcept
    cdef bint wants_bytes(self) noexcept
    cdef uint8_t *target(self, Py_ssize_t *room) except NULL
    cdef uint8_t *target_kept(self, Py_ssize_t *room) except NULL
    cdef int received(self, Py_ssize_t n) except -1
    cdef Py_ssize_t parse(self, Chunk chunk, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int keep(self, Chunk chunk, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int release_kept(self) except -1
    cdef int resume(self) except -1
    cdef int refuse(self, const uint8_t *p, Py_ssize_t size) except -1
    cdef int skip_empty(self) except -1
    cpdef advance(self, Py_ssize_t n)
    cpdef eof(self)
    cdef int shut(self, str reason) except -1
    cdef int drop_replies(self) except -1


cdef class Connection(Frames):
    cdef readonly str peer_host, local_host, listener
    cdef readonly int peer_port, local_port
    cdef public bint authenticated
    cdef public object state
    cpdef transmit(self)
    cpdef settle(self)
    cpdef gone(self)
    cpdef close(self, str reason)
