"""The sans-I/O half of a connection: bytes in, frames out, replies back in the order of arrival.

No socket and no event loop are known here. Three drivers use this module (`_speedups.connection`, `net.transport`,
`net.memory`); the oracle of the tests is the same in plain Python. Laws:

- A frame handed to the service is valid until the service's `flush()` returns. Its memory is never freed under a
  view that somebody kept, but it is written over: who keeps a frame copies it.
- A connection owns memory only for bytes it could not parse yet, and that memory grows with the bytes that arrived.
- Replies leave in the order of their requests, however they are completed.
- Above `unsent_bytes_max`, `open_replies_max` or `requests_bytes_max` nothing is parsed or received. Before a
  connection is authenticated one request at a time is served. Nothing is received while the hub is crowded.
- A service that raises costs the connection it raised for, never the loop.
"""

cimport cython
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint8_t, uint16_t
from libc.string cimport memcpy

from kafkalite._speedups.file cimport FileRegion
from kafkalite._speedups.passes cimport (
    ARENA_BYTES, ARENA_LOW, FRAME_BYTES_MIN, RETIRED_MAX, Chunk, Hub, Limits, Visited,
)
from kafkalite._speedups.wire cimport load_u16, load_u32

from kafkalite._speedups import passes

# A cimported name is no attribute of the module: these are, for Python.
globals().update(Hub=passes.Hub, Limits=passes.Limits, Service=passes.Service)

cdef enum:
    SIZE_BYTES = 4             # every frame begins with its length
    MERGE_MAX = 4 * 1024       # a tail up to this size goes back into the arena, to be received onto


@cython.final
@cython.freelist(1024)
cdef class Reply:
    """The one-shot answer to one frame. Created by the pipeline, completed by the service at any time, in any order."""

    def __cinit__(self, Connection connection not None):
        self.connection = connection

    @property
    def done(self):
        """Nothing more to do: answered, or the connection is gone."""
        return self.answered or self.connection.closed

    @property
    def on_gone(self):
        return self.gone

    @on_gone.setter
    def on_gone(self, callback):
        if callback is not None and not self.answered and self.connection.settled:
            self.connection.hub.orphans.append(callback)
            self.connection.hub.schedule()
        else:
            self.gone = callback

    cpdef send(self, parts):
        """Answer with `parts`: bytes, or a list of bytes-like objects and FileRegions, without the frame's size.

        Bytes-like objects other than bytes are copied now. Ignored when the connection is gone; RuntimeError when
        this reply was answered before.
        """
        cdef Py_ssize_t size = 0
        cdef list checked
        if self.connection.closed:
            return
        if self.answered:
            raise RuntimeError("this request was answered before")
        if PyBytes_CheckExact(parts):
            size = PyBytes_GET_SIZE(parts)
        else:
            checked = []
            for part in parts if isinstance(parts, list) else (parts,):
                if PyBytes_CheckExact(part):
                    size += PyBytes_GET_SIZE(part)
                elif type(part) is FileRegion:
                    size += <Py_ssize_t> (<FileRegion> part).length
                else:
                    part = bytes(part)
                    size += len(part)
                checked.append(part)
            parts = checked
        if size > 0x7fffffff:
            raise ValueError(f"an answer of {size} bytes does not fit a frame")
        self.parts = parts
        self.finish(size + SIZE_BYTES)

    cpdef skip(self):
        """Send nothing for this request (acks=0)."""
        if self.connection.closed:
            return
        if self.answered:
            raise RuntimeError("this request was answered before")
        self.finish(0)

    cpdef close(self, str reason):
        """Close the connection once the answers to earlier requests have left; `reason` goes to the log."""
        if self.connection.closed or self.answered:
            return
        self.closes = True
        if self.connection.reason is None:
            self.connection.reason = reason
        self.finish(0)

    cdef int finish(self, Py_ssize_t size) except -1:
        cdef Connection connection = self.connection
        self.answered = True
        self.gone = None
        self.size = size
        connection.unsent += size
        connection.requests_bytes -= self.request_size
        connection.pending -= 1
        connection.hub.note(connection)
        return 0


