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
5. The connections of a principal with a limit have a *share*. They receive only while they hold less than the share,
   or a connection less than SHARE_GUARANTEED, so that small requests such as heartbeats are not delayed. The connection
   that waits longest with an incomplete frame is preferred within the share, so that a frame larger than the share is
   received, too; the next one is preferred when that frame is answered. Together they hold at most the share + one
   frame + SHARE_GUARANTEED per connection. Rule 3 is valid for the share.
6. The connection of rule 2 is not limited by its share: else it could wait for a connection that waits for it.
7. Memory of a share that is free again is for the connections that wait longest, and only for as many as it has memory
   for: the cost does not depend on how many wait.

Apache Kafka (SimpleMemoryPool) reserves memory for a whole frame before it reads it: incomplete frames can then block
all connections.
"""

from libc.stdint cimport uint32_t

cdef enum:
    PROGRESS_BYTES = 16 * 1024
    STALLED_S = 10
    PREFERRED_S = 30           # as request.timeout.ms of Kafka's clients
    SHARE_GUARANTEED = 4 * 1024
    GRANT_MIN = 16 * 1024      # what a connection that waited for a share is expected to receive


cdef class RequestMemoryHolder:
    """A connection, as far as request memory is concerned."""

    cdef bint may_receive(self) noexcept:
        """Whether the connection may receive if memory is free."""
        return False

    cdef Py_ssize_t missing_bytes(self) noexcept:
        """Missing bytes of the incomplete frame; 0 without one."""
        return 0

    cdef bint is_serving(self) noexcept:
        """Whether a request is not answered."""
        return False

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
        self.shares = []

    @property
    def denied_count(self):
        return len(self.denied)

    cdef bint has_space(self, RequestMemoryHolder holder) noexcept:
        """Whether a connection may receive by rule 1."""
        return holder.held_bytes < self.guaranteed or holder.held_bytes < self.limit - self.held_bytes

    cdef bint allows(self, RequestMemoryHolder holder) noexcept:
        if holder is self.preferred:
            return True
        return self.has_space(holder) and (holder.memory_share is None or holder.memory_share.allows(holder))

    cdef Py_ssize_t quota(self, RequestMemoryHolder holder) noexcept:
        """Limit in bytes of the next receive of an allowed connection."""
        cdef Py_ssize_t free
        if holder is self.preferred:
            return holder.missing_bytes() or self.guaranteed
        free = max(self.limit - self.held_bytes, self.guaranteed - holder.held_bytes)
        return free if holder.memory_share is None else min(free, holder.memory_share.quota(holder))

    cdef int change(self, RequestMemoryHolder holder, Py_ssize_t held_bytes) except -1:
        """Set the bytes that `holder` holds."""
        cdef Py_ssize_t more = held_bytes - holder.held_bytes
        self.held_bytes += more
        holder.held_bytes = held_bytes
        if holder is self.preferred and holder.missing_bytes() == 0:
            self.preferred = None
        if holder.memory_share is not None:
            holder.memory_share.change(holder, more)
            self.list_share(holder.memory_share)
        return 0

    cdef bint deny(self, RequestMemoryHolder holder) except -1:
        """Mark a connection as denied. Returns whether no other connection was denied by rule 1."""
        cdef bint first = not self.denied
        holder.denied = True
        if holder.memory_share is not None and not holder.memory_share.allows(holder):
            holder.memory_share.deny(holder)
            self.list_share(holder.memory_share)
            return False
        self.denied.add(holder)
        self.held_at_search = self.held_bytes + 1  # search again
        return first

    cdef int withdraw(self, RequestMemoryHolder holder) except -1:
        """The connection is no longer denied."""
        if holder.denied:
            holder.denied = False
            self.denied.discard(holder)
            if holder.memory_share is not None:
                holder.memory_share.withdraw(holder)
        return 0

    cdef int forget(self, RequestMemoryHolder holder) except -1:
        """The connection is closed."""
        self.change(holder, 0)
        self.withdraw(holder)
        if holder is self.preferred:
            self.preferred = None
        if holder.memory_share is not None:
            holder.memory_share.forget(holder)
            self.list_share(holder.memory_share)
            holder.memory_share = None
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
            if holder is self.preferred or self.has_space(holder):
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

    cdef int list_share(self, RequestMemoryShare share) except -1:
        """Look at a share at the end of the iteration: its free memory may have changed."""
        if share.waiting and not share.listed:
            share.listed = True
            self.shares.append(share)
        return 0

    cdef int release_shares(self, double now) except -1:
        """Allow connections that wait for their share to receive, as far as it has memory; `now` as in `share_out`."""
        cdef RequestMemoryShare share
        cdef list shares = self.shares
        self.shares = []
        for share in shares:
            share.listed = False
            share.release(now)
        return 0

    cdef str why_to_end(self, RequestMemoryHolder holder, double now):
        """The reason to close this connection by rule 3, or None. Called every few seconds; `now` as in `share_out`."""
        cdef RequestMemoryShare share = holder.memory_share
        cdef bint share_awaited = share is not None and share.waiting
        if holder.denied or not holder.missing_bytes() or (
            <uint32_t> (holder.received_bytes - holder.progress_bytes) >= PROGRESS_BYTES
        ):
            holder.progress_at = <uint32_t> now
            holder.progress_bytes = holder.received_bytes
        elif now - holder.progress_at > STALLED_S and (
            (self.denied and holder.held_bytes > self.guaranteed)
            or (share_awaited and holder.held_bytes > share.guaranteed)
        ):
            return "a frame did not arrive while other connections waited for memory"
        if (self.denied and holder is self.preferred and now - self.preferred_since > PREFERRED_S) or (
            share_awaited and holder is share.preferred and now - share.preferred_since > PREFERRED_S
        ):
            return "a large frame took too long while other connections waited for memory"
        return None


cdef class RequestMemoryShare:
    """The bytes that the connections of one principal may hold, over all hubs of a broker (rules 5 to 7).

    Arguments:
        limit: bytes of all its connections together; one frame and `guaranteed` per connection may be more.
        on_full: called when a first connection has to wait.
        guaranteed: bytes that each connection may hold whatever the others hold.
    """

    def __init__(self, Py_ssize_t limit, on_full, Py_ssize_t guaranteed=SHARE_GUARANTEED):
        if min(limit, guaranteed) < 1:
            raise ValueError(f"limit {limit} and guaranteed {guaranteed} must be positive")
        self.limit = limit
        self.on_full = on_full
        self.guaranteed = guaranteed
        self.waiting = {}

    @property
    def waiting_count(self):
        return len(self.waiting)

    def add(self, RequestMemoryHolder holder not None):
        """Count what a connection holds, until it is closed; one that is counted stays as it is."""
        if holder.memory_share is None:
            holder.memory_share = self
            self.held_bytes += holder.held_bytes
            self.connections_count += 1

    cdef bint allows(self, RequestMemoryHolder holder) noexcept:
        return self.held_bytes < self.limit or holder.held_bytes < self.guaranteed or holder is self.preferred

    cdef Py_ssize_t quota(self, RequestMemoryHolder holder) noexcept:
        """Limit in bytes of the next receive of an allowed connection."""
        if holder is self.preferred:
            return holder.missing_bytes() or self.guaranteed
        return max(self.limit - self.held_bytes, self.guaranteed - holder.held_bytes)

    cdef int change(self, RequestMemoryHolder holder, Py_ssize_t more) except -1:
        """A connection holds `more` bytes than before."""
        self.held_bytes += more
        if holder is self.preferred and holder.missing_bytes() == 0:
            self.preferred = None
            self.served = holder if holder.held_bytes >= self.guaranteed else None
        elif holder is self.served and more < 0:
            self.served = None
        if holder.denied and holder.held_bytes < self.guaranteed:
            self.allow(holder)
        return 0

    cdef int deny(self, RequestMemoryHolder holder) except -1:
        cdef bint first = not self.waiting and self.preferred is None and self.served is None
        cdef bint incomplete = holder.missing_bytes() > 0
        self.waiting[holder] = incomplete
        self.incomplete += incomplete
        if first:
            self.on_full()
        return 0

    cdef bint withdraw(self, RequestMemoryHolder holder) except -1:
        """Returns whether a connection has waited."""
        incomplete = self.waiting.pop(holder, None)
        if incomplete is None:
            return False
        self.incomplete -= incomplete
        return True

    cdef int forget(self, RequestMemoryHolder holder) except -1:
        self.connections_count -= 1
        if holder is self.preferred:
            self.preferred = None
        if holder is self.served:
            self.served = None
        return 0

    cdef int allow(self, RequestMemoryHolder holder) except -1:
        if self.withdraw(holder):
            holder.denied = False
            holder.memory_freed()
        return 0

    cdef int release(self, double now) except -1:
        """Allow connections that wait to receive, as far as memory is free."""
        cdef Py_ssize_t free = self.limit - self.held_bytes
        cdef RequestMemoryHolder holder
        cdef list allowed = []
        if self.preferred is not None and not self.preferred.may_receive():
            self.preferred = None
        if self.served is not None and (free > 0 or not self.served.is_serving()):
            self.served = None
        for holder in self.waiting:
            if free <= 0:
                break
            if holder.may_receive():
                free -= max(holder.missing_bytes(), GRANT_MIN)
            allowed.append(holder)
        for holder in allowed:
            self.allow(holder)
        if not allowed and self.incomplete and self.preferred is None and self.served is None:
            self.prefer(now)
        return 0

    cdef int prefer(self, double now) except -1:
        """Let the incomplete frame that waits longest be received whatever is free."""
        cdef RequestMemoryHolder holder
        for holder in self.waiting:
            if holder.missing_bytes() and holder.may_receive():
                self.preferred = holder
                self.preferred_since = now
                return self.allow(holder)
        return 0
