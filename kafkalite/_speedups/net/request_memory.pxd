"""The memory for requests; request_memory.pyx has the rules."""

from libc.stdint cimport uint8_t, uint32_t

cdef class RequestMemoryShare


cdef class RequestMemoryHolder:
    cdef readonly Py_ssize_t held_bytes
    cdef readonly RequestMemoryShare memory_share   # of its principal; None: there is no limit
    cdef readonly bint denied
    # Small types, for 100,000 idle connections. The byte counts wrap around; only their difference is used.
    cdef uint32_t received_bytes, progress_bytes
    cdef uint32_t progress_at  # in seconds
    cdef uint8_t held          # received requests are unparsed: the connection is stalled or out of time
    cdef bint may_receive(self) noexcept
    cdef Py_ssize_t missing_bytes(self) noexcept
    cdef bint is_awaited(self) noexcept
    cdef bint is_serving(self) noexcept
    cdef int memory_freed(self) except -1


cdef class PreferredFrame:
    cdef RequestMemoryHolder receiving   # may receive until its frame is complete
    cdef RequestMemoryHolder user        # its frame is complete, and in use or not parsed yet
    cdef object reply                    # of the frame in use
    cdef double since                    # when `receiving` was chosen
    cdef bint is_free(self) noexcept
    cdef int begin(self, RequestMemoryHolder holder, double now) except -1
    cdef int end(self) except -1
    cdef bint pin(self, RequestMemoryHolder holder, object reply) except -1
    cdef bint change(self, RequestMemoryHolder holder) except -1


cdef class RequestMemory:
    cdef readonly Py_ssize_t limit, guaranteed, held_bytes
    cdef set denied
    cdef Py_ssize_t held_at_search
    cdef bint search               # denied connections may be allowed although no memory is free since the last search
    cdef PreferredFrame first      # of any API key
    cdef PreferredFrame second     # of an awaited one, while the first is in use
    cdef list shares               # those that may have memory for connections which wait
    cdef bint has_space(self, RequestMemoryHolder holder) noexcept
    cdef bint is_preferred(self, RequestMemoryHolder holder) noexcept
    cdef bint allows(self, RequestMemoryHolder holder) noexcept
    cdef Py_ssize_t quota(self, RequestMemoryHolder holder) noexcept
    cdef int change(self, RequestMemoryHolder holder, Py_ssize_t held_bytes) except -1
    cdef int pin(self, RequestMemoryHolder holder, object reply) except -1
    cdef int unpin(self, object reply) except -1
    cdef bint deny(self, RequestMemoryHolder holder) except -1
    cdef int withdraw(self, RequestMemoryHolder holder) except -1
    cdef int forget(self, RequestMemoryHolder holder) except -1
    cdef int share_out(self, double now) except -1
    cdef int prefer(self, double now, list allowed) except -1
    cdef int list_share(self, RequestMemoryShare share) except -1
    cdef int release_shares(self, double now) except -1
    cdef str why_to_end(self, RequestMemoryHolder holder, double now)


cdef class RequestMemoryShare:
    cdef readonly Py_ssize_t limit, guaranteed, held_bytes
    cdef readonly int connections_count
    cdef dict waiting              # the denied connections in order, and whether a frame of each is incomplete
    cdef int incomplete            # how many of them have an incomplete frame
    cdef RequestMemoryHolder preferred
    cdef double preferred_since
    cdef RequestMemoryHolder served    # its preferred frame is complete and not answered
    cdef object on_full
    cdef bint listed
    cdef bint allows(self, RequestMemoryHolder holder) noexcept
    cdef Py_ssize_t quota(self, RequestMemoryHolder holder) noexcept
    cdef int change(self, RequestMemoryHolder holder, Py_ssize_t more) except -1
    cdef int deny(self, RequestMemoryHolder holder) except -1
    cdef bint withdraw(self, RequestMemoryHolder holder) except -1
    cdef int forget(self, RequestMemoryHolder holder) except -1
    cdef int allow(self, RequestMemoryHolder holder) except -1
    cdef int release(self, double now) except -1
    cdef int prefer(self, double now) except -1
