"""Runs the iterations of a service (receive, parse, write records, send, close), and limits their time and memory.

An iteration begins with ready sockets, a finished job or a timer. It ends in this order: the service writes queued
records and completes replies; each visited connection sends once and, if it can, continues to parse; closed connections
are released. Memory passed to the service is reused after its `write_pending` only. An exception of the service closes
its connection. Time budgets bound how long a connection delays the others. Rules:

1. A connection parses for at most `connection_budget_ns`, then continues in a later loop iteration; its requests keep
   their order. Each visit serves at least one request. If many connections have requests, each parses for an equal part
   of `iteration_budget_ns` (at least SHARE_MIN_NS), so that few iterations visit all of them.
2. All connections together receive and parse for at most `iteration_budget_ns`, then send and continue to parse for at
   most as long. Connections that were not reached are visited first in the next iteration. Connections that only send
   come before those with a backlog of requests, except one of these: so backlogs never starve.
3. The clock is read after each dispatched request and after every QUICK_LOOKS (framing) intercepted ones.

`request_memory` has the rules for the memory of requests.
"""

import logging
import time
from typing import Protocol

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.pyport cimport PY_SSIZE_T_MAX
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from kafkalite._speedups.net.request_memory cimport RequestMemoryHolder, RequestMemory

LOGGER = logging.getLogger("kafkalite.net")
FAULT_INTERVAL_S = 60.0

cdef enum:
    SHELF_MIN = 8              # the smallest chunk has 256 bytes
    REPEATS_MAX = 16            # sends of an iteration after which parsing continues
    LOOKS = 8                  # connections that send between two readings of the clock
    SITES_MAX = 10_000         # of rate-limited log lines
    SHARE_MIN_NS = 100_000     # a connection parses for as long per visit, with any number of connections


cdef class Limits:
    """Bounds of the connections of a listener."""

    def __init__(
        self, *, Py_ssize_t request_bytes_max=104857600, Py_ssize_t unsent_bytes_max=1 << 20,
        int open_replies_max=4096, int connections_max=2147483647, int connections_per_ip_max=2147483647,
        connections_per_ip_overrides=None, long long idle_ms_max=600_000, bint authenticate=False,
        Py_ssize_t login_bytes_max=512 << 10,
        Py_ssize_t memory_kept_max=16 << 20, Py_ssize_t requests_bytes_max=32 << 20,
        Py_ssize_t all_requests_bytes_max=PY_SSIZE_T_MAX, Py_ssize_t guaranteed_bytes=64 << 10,
        long long connection_budget_ns=2_000_000, long long iteration_budget_ns=5_000_000,
    ):
        """Arguments:
            request_bytes_max: `socket.request.max.bytes`.
            unsent_bytes_max, open_replies_max: bounds of one connection at which reading stops.
            connections_max, connections_per_ip_max: `max.connections`, `max.connections.per.ip`.
            connections_per_ip_overrides: host -> limit, `max.connections.per.ip.overrides`.
            idle_ms_max: `connections.max.idle.ms`, negative = no limit.
            authenticate: whether new connections are unauthenticated.
            login_bytes_max: `sasl.server.max.receive.size`, the largest frame of an unauthenticated connection.
            memory_kept_max: bytes of receive buffers that are kept for reuse.
            requests_bytes_max: bytes of unanswered requests of one connection at which reading stops; the last of these
                requests may have any size.
            all_requests_bytes_max: `queued.max.request.bytes`, request memory of all connections.
            guaranteed_bytes: part of it that each connection may use in any case (`request_memory`).
            connection_budget_ns, iteration_budget_ns: limits of parsing in one visit, and in one phase of an iteration.
        """
        if request_bytes_max < FRAME_BYTES_MIN or request_bytes_max > 0x7fffffff:
            raise ValueError(f"request_bytes_max is {request_bytes_max}, allowed is {FRAME_BYTES_MIN} to 2147483647")
        if min(unsent_bytes_max, open_replies_max, requests_bytes_max, all_requests_bytes_max, guaranteed_bytes) < 1:
            raise ValueError("bounds of unsent bytes, open replies and bytes of requests must be positive")
        if min(connection_budget_ns, iteration_budget_ns) < 1:
            raise ValueError("budgets of time must be positive")
        self.request_bytes_max = request_bytes_max
        self.unsent_bytes_max = unsent_bytes_max
        self.requests_bytes_max = requests_bytes_max
        self.all_requests_bytes_max = all_requests_bytes_max
        self.guaranteed_bytes = guaranteed_bytes
        self.connection_budget_ns = connection_budget_ns
        self.iteration_budget_ns = iteration_budget_ns
        self.open_replies_max = open_replies_max
        self.connections_max = connections_max
        self.connections_per_ip_max = connections_per_ip_max
        self.connections_per_ip_overrides = dict(connections_per_ip_overrides or {})
        self.idle_ms_max = idle_ms_max
        self.authenticate = authenticate
        self.login_bytes_max = login_bytes_max
        self.memory_kept_max = memory_kept_max