cdef class Quick:
    """Answers requests of a few keys before they are dispatched, where a look at the frame is all that it takes."""

    cdef bytes answer(self, Connection connection, const uint8_t *frame, Py_ssize_t size):
        """The answer without its size; None = the request goes the way of all others, and nothing has happened."""
        return None


cdef class Frames(Visited):
    """The pipeline of one connection: where to receive, what was received, what is to be sent."""

    @property
    def stalled(self):
        """Nothing is to be received: too much is unsent or unanswered, or the connection ends."""
        return not self.wants_bytes()

    @property
    def kept_bytes(self):
        """Bytes of memory this connection owns for what it could not parse yet."""
        return self.kept.size if self.kept is not None else 0

    cdef bint is_stalled(self) noexcept:
        cdef Limits limits = self.hub.limits
        if self.unsent > limits.unsent_bytes_max or self.open_replies >= limits.open_replies_max:
            return True
        # A service may keep a copy of each request it has not answered: with none open, any size passes.
        if self.requests_bytes >= limits.requests_bytes_max:
            return True
        return self.pending > 0 and not (<Connection> self).authenticated

    cdef bint wants_bytes(self) noexcept:
        if self.closed or self.ended or self.held or self.reason is not None or self.hub.crowded:
            return False
        return not self.is_stalled()

    cdef uint8_t *target(self, Py_ssize_t *room) except NULL:
        """Where to receive next. To be called only while `wants_bytes()`."""
        cdef Hub hub = self.hub
        cdef Py_ssize_t have
        if hub.retired_bytes >= RETIRED_MAX or ARENA_BYTES - hub.arena_at < ARENA_LOW:
            hub.flush()
        self.in_kept = False
        self.copied = 0
        if self.kept is not None:
            have = self.kept_to - self.kept_from
            if have > MERGE_MAX:
                return self.target_kept(room)
            # A short tail moves in front of what comes next, so that one receive can fill the arena.
            memcpy(hub.arena.data + hub.arena_at, self.kept.data + self.kept_from, have)
            self.copied = have
        room[0] = ARENA_BYTES - hub.arena_at - self.copied
        return hub.arena.data + hub.arena_at + self.copied

    cdef uint8_t *target_kept(self, Py_ssize_t *room) except NULL:
        # The kept bytes begin with one unfinished frame: received onto up to its end, in memory that doubles.
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
        room[0] = min(whole - have, self.kept.size - self.kept_to)
        if room[0] <= 0:
            raise RuntimeError("a whole frame waits: nothing is to be received")
        self.in_kept = True
        return self.kept.data + self.kept_to

    cdef int received(self, Py_ssize_t n) except -1:
        """`n` bytes lie where `target()` said. Hands every whole frame to the service."""
        cdef Hub hub = self.hub
        cdef Py_ssize_t start, end, at
        cdef Chunk chunk
        hub.bytes_in += n
        if self.in_kept:
            chunk = self.kept
            start = self.kept_from
            end = self.kept_to + n
            self.kept_to = end
            if end - start < SIZE_BYTES + <Py_ssize_t> load_u32(chunk.data + start):
                return 0
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
        return 0

    cdef Py_ssize_t parse(self, Chunk chunk, Py_ssize_t start, Py_ssize_t end) except -1:
        cdef Hub hub = self.hub
        cdef Connection connection = <Connection> self
        cdef Reply reply
        cdef Py_ssize_t size
        hub.note(connection)
        self.held = False
        while end - start >= SIZE_BYTES and not self.closed:
            size = <int32_t> load_u32(chunk.data + start)
            if size < FRAME_BYTES_MIN or size > hub.limits.request_bytes_max:
                self.refuse(chunk.data + start, size)
                return end
            if end - start - SIZE_BYTES < size:
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
            except Exception as error:
                hub.fault("request", error)
                self.shut("internal error")
            start += SIZE_BYTES + size
            if self.reason is not None:
                return end  # Reply.close: what follows that request is not served
        return start

    cdef bint answered_quickly(self, Reply reply, const uint8_t *frame, Py_ssize_t size) except -1:
        cdef Quick quick = <Quick> self.hub.quick
        cdef Connection connection = <Connection> self
        cdef uint16_t key = load_u16(frame)
        cdef bytes parts
        if key >= QUICK_KEYS or not quick.takes[key] or not connection.authenticated:
            return False
        parts = quick.answer(connection, frame, size)
        if parts is None:
            return False
        reply.parts = parts
        reply.finish(PyBytes_GET_SIZE(parts) + SIZE_BYTES)
        return True

    cdef int keep(self, Chunk chunk, Py_ssize_t start, Py_ssize_t end) except -1:
        # What follows a long tail is received behind it, so that it gets room for as much again.
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
        """Parse on from what was kept while the connection was stalled."""
        cdef Chunk chunk = self.kept
        cdef Py_ssize_t at
        if self.requests_bytes != self.counted:
            self.hub.count(self.requests_bytes - self.counted)
            self.counted = self.requests_bytes
        if not self.held or self.closed or chunk is None or self.is_stalled():
            return 0
        at = self.parse(chunk, self.kept_from, self.kept_to)
        if self.closed:
            return 0
        self.kept = None
        self.hub.retire(chunk)
        if at < self.kept_to and (self.held or not self.ended):
            self.keep(chunk, at, self.kept_to)
        if self.ended and not self.held and self.head is None:
            self.shut("end of stream")
        return 0

    cdef int refuse(self, const uint8_t *p, Py_ssize_t size) except -1:
        hint = ""
        if p[0] == 0x16 and p[1] == 0x03:
            hint = ": this is a TLS handshake on a plaintext port"
        elif p[0] >= 0x41 and p[0] <= 0x5a and p[1] >= 0x41 and p[1] <= 0x5a:
            hint = ": this looks like HTTP or text"
        self.shut(f"a frame of {size} bytes is outside {FRAME_BYTES_MIN} to {self.hub.limits.request_bytes_max}{hint}")
        return 0

    cdef int skip_empty(self) except -1:
        # Take completed replies that send nothing off the head.
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
        """`n` bytes of `outgoing()` have left."""
        cdef Reply reply
        if n < 0 or n > self.unsent:
            raise ValueError(f"{n} bytes cannot have left, {self.unsent} wait")
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
        """Where to receive next, as a writable memoryview; ValueError while stalled."""
        cdef Py_ssize_t room
        cdef uint8_t *at
        if not self.wants_bytes():
            raise ValueError("a stalled connection receives nothing")
        at = self.target(&room)
        chunk = self.kept if self.in_kept else self.hub.arena
        return chunk.view(at - chunk.data, room)

    def buffer_updated(self, Py_ssize_t n):
        """`n` bytes were received into `get_buffer()`."""
        if n < 1:
            raise ValueError(f"{n} bytes received")
        self.received(n)

    def feed(self, data):
        """Take bytes as if received, until stalled; answers how many were taken. Belongs into a pass."""
        cdef const uint8_t[::1] source = data
        cdef Py_ssize_t room, taken = 0, n
        cdef uint8_t *at
        while taken < source.shape[0] and self.wants_bytes():
            at = self.target(&room)
            n = min(room, source.shape[0] - taken)
            memcpy(at, &source[taken], n)
            self.received(n)
            taken += n
        return taken

    def outgoing(self):
        """What may leave now, in order: a list of bytes and FileRegions (not advanced over)."""
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
        """Have a pass visit this connection: its peer takes bytes again, or it was authenticated."""
        self.hub.note(self)

    cpdef eof(self):
        """The peer has sent its last byte. Answers still leave; the connection closes after the last one."""
        self.ended = True
        if not self.held:
            self.release_kept()
        if self.head is None and not self.held:
            self.shut("end of stream")
        else:
            self.hub.note(self)

    cdef int drop_replies(self) except -1:
        cdef Reply reply = self.head
        cdef Reply following
        self.head = self.tail = None
        self.release_kept()
        self.hub.count(-self.counted)
        self.counted = 0
        self.unsent = self.requests_bytes = self.open_replies = self.pending = 0
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
    """A pipeline with its two addresses and the server's own state. Drivers subclass it."""

    def __init__(self, Hub hub not None, str listener="", peer=("", 0), local=("", 0)):
        self.hub = hub
        self.listener = listener
        self.peer_host, self.peer_port = peer[0], peer[1]
        self.local_host, self.local_port = local[0], local[1]
        self.authenticated = not hub.limits.authenticate
