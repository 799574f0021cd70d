"""Shares the memory for requests (`queued.max.request.bytes`) between connections.

The limits of one connection (unsent bytes, open responses, bytes of its requests) are those of `framing`.
A connection *holds* the bytes of requests whose frame is in use and of its incomplete frame. It is *denied* while its
socket has unread bytes that may not be received. Rules:

1. A connection may receive while it holds less than `guaranteed` bytes, or less than the free bytes (`limit` minus all
   held bytes). So N connections with unlimited input hold about limit / (N + 1) each, and as much is free for one more.
   This is the dynamic threshold of Choudhury and Hahne (1998) for switches that share a buffer.
2. Incomplete frames must not wait for each other: the *preferred* frame is received whatever memory is free. It is
   that of the denied connection whose frame misses the fewest bytes. The next frame is preferred when this one is not
   in use any more: Produce uses its frame until its batches are written, not until other replicas have them.
   A frame may be in use until other brokers have answered (a batch waits for the transaction coordinator). So while it
   is, a second frame may be preferred, if its API key is one of `Service.awaited`, such as the Fetch of a follower:
   else brokers could wait for each other. Such a request does not use its frame while it waits.
3. While connections are denied, a connection is closed if its incomplete frame exceeds `guaranteed` and has received
   less than PROGRESS_BYTES in STALLED_S, or if its frame was preferred and incomplete for PREFERRED_S.
4. All connections together hold at most limit + one frame + `guaranteed` and one receive per connection; and one more
   frame of an awaited key, while the preferred one is in use after its loop iteration.
5. The connections of a principal with a limit have a *share*. They receive only while they hold less than the share,
   or a connection less than SHARE_GUARANTEED, so that small requests such as heartbeats are not delayed. The connection
   that waits longest with an incomplete frame is preferred within the share, so that a frame larger than the share is
   received, too; the next one is preferred when that frame is not in use any more. Together they hold at most the share
   + one frame + SHARE_GUARANTEED per connection. Rule 3 is valid for the share.
6. The connections of rule 2 are not limited by their shares: else one could wait for a connection that waits for it.
7. Memory of a share that is free again is for the connections that wait longest, and only for as many as it has memory
   for: the cost does not depend on how many wait.

Apache Kafka (SimpleMemoryPool) reserves memory for a whole frame before it reads it: incomplete frames can then block
all connections. It releases the frame of a Produce when the handler returns (KafkaRequestHandler), as here, but also
those of batches that wait for the transaction coordinator, whose memory is in use.
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

    cdef bint is_awaited(self) noexcept:
        """Whether requests whose frames are in use may wait for the request of the incomplete frame."""
        return False

    cdef bint is_serving(self) noexcept:
        """Whether a request is not answered."""
        return False

    cdef int memory_freed(self) except -1:
        """A denied connection may receive again."""
        return 0


cdef class PreferredFrame:
    """A frame that is received whatever memory is free, until its memory is free again (rule 2)."""

    cdef bint is_free(self) noexcept:
        return self.receiving is None and self.user is None

    cdef int begin(self, RequestMemoryHolder holder, double now) except -1:
        self.receiving = holder
        self.since = now
        return 0

    cdef int end(self) except -1:
        self.receiving = self.user = self.reply = None
        return 0

    cdef bint pin(self, RequestMemoryHolder holder, object reply) except -1:
        """The handler has returned and uses the frame further. Returns whether it is this one."""
        if self.reply is not None or (holder is not self.receiving and holder is not self.user):
            return False
        self.receiving = None
        self.user = holder
        self.reply = reply
        return True

    cdef bint change(self, RequestMemoryHolder holder) except -1:
        """The bytes of a connection have changed. Returns whether the frame is not in use any more."""
        if holder is self.receiving and holder.missing_bytes() == 0:
            self.receiving = None
            self.user = holder
        if holder is not self.user or self.reply is not None or holder.held:
            return False
        self.end()
        return True


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
        self.first = PreferredFrame()
        self.second = PreferredFrame()

    @property
    def denied_count(self):
        return len(self.denied)

    cdef bint has_space(self, RequestMemoryHolder holder) noexcept:
        """Whether a connection may receive by rule 1."""
        return holder.held_bytes < self.guaranteed or holder.held_bytes < self.limit - self.held_bytes

    cdef bint is_preferred(self, RequestMemoryHolder holder) noexcept:
        """Whether a connection may receive by rule 2."""
        return holder is self.first.receiving or holder is self.second.receiving

    cdef bint allows(self, RequestMemoryHolder holder) noexcept:
        if self.has_space(holder) and (holder.memory_share is None or holder.memory_share.allows(holder)):
            return True
        return self.is_preferred(holder)

    cdef Py_ssize_t quota(self, RequestMemoryHolder holder) noexcept:
        """Limit in bytes of the next receive of an allowed connection."""
        cdef Py_ssize_t free
        if self.is_preferred(holder):
            return holder.missing_bytes() or self.guaranteed
        free = max(self.limit - self.held_bytes, self.guaranteed - holder.held_bytes)
        return free if holder.memory_share is None else min(free, holder.memory_share.quota(holder))

    cdef int change(self, RequestMemoryHolder holder, Py_ssize_t held_bytes) except -1:
        """Set the bytes that `holder` holds."""
        cdef Py_ssize_t more = held_bytes - holder.held_bytes
        self.held_bytes += more
        holder.held_bytes = held_bytes
        if self.first.change(holder) or self.second.change(holder) or (more < 0 and holder.denied):
            self.search = True
        if holder.memory_share is not None:
            holder.memory_share.change(holder, more)
            self.list_share(holder.memory_share)
        return 0

    cdef int pin(self, RequestMemoryHolder holder, object reply) except -1:
        """A handler has returned and uses the frame of its request further."""
        if not self.first.pin(holder, reply):
            self.second.pin(holder, reply)
        return 0

    cdef int unpin(self, object reply) except -1:
        """The frame of a request that was pinned is not in use any more."""
        if reply is self.first.reply:
            self.first.end()
            self.search = True
        elif reply is self.second.reply:
            self.second.end()
            self.search = True
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
        self.search = True
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
        cdef PreferredFrame frame
        self.change(holder, 0)
        self.withdraw(holder)
        for frame in (self.first, self.second):
            if holder is frame.receiving or holder is frame.user:
                frame.end()
                self.search = True
        if holder.memory_share is not None:
            holder.memory_share.forget(holder)
            self.list_share(holder.memory_share)
            holder.memory_share = None
        return 0

    cdef int share_out(self, double now) except -1:
        """Allow denied connections to receive as far as memory is free; `now` in seconds of a monotonic clock."""
        cdef RequestMemoryHolder holder
        cdef PreferredFrame frame
        for frame in (self.first, self.second):
            if frame.receiving is not None and not frame.receiving.may_receive():
                frame.end()
                self.search = True
        if self.held_bytes >= self.held_at_search and not self.search:
            return 0
        self.held_at_search = self.held_bytes
        self.search = False
        allowed = [holder for holder in self.denied if self.has_space(holder) or self.is_preferred(holder)]
        self.prefer(now, allowed)
        for holder in allowed:
            holder.denied = False
            self.denied.discard(holder)
            holder.memory_freed()
        return 0

    cdef int prefer(self, double now, list allowed) except -1:
        """Let the next incomplete frame be received by rule 2, and add its connection to `allowed`."""
        cdef RequestMemoryHolder holder, nearest = None
        cdef bint any_key = self.first.is_free()
        cdef PreferredFrame frame = self.first if any_key else self.second
        if not frame.is_free():
            return 0
        for holder in self.denied:
            if self.has_space(holder) or not holder.missing_bytes() or not (any_key or holder.is_awaited()):
                continue
            if not holder.may_receive():
                self.search = True  # it may later
            elif nearest is None or holder.missing_bytes() < nearest.missing_bytes():
                nearest = holder
        if nearest is not None:
            frame.begin(nearest, now)
            allowed.append(nearest)
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
        cdef double since
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
        if self.denied and self.is_preferred(holder):
            since = self.first.since if holder is self.first.receiving else self.second.since
        elif share_awaited and holder is share.preferred:
            since = share.preferred_since
        else:
            return None
        if now - since > PREFERRED_S:
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
