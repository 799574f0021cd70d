"""The sans-I/O half of a connection: bytes in, frames out, replies back in the order of arrival.

No socket and no event loop are known here. Three drivers use this module (`_speedups.connection`, `net.transport`,
`net.memory`); `net.framing_oracle` says the same in plain Python. Laws:

- A frame handed to the service is valid until the service's `flush()` returns. Its memory is never freed under a
  view that somebody kept, but it is written over: who keeps a frame copies it.
- A connection owns memory only for bytes it could not parse yet, and that memory grows with the bytes that arrived.
- Replies leave in the order of their requests, however they are completed.
- Above `unsent_bytes_max` or `open_replies_max` nothing is parsed or received. Before a connection is authenticated
  one request at a time is served.
- A service that raises costs the connection it raised for, never the loop.
"""

import logging
import time
from typing import Protocol

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from kafkalite._speedups.file cimport FileRegion
from kafkalite._speedups.wire cimport load_u32

LOG = logging.getLogger("kafkalite.net")

cdef enum:
    SIZE_BYTES = 4             # every frame begins with its length
    FRAME_BYTES_MIN = 8        # api key, version, correlation id: nothing shorter can be a request
    ARENA_BYTES = 256 * 1024
    ARENA_LOW = 32 * 1024      # with less room than this the arena starts again from its beginning
    RETIRED_MAX = 256 * 1024   # so many bytes of single frames wait for the end of a pass
    MERGE_MAX = 4 * 1024       # a tail up to this size goes back into the arena, to be received onto
    CHUNK_MIN = 256
    SHELVES = 40
    ROUNDS_MAX = 16            # how often one pass goes on because sending let connections parse on

FAULT_INTERVAL_S = 60.0


cdef class Limits:
    """What a listener allows; every bound has Kafka's name in its comment."""

    def __init__(
        self, *, Py_ssize_t request_bytes_max=104857600, Py_ssize_t unsent_bytes_max=1 << 20,
        int open_replies_max=4096, int connections_max=2147483647, int connections_per_ip_max=2147483647,
        connections_per_ip_overrides=None, long long idle_ms_max=600_000, bint authenticate=False,
        Py_ssize_t memory_kept_max=16 << 20,
    ):
        """Keyword arguments, all optional.

        request_bytes_max: socket.request.max.bytes. unsent_bytes_max, open_replies_max: where reading stops.
        connections_max, connections_per_ip_max, connections_per_ip_overrides (host -> count): max.connections and so on.
        idle_ms_max: connections.max.idle.ms, negative for never. authenticate: connections begin unauthenticated.
        memory_kept_max: bytes of buffers kept for reuse.
        """
        if request_bytes_max < FRAME_BYTES_MIN or request_bytes_max > 0x7fffffff:
            raise ValueError(f"request_bytes_max is {request_bytes_max}, allowed is {FRAME_BYTES_MIN} to 2147483647")
        if unsent_bytes_max < 1 or open_replies_max < 1:
            raise ValueError("unsent_bytes_max and open_replies_max must be positive")
        self.request_bytes_max = request_bytes_max
        self.unsent_bytes_max = unsent_bytes_max
        self.open_replies_max = open_replies_max
        self.connections_max = connections_max
        self.connections_per_ip_max = connections_per_ip_max
        self.connections_per_ip_overrides = dict(connections_per_ip_overrides or {})
        self.idle_ms_max = idle_ms_max
        self.authenticate = authenticate
        self.memory_kept_max = memory_kept_max


class Service(Protocol):
    """What the server gives to every driver."""

    def connected(self, connection):
        """A new connection; False refuses it (then `disconnected` is not called)."""

    def request(self, reply, frame):
        """One whole frame, without its size: writable, valid until `flush` returns."""

    def flush(self):
        """A pass ends, or the buffers are about to be used again: write what is queued, complete replies."""

    def disconnected(self, connection):
        """The connection is gone; called once."""


