"""Shares the memory for requests (`queued.max.request.bytes`) between connections.

The limits of one connection (unsent bytes, open responses, bytes of its requests) are those of `framing`.
A connection *holds* the bytes of requests whose frame is in use and of its incomplete frame. It is *denied* while its
socket has unread bytes that may not be received. Rules:

1. A connection may receive while it holds less than `guaranteed` bytes, or less than the free bytes (`limit` minus all
   held bytes). So N connections with unlimited input hold about limit / (N + 1) each, and as much is free for one more.
   This is the dynamic threshold of Choudhury and Hahne (1998) for switches that share a buffer.
2. Incomplete frames must not wait for each other: the *preferred* connection may receive until its frame is complete.
   It is the denied connection whose frame misses the fewest bytes.
3. While connections are denied, a connection is closed if its incomplete frame exceeds `guaranteed` and has received
   less than PROGRESS_BYTES in STALLED_S, or if it was preferred for PREFERRED_S.
4. All connections together hold at most limit + one frame + `guaranteed` and one receive per connection.

Apache Kafka (SimpleMemoryPool) reserves memory for a whole frame before it reads it: incomplete frames can then block
all connections.
"""

from libc.stdint cimport uint32_t

cdef enum:
    PROGRESS_BYTES = 16 * 1024
    STALLED_S = 10
    PREFERRED_S = 30           # as request.timeout.ms of Kafka's clients


cdef class RequestMemoryHolder:
    """A connection, as far as request memory is concerned."""

    cdef bint may_receive(self) noexcept:
        """Whether the connection may receive if memory is free."""
        return False

    cdef Py_ssize_t missing_bytes(self) noexcept:
        """Missing bytes of the incomplete frame; 0 without one."""
        return 0

    cdef int memory_freed(self) except -1:
        """A denied connection may receive again."""
        return 0


cdef class RequestMemory:
    """The bytes that all connections of a hub hold.

    Arguments:
        limit: bytes of all connections together, rule 4.
        guaranteed: bytes that each connection may hold whatever the others hold.
    """

    def __init__(self, Py_ssize_t limit, Py_ssize_t guaranteed):
        self.limit = limit
        self.guaranteed = guaranteed
        self.denied = set()

    @property
    def denied_count(self):
        return len(self.denied)

    cdef bint allows(self, RequestMemoryHolder holder) noexcept:
        if holder.held_bytes < self.guaranteed or holder.held_bytes < self.limit - self.held_bytes:
            return True
        return holder is self.preferred

    cdef Py_ssize_t quota(self, RequestMemoryHolder holder) noexcept:
        """Limit in bytes of the next receive of an allowed connection."""
        cdef Py_ssize_t free = self.limit - self.held_bytes
        if holder is self.preferred:
            return holder.missing_bytes() or self.guaranteed
        return max(free, self.guaranteed - holder.held_bytes)

    cdef int change(self, RequestMemoryHolder holder, Py_ssize_t held_bytes) except -1:
        """Set the bytes that `holder` holds."""
        self.held_bytes += held_bytes - holder.held_bytes
        holder.held_bytes = held_bytes
        if holder is self.preferred and holder.missing_bytes() == 0:
            self.preferred = None
        return 0

    cdef bint deny(self, RequestMemoryHolder holder) except -1:
        """Mark a connection as denied. Returns whether no other connection was denied."""
        cdef bint first = not self.denied
        holder.denied = True
        self.denied.add(holder)
        self.held_at_search = self.held_bytes + 1  # search again
        return first

    cdef int withdraw(self, RequestMemoryHolder holder) except -1:
        """The connection is no longer denied."""
        if holder.denied:
            holder.denied = False
            self.denied.discard(holder)
        return 0

    cdef int forget(self, RequestMemoryHolder holder) except -1:
        """The connection is closed."""
        self.change(holder, 0)
        self.withdraw(holder)
        if holder is self.preferred:
            self.preferred = None
        return 0

    cdef int share_out(self, double now) except -1:
        """Allow denied connections to receive as far as memory is free; `now` in seconds of a monotonic clock."""
        cdef RequestMemoryHolder holder, nearest = None
        if self.preferred is not None and not self.preferred.may_receive():
            self.preferred = None
        if self.held_bytes >= self.held_at_search and self.preferred is not None:
            return 0
        self.held_at_search = self.held_bytes
        allowed = []
        for holder in self.denied:
            if self.allows(holder):
                allowed.append(holder)
            elif holder.missing_bytes() and holder.may_receive():
                if nearest is None or holder.missing_bytes() < nearest.missing_bytes():
                    nearest = holder
        if self.preferred is None and nearest is not None:
            self.preferred = nearest
            self.preferred_since = now
            allowed.append(nearest)
        for holder in allowed:
            holder.denied = False
            self.denied.discard(holder)
            holder.memory_freed()
        return 0

    cdef str why_to_end(self, RequestMemoryHolder holder, double now):
        """The reason to close this connection by rule 3, or None. Called every few seconds; `now` as in `share_out`."""
        if holder.denied or not holder.missing_bytes() or (
            <uint32_t> (holder.received_bytes - holder.progress_bytes) >= PROGRESS_BYTES
        ):
            holder.progress_at = <uint32_t> now
            holder.progress_bytes = holder.received_bytes
        elif self.denied and holder.held_bytes > self.guaranteed and now - holder.progress_at > STALLED_S:
            return "a frame did not arrive while other connections waited for memory"
        if self.denied and holder is self.preferred and now - self.preferred_since > PREFERRED_S:
            return "a large frame took too long while other connections waited for memory"
        return None