class Service(Protocol):
    """The callbacks of a server, called by every driver.

    Optional attributes are sets of API keys below KEYS_MAX. `pinning`: handlers use the frame until the request is
    answered or `Reply.release_frame` is called; frames of other keys are free when `request` returns. Without it every
    frame is pinned. `awaited`: other requests may wait for theirs while their frames are in use (`request_memory`).
    """

    def connected(self, connection):
        """A new connection. False rejects it; then `disconnected` is not called."""

    def request(self, reply, frame):
        """Process one whole frame without its size; it is writable, and valid until `write_pending` returns."""

    def write_pending(self):
        """Write queued records and complete replies: an iteration ends, or its buffers are reused."""

    def disconnected(self, connection):
        """The connection is closed; called once."""


@cython.final
cdef class Chunk:
    """Memory that receives frames; it is freed with its last view."""

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
    """Chunks of powers of two, kept for reuse up to `kept_max` bytes until `free_unused`."""

    def __cinit__(self, Py_ssize_t kept_max):
        self.shelves = [[] for _ in range(SHELVES)]
        self.kept_max = kept_max

    cdef Chunk take(self, Py_ssize_t size):
        cdef int shelf = SHELF_MIN
        cdef Chunk chunk
        while (<Py_ssize_t> 1 << shelf) < size:
            shelf += 1
        cdef list chunks = <list> self.shelves[shelf]
        if chunks:
            self.kept -= <Py_ssize_t> 1 << shelf
            chunk = <Chunk> chunks.pop()
            if len(chunks) < self.unused[shelf]:
                self.unused[shelf] = len(chunks)
            return chunk
        return Chunk(<Py_ssize_t> 1 << shelf)

    cdef int give(self, Chunk chunk) except -1:
        cdef int shelf = SHELF_MIN
        if self.kept + chunk.size > self.kept_max:
            return 0
        while (<Py_ssize_t> 1 << shelf) < chunk.size:
            shelf += 1
        (<list> self.shelves[shelf]).append(chunk)
        self.kept += chunk.size
        return 0

    def free_unused(self):
        """Free the chunks that were unused since the previous call."""
        cdef int shelf
        cdef list chunks
        for shelf in range(SHELVES):
            chunks = <list> self.shelves[shelf]
            self.kept -= self.unused[shelf] << shelf
            del chunks[:self.unused[shelf]]
            self.unused[shelf] = len(chunks)


cdef class ConnectionBase(RequestMemoryHolder):
    """The part of a connection that its hub uses."""

    cdef int memory_freed(self) except -1:
        return self.hub.note(self)

    cdef int resume(self) except -1:
        """Continue with the bytes kept while the connection was stalled."""
        return 0

    cdef int drop_replies(self) except -1:
        """Call `on_gone` of the open replies: the connection is closed."""
        return 0

    cdef int shut(self, str reason) except -1:
        if self.closed:
            return 0
        self.closed = True
        self.reason = reason
        self.hub.closing.append(self)
        if not self.hub.in_iteration:
            self.hub.schedule()
        return 0

    cpdef transmit(self):
        """Send `outgoing()` as far as the socket accepts it. Implemented by drivers."""
        raise NotImplementedError("a driver sends")

    cpdef update_interest(self):
        """Start or stop receiving according to `stalled`, at the end of an iteration. Implemented by drivers."""

    cpdef gone(self):
        """Release the resources of the driver for this connection. Called once."""

    cpdef close(self, str reason):
        """Close at the end of the running iteration; unsent responses are dropped."""
        self.shut(reason)