@cython.final
cdef class Chunk:
    """Memory that frames are received into. It is freed when its last view goes, never before."""

    def __cinit__(self, Py_ssize_t size):
        self.data = <uint8_t *> malloc(size)
        if self.data == NULL:
            raise MemoryError(f"no memory for a buffer of {size} bytes")
        self.size = size

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data + self.view_from, self.view_length, 0, flags)

    cdef object view(self, Py_ssize_t start, Py_ssize_t length):
        if start < 0 or length < 0 or length > self.size - start:
            raise IndexError(f"view of {length} bytes at {start} in a buffer of {self.size}")
        self.view_from = start
        self.view_length = length
        return PyMemoryView_FromObject(self)


@cython.final
cdef class Pool:
    """Chunks by power of two, kept for reuse up to `kept_max` bytes in all."""

    def __cinit__(self, Py_ssize_t kept_max):
        self.shelves = [[] for _ in range(SHELVES)]
        self.kept_max = kept_max

    cdef Chunk take(self, Py_ssize_t size):
        cdef int shelf = 8
        while (<Py_ssize_t> 1 << shelf) < size:
            shelf += 1
        cdef list chunks = <list> self.shelves[shelf]
        if chunks:
            self.kept -= <Py_ssize_t> 1 << shelf
            return <Chunk> chunks.pop()
        return Chunk(<Py_ssize_t> 1 << shelf)

    cdef int give(self, Chunk chunk) except -1:
        cdef int shelf = 8
        if self.kept + chunk.size > self.kept_max:
            return 0
        while (<Py_ssize_t> 1 << shelf) < chunk.size:
            shelf += 1
        (<list> self.shelves[shelf]).append(chunk)
        self.kept += chunk.size
        return 0


