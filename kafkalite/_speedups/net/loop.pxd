"""Iterations of a service; loop.pyx has the rules."""

from libc.stdint cimport uint8_t

from kafkalite._speedups.net.request_memory cimport RequestMemoryHolder, RequestMemory

cdef enum:
    FRAME_BYTES_MIN = 8        # API key, version, correlation id: the shortest request
    ARENA_BYTES = 256 * 1024
    ARENA_LOW = 32 * 1024      # with less free memory the arena is reused from its start
    RETIRED_MAX = 256 * 1024   # bytes of single frames that are kept until the end of an iteration
    SHELVES = 40
    KEYS_MAX = 128             # API keys below this one can be intercepted or pinning


cdef class Limits:
    cdef readonly Py_ssize_t request_bytes_max, requests_bytes_max, all_requests_bytes_max, unsent_bytes_max
    cdef readonly Py_ssize_t guaranteed_bytes
    cdef readonly long long connection_budget_ns, iteration_budget_ns
    cdef readonly Py_ssize_t memory_kept_max
    cdef readonly int open_replies_max, connections_max, connections_per_ip_max
    cdef readonly long long idle_ms_max
    cdef readonly dict connections_per_ip_overrides
    cdef readonly bint authenticate
    cdef readonly Py_ssize_t login_bytes_max


cdef class Chunk:
    cdef uint8_t *data
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t view_from, view_length
    cdef object view(self, Py_ssize_t start, Py_ssize_t length)


cdef class Pool:
    cdef list shelves
    cdef Py_ssize_t kept_max
    cdef readonly Py_ssize_t kept            # bytes of all chunks
    cdef Py_ssize_t[SHELVES] unused          # the fewest chunks of each shelf since the last `free_unused`
    cdef Chunk take(self, Py_ssize_t size)
    cdef int give(self, Chunk chunk) except -1


cdef class Hub:
    cdef readonly object service
    cdef readonly Limits limits
    cdef readonly Pool pool
    cdef object on_request, on_write_pending
    cdef object quick          # a framing.FrameInterceptor, or None
    cdef Chunk arena
    cdef Py_ssize_t arena_at, retired_bytes
    cdef list retired, active, deferred, closing, orphans
    cdef object clock
    cdef long long now_ns, deadline_ns, began_ns, spent_ns, share_ns
    cdef public bint several_iterations
    cdef unsigned long long runs
    cdef uint8_t[KEYS_MAX + 1] pinning, awaited   # the last entry is for all larger keys
    cdef readonly bint in_iteration
    cdef bint scheduled
    cdef readonly unsigned long long requests, iterations, flushes, bytes_in, bytes_out
    cdef readonly long long handled_ns
    cdef readonly RequestMemory memory
    cdef dict faults
    cdef int look(self) except -1
    cdef int handled(self) except -1
    cdef int share(self, Py_ssize_t count) noexcept
    cdef int order_visits(self) except -1
    cdef int defer(self, ConnectionBase connection) except -1
    cdef int deny(self, ConnectionBase connection) except -1
    cpdef wake(self)
    cpdef begin(self)
    cpdef end(self)
    cdef int write_pending(self) except -1
    cdef int retire(self, Chunk chunk) except -1
    cdef int note(self, ConnectionBase connection) except -1
    cdef int send_all(self) except -1
    cdef int close_all(self) except -1
    cpdef fault(self, str site, error)


cdef class ConnectionBase(RequestMemoryHolder):
    cdef readonly Hub hub
    cdef readonly bint closed
    cdef uint8_t listed, finalized, known
    cdef readonly str reason
    cdef int resume(self) except -1
    cdef int drop_replies(self) except -1
    cdef int shut(self, str reason) except -1
    cpdef transmit(self)
    cpdef update_interest(self)
    cpdef gone(self)
    cpdef close(self, str reason)