cdef class Hub:
    """The iterations of one service: receive memory, visited connections, and the end of an iteration.

    A driver subclasses it and overrides `wake()`, which schedules a call of `run()` in the event loop. A driver that
    begins several iterations per loop iteration sets `several_iterations`; they share one budget, which `run` resets.
    """

    def __init__(self, service, Limits limits=None, clock=None):
        """`clock` returns nanoseconds of a monotonic clock; None = the system's."""
        self.service = service
        self.clock = clock
        self.limits = limits if limits is not None else Limits()
        self.memory = RequestMemory(self.limits.all_requests_bytes_max, self.limits.guaranteed_bytes)
        self.pool = Pool(self.limits.memory_kept_max)
        self.on_request = service.request
        self.on_write_pending = service.write_pending
        self.quick = getattr(service, "quick", None)
        pinning = getattr(service, "pinning", None)
        awaited = getattr(service, "awaited", ())
        for key in range(KEYS_MAX + 1):
            self.pinning[key] = pinning is None or key in pinning
            self.awaited[key] = key in awaited
        self.arena = Chunk(ARENA_BYTES)
        self.retired = []
        self.deferred = []
        self.active = []
        self.closing = []
        self.orphans = []
        self.faults = {}

    cpdef wake(self):
        raise NotImplementedError("a driver schedules iterations")

    cpdef begin(self):
        """Begin an iteration: replies completed from now on are sent at its end."""
        self.in_iteration = True
        self.look()
        self.began_ns = self.now_ns
        self.deadline_ns = self.now_ns + self.limits.iteration_budget_ns - self.spent_ns
        self.share_ns = self.limits.connection_budget_ns

    cdef int share(self, Py_ssize_t count) noexcept:
        """Divide the time of the running iteration by `count` connections with requests."""
        cdef long long equal_ns = max(self.limits.iteration_budget_ns // max(count, 1), SHARE_MIN_NS)
        self.share_ns = min(self.limits.connection_budget_ns, equal_ns)
        return 0

    cdef int look(self) except -1:
        """Read the clock into `now_ns`."""
        cdef timespec now
        if self.clock is not None:
            self.now_ns = self.clock()
            return 0
        clock_gettime(CLOCK_MONOTONIC, &now)
        self.now_ns = <long long> now.tv_sec * 1_000_000_000 + now.tv_nsec
        return 0

    cdef int handled(self) except -1:
        """A request was handled since the clock was read last."""
        cdef long long began_ns = self.now_ns
        self.look()
        self.handled_ns += self.now_ns - began_ns
        return 0

    def ns_since_look(self):
        """Nanoseconds since the clock was read last: while a request is served, since its turn began."""
        cdef timespec now
        if self.clock is not None:
            return self.clock() - self.now_ns
        clock_gettime(CLOCK_MONOTONIC, &now)
        return <long long> now.tv_sec * 1_000_000_000 + now.tv_nsec - self.now_ns

    cdef int defer(self, ConnectionBase connection) except -1:
        """Visit a connection in the next loop iteration."""
        if not connection.listed:
            connection.listed = True
            self.deferred.append(connection)
        return 0

    def run(self):
        """Run an iteration without ready sockets: completed replies, closed and deferred connections."""
        self.scheduled = False
        self.runs += 1
        self.spent_ns = 0
        self.begin()
        if self.deferred:
            self.order_visits()
        self.end()

    cdef int order_visits(self) except -1:
        """Visit deferred connections first, and all but one connection with a backlog of requests last (rule 2)."""
        cdef list visits = self.deferred + self.active
        cdef list sending = [], backlogs = []
        cdef ConnectionBase connection
        self.deferred = []
        for connection in visits:
            (backlogs if connection.held else sending).append(connection)
        self.active = backlogs[:1] + sending + backlogs[1:]
        self.share(len(backlogs))
        return 0

    cpdef end(self):
        """End the iteration: write pending records, send once per connection, continue to parse, close connections."""
        cdef int repeats = 0
        self.iterations += 1
        self.deadline_ns = self.now_ns + self.limits.iteration_budget_ns - self.spent_ns
        try:
            while True:
                self.write_pending()
                self.send_all()
                self.close_all()
                if self.memory.denied:
                    self.memory.share_out(self.now_ns / 1e9)
                if self.memory.shares:
                    self.memory.release_shares(self.now_ns / 1e9)
                if not self.active and not self.closing and not self.retired:
                    break
                repeats += 1
                if repeats == REPEATS_MAX or self.now_ns >= self.deadline_ns:
                    self.write_pending()
                    break
        finally:
            self.in_iteration = False
            if self.several_iterations:
                self.look()
                self.spent_ns += self.now_ns - self.began_ns
        if self.active or self.closing or self.deferred or self.spent_ns > self.limits.iteration_budget_ns // 2:
            self.schedule()

    def accept_connection(self, ConnectionBase connection not None):
        """Pass a new connection to the service; a rejected one is closed."""
        try:
            connection.known = self.service.connected(connection)
        except Exception as error:
            self.fault("connected", error)
        if not connection.known:
            connection.shut("refused")

    def schedule(self):
        """Schedule one iteration."""
        if not self.scheduled:
            self.scheduled = True
            self.wake()

    cdef int write_pending(self) except -1:
        self.flushes += 1
        try:
            self.on_write_pending()
        except Exception as error:
            # It is unknown which requests were lost: close all connections of the iteration.
            self.fault("write_pending", error)
            for connection in self.active + self.deferred:
                (<ConnectionBase> connection).shut("internal error")
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

    cdef int note(self, ConnectionBase connection) except -1:
        if not connection.listed:
            connection.listed = True
            self.active.append(connection)
            if not self.in_iteration and not self.scheduled:
                self.schedule()
        return 0

    cdef int send_all(self) except -1:
        cdef list connections = self.active
        cdef ConnectionBase connection
        cdef Py_ssize_t i
        self.active = []
        for i in range(len(connections)):
            if i % LOOKS == LOOKS - 1:
                self.look()
                if self.now_ns >= self.deadline_ns:
                    self.deferred += connections[i:]
                    return 0
            connection = <ConnectionBase> connections[i]
            connection.listed = False
            if connection.finalized:
                continue
            try:
                connection.transmit()
                connection.resume()
                connection.update_interest()
            except Exception as error:
                self.fault("send", error)
                connection.shut("internal error")
        return 0

    cdef int deny(self, ConnectionBase connection) except -1:
        """A connection has unread bytes in its socket and no memory for them."""
        if self.memory.deny(connection):
            self.log_limited(
                "memory",
                f"request memory limit reached ({self.memory.held_bytes} of {self.memory.limit} bytes in flight, "
                f"queued.max.request.bytes): reads of connections above their share are paused",
            )
        return self.note(connection)

    cdef int close_all(self) except -1:
        cdef ConnectionBase connection
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
                if connection.finalized:
                    continue
                connection.finalized = True
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
        """Log an unexpected exception, with its traceback, at most once per location and minute."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        key = (site, type(error), trace.tb_frame.f_code if trace is not None else None, trace and trace.tb_lineno)
        if self.may_log(key):
            LOGGER.error("%s raised in %s", type(error).__name__, site, exc_info=error)

    def log_limited(self, str site, str text):
        """Log a warning, at most once per site and minute."""
        if self.may_log(site):
            LOGGER.warning("%s", text)

    def may_log(self, key):
        """Whether `key` was not logged in the last minute; it counts as logged now."""
        now = time.monotonic()
        if now - self.faults.get(key, -FAULT_INTERVAL_S) < FAULT_INTERVAL_S:
            return False
        if len(self.faults) >= SITES_MAX:
            self.faults.clear()  # sites with addresses: some are logged again
        self.faults[key] = now
        return True