cdef class Hub:
    """The passes of one service: shared receive memory, the connections touched, the order at the end of a pass.

    A driver subclasses it and overrides `wake()`, which has `run()` called soon, from the loop.
    """

    def __init__(self, service, Limits limits=None):
        self.service = service
        self.limits = limits if limits is not None else Limits()
        self.pool = Pool(self.limits.memory_kept_max)
        self.on_request = service.request
        self.on_flush = service.flush
        self.arena = Chunk(ARENA_BYTES)
        self.retired = []
        self.active = []
        self.closing = []
        self.orphans = []
        self.faults = {}

    cpdef wake(self):
        raise NotImplementedError("a driver says how a pass is scheduled")

    cpdef begin(self):
        """Open a pass: what completes from now on is sent at its end."""
        self.in_pass = True

    def run(self):
        """A pass without ready sockets: completions and closings that came from outside."""
        self.scheduled = False
        self.begin()
        self.end()

    cpdef end(self):
        """Close the pass: flush the service, send once per connection, parse on where that made room, close."""
        cdef int rounds = 0
        self.passes += 1
        try:
            while True:
                self.flush()
                self.send_all()
                self.close_all()
                if not self.active and not self.closing and not self.retired:
                    break
                rounds += 1
                if rounds == ROUNDS_MAX:
                    self.flush()
                    break
        finally:
            self.in_pass = False
        if self.active or self.closing:
            self.schedule()

    def welcome(self, Connection connection not None):
        """Ask the service whether it takes a new connection; one that it refuses is closed."""
        try:
            connection.known = self.service.connected(connection)
        except Exception as error:
            self.fault("connected", error)
        if not connection.known:
            connection.shut("refused")

    def schedule(self):
        """Have a pass run soon, once."""
        if not self.scheduled:
            self.scheduled = True
            self.wake()

    cdef int flush(self) except -1:
        self.flushes += 1
        try:
            self.on_flush()
        except Exception as error:
            # Nobody can say whose requests were lost: all connections of the pass learn it by being closed.
            self.fault("flush", error)
            for connection in self.active:
                (<Connection> connection).shut("internal error")
        cdef list chunks = self.retired
        if chunks:
            self.retired = []
            self.retired_bytes = 0
            for chunk in chunks:
                self.pool.give(<Chunk> chunk)
        self.arena_at = 0
        return 0

    cdef int retire(self, Chunk chunk) except -1:
        self.retired.append(chunk)
        self.retired_bytes += chunk.size
        return 0

    cdef int note(self, Connection connection) except -1:
        if not connection.listed:
            connection.listed = True
            self.active.append(connection)
            if not self.in_pass and not self.scheduled:
                self.schedule()
        return 0

    cdef int send_all(self) except -1:
        cdef list connections = self.active
        cdef Connection connection
        self.active = []
        for connection in connections:
            connection.listed = False
            if connection.settled:
                continue
            try:
                connection.transmit()
                connection.resume()
                connection.settle()
            except Exception as error:
                self.fault("send", error)
                connection.shut("internal error")
        return 0

    cdef int close_all(self) except -1:
        cdef Connection connection
        cdef list connections, callbacks
        while self.closing or self.orphans:
            connections, self.closing = self.closing, []
            callbacks, self.orphans = self.orphans, []
            for callback in callbacks:
                try:
                    callback()
                except Exception as error:
                    self.fault("on_gone", error)
            for connection in connections:
                if connection.settled:
                    continue
                connection.settled = True
                try:
                    connection.gone()
                except Exception as error:
                    self.fault("close", error)
                connection.drop_replies()
                if not connection.known:
                    continue
                try:
                    self.service.disconnected(connection)
                except Exception as error:
                    self.fault("disconnected", error)
        return 0

    cpdef fault(self, str site, error):
        """Log an exception nobody foresaw, with its traceback once per place and minute."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = (site, type(error), trace.tb_frame.f_code if trace is not None else None, trace and trace.tb_lineno)
        now = time.monotonic()
        if now - self.faults.get(place, -FAULT_INTERVAL_S) >= FAULT_INTERVAL_S:
            self.faults[place] = now
            LOG.error("%s raised in %s", type(error).__name__, site, exc_info=error)


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
        connection.pending -= 1
        connection.hub.note(connection)
        return 0


cdef class Frames:
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
        return self.pending > 0 and not (<Connection> self).authenticated

    cdef bint wants_bytes(self) noexcept:
        return not (self.closed or self.ended or self.held or self.reason is not None or self.is_stalled())

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
            hub.requests += 1
            if size > self.largest:
                self.largest = size
            try:
                self.hub.on_request(reply, chunk.view(start + SIZE_BYTES, size))
            except Exception as error:
                hub.fault("request", error)
                self.shut("internal error")
            start += SIZE_BYTES + size
            if self.reason is not None:
                return end  # Reply.close: what follows that request is not served
        return start

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
        self.hub.note(<Connection> self)

    cpdef eof(self):
        """The peer has sent its last byte. Answers still leave; the connection closes after the last one."""
        self.ended = True
        if not self.held:
            self.release_kept()
        if self.head is None and not self.held:
            self.shut("end of stream")
        else:
            self.hub.note(<Connection> self)

    cdef int shut(self, str reason) except -1:
        if self.closed:
            return 0
        self.closed = True
        self.reason = reason
        self.hub.closing.append(self)
        if not self.hub.in_pass:
            self.hub.schedule()
        return 0

    cdef int drop_replies(self) except -1:
        cdef Reply reply = self.head
        cdef Reply following
        self.head = self.tail = None
        self.release_kept()
        self.unsent = self.open_replies = self.pending = 0
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

    cpdef transmit(self):
        """Send what `outgoing()` holds, as far as the peer takes it. A driver's part."""
        raise NotImplementedError("a driver sends")

    cpdef settle(self):
        """Called at the end of a pass: stop or go on receiving, as `stalled` says. A driver's part."""

    cpdef gone(self):
        """Give up what the driver holds for this connection. Called once."""

    cpdef close(self, str reason):
        """Close at once, at the end of the running pass; answers not sent yet are dropped."""
        self.shut(reason)
