"""Splits received bytes into request frames and queues the responses in the order of the requests, without I/O.

Three drivers use this module: `net/epoll`, `net.transport` and `net.memory_transport`; its pure twin is in
`tests/oracles`. Rules:

1. A frame passed to the service is valid until the service's `write_pending()` returns. Its memory is not freed while
   a view of it exists, but it is overwritten: code that keeps a frame copies it.
2. A connection owns memory only for bytes that it could not parse yet; this memory grows with the received bytes.
3. Responses are sent in the order of their requests, in whatever order they are completed.
4. `backpressure` decides when nothing is received or parsed, `request_memory` has the rules for the memory of requests.
   Before authentication a frame has at most `login_bytes_max`, and one of SASL without a Kafka header may be shorter
   than a request.
5. A connection that has used up its time budget keeps its received bytes and continues in a later loop iteration
   (`loop`).
6. An exception of the service closes the connection that it was raised for.
7. After the peer has closed its side, received requests are still answered unless they are delayed. The first missing
   response at the end of an iteration closes the connection, whatever the request waits for (records, other group
   members, a job), because the peer has most likely closed both sides. Exceptions are a request that pins its frame,
   or has released it, and has not set `on_gone` (Produce), and one that is served in slices
   (`Reply.in_progress`). Apache Kafka (Selector.close) answers no request after the end of the stream. Such a
   connection does not wait for memory, so that the end of its stream is received.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from kafkalite._speedups.net.backpressure cimport exceeds_limits, has_memory
from kafkalite._speedups.net.loop cimport (
    ARENA_BYTES, ARENA_LOW, FRAME_BYTES_MIN, KEYS_MAX, RETIRED_MAX, Chunk, Hub,
)
from kafkalite._speedups.net.responses cimport SIZE_BYTES, RespondingConnection, Reply
from kafkalite._speedups.wire.wire cimport load_u16, load_u32

from kafkalite._speedups.net import loop, responses

# A cimported name is no attribute of the module: these are, for Python.
globals().update(Hub=loop.Hub, Limits=loop.Limits, Service=loop.Service, Reply=responses.Reply)

cdef enum:
    MERGE_MAX = 4 * 1024       # a tail up to this size is copied back into the arena
    QUICK_LOOKS = 16           # intercepted requests between two readings of the clock


cdef class FrameInterceptor:
    """Answers simple requests of a few API keys before they are dispatched."""

    cdef bytes answer(self, Connection connection, const uint8_t *frame, Py_ssize_t size):
        """The response without its size; None = the request is dispatched, and nothing has changed."""
        return None


cdef class Frames(RespondingConnection):
    """The receive buffer, the open requests and the unsent responses of one connection."""

    @property
    def stalled(self):
        """Whether nothing may be received: a bound is exceeded, memory is missing, or the connection is closing."""
        return not self.wants_bytes()

    @property
    def receiving(self):
        """Whether a driver waits for readable bytes; without memory for them it does so until some have arrived."""
        return self.may_receive() and not self.denied

    def wait_for_memory(self):
        """Bytes have arrived: if only memory is missing, visit this connection again when memory is free."""
        if self.may_receive() and not self.wants_bytes() and not self.denied:
            self.hub.deny(self)

    @property
    def kept_bytes(self):
        """Bytes of memory that this connection owns for unparsed bytes."""
        return self.kept.size if self.kept is not None else 0

    cdef bint is_stalled(self) noexcept:
        return exceeds_limits(self, self.open_replies, (<Connection> self).authenticated)

    cdef Py_ssize_t smallest_frame(self) noexcept:
        # A message of SASL without a Kafka header may have one byte.
        return FRAME_BYTES_MIN if (<Connection> self).authenticated else 1

    cdef Py_ssize_t largest_frame(self) noexcept:
        cdef Limits limits = self.hub.limits
        if (<Connection> self).authenticated:
            return limits.request_bytes_max
        return min(limits.request_bytes_max, limits.login_bytes_max)

    cdef bint may_receive(self) noexcept:
        if self.closed or self.ended or self.held or self.reason is not None:
            return False
        return not self.is_stalled()

    cdef bint wants_bytes(self) noexcept:
        return self.may_receive() and has_memory(self, self.hung_up)

    cdef Py_ssize_t missing_bytes(self) noexcept:
        cdef Py_ssize_t have = self.kept_to - self.kept_from
        if self.kept is None or self.held:
            return 0
        if have < SIZE_BYTES:
            return SIZE_BYTES
        return SIZE_BYTES + <Py_ssize_t> load_u32(self.kept.data + self.kept_from) - have

    cdef bint is_awaited(self) noexcept:
        cdef Py_ssize_t have = self.kept_to - self.kept_from
        if self.kept is None or self.held or have < SIZE_BYTES + 2:
            return False
        return self.hub.awaited[min(load_u16(self.kept.data + self.kept_from + SIZE_BYTES), <uint16_t> KEYS_MAX)]

    cdef int recount(self, bint received) except -1:
        """Update the bytes of this connection in the shared request memory, after it has `received` some or not."""
        cdef Py_ssize_t held = self.pinned_bytes
        if self.kept is not None:
            held += self.kept_to
        # With a share it may not have used what it was allowed, or have ended without a change of the bytes.
        if held != self.held_bytes or (
            self.memory_share is not None and (received or self is self.memory_share.preferred)
        ):
            self.hub.memory.change(self, held)
        return 0

    cdef uint8_t *target(self, Py_ssize_t *capacity) except NULL:
        """Address and capacity of the next receive. Called only while `wants_bytes()`."""
        cdef Hub hub = self.hub
        cdef Py_ssize_t have
        if hub.retired_bytes >= RETIRED_MAX or ARENA_BYTES - hub.arena_at < ARENA_LOW:
            hub.write_pending()
        self.in_kept = False
        self.copied = 0
        if self.kept is not None:
            have = self.kept_to - self.kept_from
            if have > MERGE_MAX:
                return self.target_kept(capacity)
            # A short tail is copied in front of the next bytes, so that one receive can fill the arena.
            memcpy(hub.arena.data + hub.arena_at, self.kept.data + self.kept_from, have)
            self.copied = have
        capacity[0] = min(ARENA_BYTES - hub.arena_at - self.copied, self.quota())
        return hub.arena.data + hub.arena_at + self.copied

    cdef Py_ssize_t quota(self) noexcept:
        return ARENA_BYTES if self.hung_up else self.hub.memory.quota(self)

    cdef uint8_t *target_kept(self, Py_ssize_t *capacity) except NULL:
        # The kept bytes begin with an incomplete frame: the rest is received behind them, in memory that doubles.
        cdef Py_ssize_t have = self.kept_to - self.kept_from
        cdef Py_ssize_t whole = SIZE_BYTES + <Py_ssize_t> load_u32(self.kept.data + self.kept_from)
        cdef Chunk larger
        if self.kept_to == self.kept.size:
            larger = self.hub.pool.take(min(whole, max(2 * have, self.largest)))
            memcpy(larger.data, self.kept.data + self.kept_from, have)
            self.hub.pool.give(self.kept)
            self.kept = larger
            self.kept_from = 0
            self.kept_to = have
        capacity[0] = min(min(whole - have, self.kept.size - self.kept_to), self.quota())
        if capacity[0] <= 0:
            raise RuntimeError("a whole frame is not parsed yet: nothing may be received")
        self.in_kept = True
        return self.kept.data + self.kept_to

    cdef int received(self, Py_ssize_t n) except -1:
        """`n` bytes were received at `target()`. Passes every whole frame to the service."""
        cdef Hub hub = self.hub
        cdef Py_ssize_t start, end, at
        cdef Chunk chunk
        hub.bytes_in += n
        self.received_bytes += n
        if self.denied:
            hub.memory.withdraw(self)  # drivers with an inbox receive from it whenever memory is free
        if self.in_kept:
            chunk = self.kept
            start = self.kept_from
            end = self.kept_to + n
            self.kept_to = end
            if end - start < SIZE_BYTES + <Py_ssize_t> load_u32(chunk.data + start):
                return self.recount(True)
            self.kept = None
            hub.retire(chunk)
        else:
            chunk = hub.arena
            start = hub.arena_at
            end = start + self.copied + n
            hub.arena_at = end
            if self.copied:
                self.release_kept()
        at = self.parse(chunk, start, end)
        if at < end and not self.closed:
            self.keep(chunk, at, end)
        return self.recount(True)

    cdef Py_ssize_t parse(self, Chunk chunk, Py_ssize_t start, Py_ssize_t end) except -1:
        cdef Hub hub = self.hub
        cdef Connection connection = <Connection> self
        cdef Reply reply
        cdef Py_ssize_t size
        cdef uint16_t key
        cdef long long until_ns = min(hub.now_ns + hub.share_ns, hub.deadline_ns)
        hub.note(connection)
        self.held = False
        while end - start >= SIZE_BYTES and not self.closed:
            size = <int32_t> load_u32(chunk.data + start)
            if size < self.smallest_frame() or size > self.largest_frame():
                self.refuse(chunk.data + start, size)
                return end
            if end - start - SIZE_BYTES < size:
                break
            if hub.now_ns >= until_ns:
                self.held = True
                self.late_run = <uint32_t> hub.runs
                break
            if self.is_stalled():
                self.held = True
                break
            reply = Reply(connection)
            if self.head is None:
                self.head = reply
            else:
                self.tail.following = reply
            self.tail = reply
            self.open_replies += 1
            self.pending += 1
            reply.request_size = size
            self.requests_bytes += size
            hub.requests += 1
            if size > self.largest:
                self.largest = size
            try:
                if hub.quick is None or not self.answered_quickly(reply, chunk.data + start + SIZE_BYTES, size):
                    hub.on_request(reply, chunk.view(start + SIZE_BYTES, size))
                    hub.handled()
                elif hub.requests % QUICK_LOOKS == 0:
                    hub.look()
            except Exception as error:
                hub.fault("request", error)
                self.shut("internal error")
            if not reply.answered and not self.closed:
                key = load_u16(chunk.data + start + SIZE_BYTES) if size >= FRAME_BYTES_MIN else KEYS_MAX
                if not reply.released and (hub.pinning[min(key, <uint16_t> KEYS_MAX)] or self.paused):
                    reply.pins = True
                    self.pinned_bytes += size
                    hub.memory.pin(self, reply)
            start += SIZE_BYTES + size
            if self.reason is not None:
                return end  # Reply.close: later requests are not served
        return start

    cdef bint answered_quickly(self, Reply reply, const uint8_t *frame, Py_ssize_t size) except -1:
        cdef FrameInterceptor quick = <FrameInterceptor> self.hub.quick
        cdef Connection connection = <Connection> self
        cdef uint16_t key
        cdef bytes parts
        if not connection.authenticated:
            return False
        key = load_u16(frame)
        if key >= KEYS_MAX or not quick.takes[key]:
            return False
        parts = quick.answer(connection, frame, size)
        if parts is None:
            return False
        reply.parts = parts
        reply.finish(PyBytes_GET_SIZE(parts) + SIZE_BYTES)
        return True

    cdef int keep(self, Chunk chunk, Py_ssize_t start, Py_ssize_t end) except -1:
        # The next bytes are received behind a long tail, so that its memory has twice its size.
        cdef Py_ssize_t have = end - start
        cdef Py_ssize_t size = have
        if have > MERGE_MAX and not self.held:
            size = min(SIZE_BYTES + <Py_ssize_t> load_u32(chunk.data + start), max(2 * have, self.largest))
        cdef Chunk kept = self.hub.pool.take(size)
        memcpy(kept.data, chunk.data + start, have)
        self.kept = kept
        self.kept_from = 0
        self.kept_to = have
        return 0

    cdef int release_kept(self) except -1:
        cdef Chunk chunk = self.kept
        self.kept = None
        if chunk is not None:
            self.hub.pool.give(chunk)
        return 0

    cdef int resume(self) except -1:
        """Continue with the bytes kept while the connection was stalled or out of time."""
        cdef Chunk chunk = self.kept
        cdef Py_ssize_t at
        self.recount(False)
        if self.held and not self.closed and chunk is not None and not self.is_stalled():
            if self.late_run == <uint32_t> self.hub.runs:
                return self.hub.defer(self)
            at = self.parse(chunk, self.kept_from, self.kept_to)
            if self.closed:
                return 0
            if self.held:
                self.kept_from = at
            else:
                self.kept = None
                self.hub.retire(chunk)
                if at < self.kept_to and not self.ended:
                    self.keep(chunk, at, self.kept_to)
                if self.ended and self.head is None:
                    self.shut("end of stream")
            self.recount(False)
        if self.hung_up:
            self.end_where_delayed()
        return 0

    cdef int end_where_delayed(self) except -1:
        """Close the connection if its next response is delayed and nothing else can be received (rule 7)."""
        cdef Reply reply = self.head
        if reply is None or reply.answered or reply.in_work or ((reply.pins or reply.released) and reply.gone is None):
            return 0
        if self.is_stalled() or (self.ended and not self.held):
            self.shut("the peer closed the connection while a request was delayed")
        return 0

    cdef int refuse(self, const uint8_t *p, Py_ssize_t size) except -1:
        hint = where = ""
        if p[0] == 0x16 and p[1] == 0x03:
            hint = ": this is a TLS handshake on a plaintext port, connect without TLS or to a port with TLS"
            where = (<Connection> self).peer_host
        elif p[0] >= 0x41 and p[0] <= 0x5a and p[1] >= 0x41 and p[1] <= 0x5a:
            hint = ": this looks like HTTP or text"
        reason = f"a frame of {size} bytes is outside {self.smallest_frame()} to {self.largest_frame()}{hint}"
        cdef Connection connection = <Connection> self
        self.hub.log_limited(
            f"frame{hint}{where}", f"{connection.peer_host}:{connection.peer_port}: {reason}; connection closed"
        )
        self.shut(reason)
        return 0

    cdef int skip_empty(self) except -1:
        # Remove completed responses without bytes from the head of the queue.
        cdef Reply reply = self.head
        while reply is not None and reply.answered and reply.size == 0:
            if reply.closes:
                self.shut(self.reason)
                return 0
            self.head = reply.following
            reply.following = None
            self.open_replies -= 1
            reply = self.head
        if reply is None:
            self.tail = None
            if self.ended and not self.held:
                self.shut("end of stream")
        return 0

    cpdef advance(self, Py_ssize_t n):
        """`n` bytes of `outgoing()` were sent."""
        cdef Reply reply
        if n < 0 or n > self.unsent:
            raise ValueError(f"{n} bytes cannot have been sent, {self.unsent} are unsent")
        self.hub.bytes_out += n
        self.unsent -= n
        self.head_sent += n
        self.skip_empty()
        while not self.closed:
            reply = self.head
            if reply is None or not reply.answered or self.head_sent < reply.size:
                break
            self.head_sent -= reply.size
            self.head = reply.following
            reply.following = None
            reply.parts = None
            self.open_replies -= 1
            self.skip_empty()

    def get_buffer(self):
        """A writable memoryview for the next receive. Raises ValueError while stalled."""
        cdef Py_ssize_t capacity
        cdef uint8_t *at
        if not self.wants_bytes():
            raise ValueError("a stalled connection receives nothing")
        at = self.target(&capacity)
        chunk = self.kept if self.in_kept else self.hub.arena
        return chunk.view(at - chunk.data, capacity)

    def buffer_updated(self, Py_ssize_t n):
        """`n` bytes were received into `get_buffer()`."""
        if n < 1:
            raise ValueError(f"{n} bytes received")
        self.received(n)

    def feed(self, data):
        """Process bytes as if received, until stalled, within an iteration. Returns the number of processed bytes."""
        cdef Py_buffer view
        cdef Py_ssize_t capacity, taken = 0, n
        cdef uint8_t *at
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            while taken < view.len and self.wants_bytes():
                at = self.target(&capacity)
                n = min(capacity, view.len - taken)
                memcpy(at, <const uint8_t *> view.buf + taken, n)
                self.received(n)
                taken += n
        finally:
            PyBuffer_Release(&view)
        return taken

    def charge(self, Py_ssize_t more):
        """Add `more` bytes to the memory of this connection: a driver has received them and feeds them later.

        Negative when it feeds them. Closing the connection resets the sum.
        """
        self.pinned_bytes += more
        self.recount(False)

    def outgoing(self):
        """Return the data to send now, in order: a list of bytes and FileRegions. `advance` removes sent bytes."""
        cdef list runs = []
        cdef Reply reply = self.head
        cdef Py_ssize_t skip = self.head_sent
        cdef Py_ssize_t length
        while reply is not None and reply.answered and not reply.closes:
            if reply.size:
                size = (reply.size - SIZE_BYTES).to_bytes(SIZE_BYTES, "big")
                parts = reply.parts if isinstance(reply.parts, list) else [reply.parts]
                for part in [size, *parts]:
                    length = PyBytes_GET_SIZE(part) if PyBytes_CheckExact(part) else <Py_ssize_t> part.length
                    if skip >= length:
                        skip -= length
                        continue
                    if skip:
                        part = part[skip:] if PyBytes_CheckExact(part) else part.read()[skip:]
                        skip = 0
                    runs.append(part)
            reply = reply.following
        return runs

    def touch(self):
        """Visit this connection in an iteration: its socket is writable again, or it was authenticated."""
        self.hub.note(self)

    cpdef eof(self):
        """The end of the stream was received. The connection closes after the responses of rule 7."""
        self.hung_up = True
        self.drain()

    cpdef hang_up(self):
        """The peer has closed its side; the socket may still have unread bytes."""
        if not self.hung_up:
            self.hung_up = True
            self.hub.memory.withdraw(self)  # else neither the rest nor the end of the stream would be received
            self.hub.note(self)

    cpdef drain(self):
        """Stop receiving; close the connection after the last response."""
        self.ended = True
        if not self.held:
            self.release_kept()
        if self.head is None and not self.held:
            self.shut("end of stream")
        else:
            self.hub.note(self)

    cpdef str overdue(self, double now, double idle_s, double half_closed_s, bint blocked):
        """The reason to close this connection for missing progress, or None.

        Arguments:
            now: seconds of the clock of `active_at`.
            idle_s: limit in seconds without progress while no response is pending; negative = no limit.
            half_closed_s: limit in seconds after the peer has closed its side.
            blocked: whether the socket accepts no bytes although some are unsent.
        """
        cdef double quiet = now - self.active_at
        if self.hung_up and quiet > half_closed_s:
            return "half closed for too long"
        if self.denied:
            self.active_at = now  # it waits for memory, so it is not idle
        elif quiet > idle_s >= 0 and (self.pending == 0 or blocked or self.missing_bytes()):
            return "idle for too long"
        return self.hub.memory.why_to_end(self, now)

    cdef int drop_replies(self) except -1:
        cdef Reply reply = self.head
        cdef Reply following
        self.head = self.tail = None
        if self.kept is not None:
            self.hub.retire(self.kept)  # requests of this iteration may be views of it
            self.kept = None
        self.hub.memory.forget(self)
        self.unsent = self.requests_bytes = self.pinned_bytes = self.open_replies = self.pending = 0
        while reply is not None:
            following = reply.following
            reply.following = None
            reply.parts = None
            callback = reply.gone
            reply.gone = None
            if callback is not None and not reply.answered:
                try:
                    callback()
                except Exception as error:
                    self.hub.fault("on_gone", error)
            reply = following
        return 0


cdef class Connection(Frames):
    """A connection with its two addresses and the state of the server. Drivers subclass it."""

    def __init__(self, Hub hub not None, str listener="", peer=("", 0), local=("", 0)):
        self.hub = hub
        self.listener = listener
        self.peer_host, self.peer_port = peer[0], peer[1]
        self.local_host, self.local_port = local[0], local[1]
        self.authenticated = not hub.limits.authenticate
