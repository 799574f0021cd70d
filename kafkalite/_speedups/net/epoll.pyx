"""Receives and sends on plaintext connections on Linux, with a private epoll descriptor behind one add_reader.

Connections are received, parsed, answered and closed in iterations (`loop`). The event loop, uvloop or asyncio's own,
sees one readable descriptor. The GIL is kept around the non-blocking system calls: releasing it beside a busy thread
costs more than they do. Rules:

1. EPOLL_CTL_DEL precedes close, and every descriptor is CLOEXEC. An event identifies its connection by descriptor and
   token, not by address: events of a closed connection are ignored.
2. Sending is tried at once; EPOLLOUT is requested only after EAGAIN. Nothing is received into zero bytes.
3. EPOLLERR and EPOLLHUP close a connection in any state. EPOLLRDHUP is requested until it was reported once: so a
   connection that is not read also detects the end of its peer.
4. Each connection has its own `try`: the event loop would call a callback that raises again without end.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno as c_errno
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from kafkalite._speedups.storage.file cimport FileRegion, iovec
from kafkalite._speedups.net.framing cimport Connection
from kafkalite._speedups.net.loop cimport Hub, Limits
from kafkalite._speedups.net.responses cimport Reply
from kafkalite._speedups.wire.wire cimport store_u32

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event *event)
    int epoll_wait(int epfd, epoll_event *events, int maxevents, int timeout)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP
    int EPOLLRDHUP

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t recv(int fd, void *buffer, size_t length, int flags)
    ssize_t sendmsg(int fd, const msghdr *message, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL, MSG_MORE

cdef extern from "<sys/types.h>" nogil:
    ctypedef long long off_t

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int out_fd, int in_fd, off_t *offset, size_t count)

cdef extern from "<unistd.h>" nogil:
    int close(int fd)
    ssize_t pread(int fd, void *buffer, size_t count, off_t offset)

cdef enum:
    SIZE_BYTES = 4
    SCRATCH_BYTES = 128 * 1024   # sizes, small parts and small regions of one send
    GATHER_MAX = 100 * 1024      # a region that fits behind the gathered bytes is copied, else sent by sendfile
    COPY_MAX = 4 * 1024          # smaller parts are copied, larger ones are sent from their own memory
    PARTS_MAX = 256              # iovec entries of one send
    EVENTS_MAX = 64              # a slice of ready sockets
    SLICES_MAX = 8               # slices of one iteration
    RECEIVED_MAX = 8 << 20       # bytes after which an iteration ends
    RECEIVES_MAX = 16            # receives of one connection in one iteration
    SENDS_MAX = 64               # sends of one connection in one iteration


cdef class SocketConnection(Connection):
    """A connection on one descriptor of the reactor's epoll."""
    cdef int fd
    cdef uint32_t interest, token
    cdef bint blocked

    @property
    def fileno(self):
        return self.fd

    cdef Py_ssize_t receive(self) except -1:
        """Receive as long as the buffer gets filled. Returns the number of received bytes."""
        cdef Py_ssize_t capacity, total = 0
        cdef ssize_t n
        cdef uint8_t *target
        cdef int _i
        for _i in range(RECEIVES_MAX):
            if not self.wants_bytes():
                if self.may_receive():
                    self.hub.deny(self)
                self.hub.note(self)  # at its end these events are disabled
                break
            target = self.target(&capacity)
            n = recv(self.fd, target, capacity, MSG_DONTWAIT)
            if n > 0:
                total += n
                self.received(n)
                if n < capacity:
                    break
            elif n == 0:
                self.eof()
                break
            elif c_errno == EINTR:
                continue
            else:
                if c_errno != EAGAIN:
                    self.shut(f"receive failed: {os.strerror(c_errno)}")
                break
        return total

    cpdef transmit(self):
        cdef Reactor reactor = <Reactor> self.hub
        cdef int _i
        cdef ssize_t n
        cdef Py_ssize_t wanted
        self.blocked = False
        self.advance(0)
        for _i in range(SENDS_MAX):
            if self.closed or self.head is None or not self.head.answered:
                return
            if reactor.gather(self) < 0:
                return
            wanted = reactor.gathered
            if wanted:
                n = reactor.send_gathered(self.fd)
            elif reactor.file_left == 0:
                return
            else:
                wanted = reactor.file_left
                n = sendfile(self.fd, reactor.file_fd, &reactor.file_at, wanted)
                if n == 0:
                    self.shut("a file is shorter than the response")
                    return
            if n < 0:
                if c_errno == EAGAIN:
                    self.blocked = True
                elif c_errno == EINTR:
                    continue
                else:
                    self.shut(f"send failed: {os.strerror(c_errno)}")
                return
            self.advance(n)
            if n < wanted and reactor.gathered:
                self.blocked = True
                return
        self.blocked = self.unsent > 0

    cpdef update_interest(self):
        cdef uint32_t wanted = 0
        if self.closed:
            return
        # Without memory EPOLLIN stays enabled until bytes arrive: only then the connection waits for memory.
        if self.may_receive() and not self.denied:
            wanted |= EPOLLIN
        if not self.hung_up:
            wanted |= EPOLLRDHUP
        if self.blocked:
            wanted |= EPOLLOUT
        if wanted != self.interest:
            (<Reactor> self.hub).control(EPOLL_CTL_MOD, self.fd, wanted, self.token)
            self.interest = wanted

    cpdef gone(self):
        (<Reactor> self.hub).forget(self)


cdef class Reactor(Hub):
    """All plaintext connections of one event loop: the epoll descriptor and the shared memory."""
    cdef object loop
    cdef int epfd
    cdef uint32_t tokens
    cdef dict by_fd, by_host
    cdef uint8_t *scratch
    cdef iovec parts[PARTS_MAX]
    cdef int parts_count
    cdef Py_ssize_t scratch_at, gathered
    cdef int file_fd
    cdef off_t file_at
    cdef Py_ssize_t file_left
    cdef bint region_follows     # directly behind the gathered bytes
    cdef epoll_event events[EVENTS_MAX]
    cdef int events_at, events_count   # unhandled events of the last epoll_wait
    cdef double now
    cdef readonly Py_ssize_t connections_count
    cdef public object on_closed  # called after each closing

    def __cinit__(self):
        self.epfd = -1
        self.scratch = <uint8_t *> malloc(SCRATCH_BYTES)
        if self.scratch == NULL:
            raise MemoryError("no memory for the send buffer")

    def __dealloc__(self):
        free(self.scratch)
        if self.epfd >= 0:
            close(self.epfd)

    def __init__(self, loop, service, Limits limits=None):
        Hub.__init__(self, service, limits)
        self.loop = loop
        self.by_fd = {}
        self.by_host = {}
        self.epfd = epoll_create1(EPOLL_CLOEXEC)
        if self.epfd < 0:
            raise OSError(c_errno, f"epoll_create1: {os.strerror(c_errno)}")
        loop.add_reader(self.epfd, self.ready)

    cpdef wake(self):
        self.loop.call_soon(self.complete)

    def complete(self):
        """Run an iteration without ready sockets."""
        self.now = self.loop.time()
        self.run()

    cdef int control(self, int operation, int fd, uint32_t events, uint32_t token) except -1:
        cdef epoll_event event
        memset(&event, 0, sizeof(event))
        event.events = events
        event.data.u64 = (<uint64_t> token << 32) | <uint32_t> fd
        if epoll_ctl(self.epfd, operation, fd, &event) < 0:
            raise OSError(c_errno, f"epoll_ctl: {os.strerror(c_errno)}")
        return 0

    def ready(self):
        """Run an iteration over a bounded number of ready sockets."""
        cdef int _slice
        cdef Py_ssize_t received = 0
        self.now = self.loop.time()
        self.begin()
        try:
            for _slice in range(SLICES_MAX):
                if self.events_at == self.events_count:
                    self.events_at = 0
                    self.events_count = max(0, epoll_wait(self.epfd, self.events, EVENTS_MAX, 0))
                self.share(self.events_count)
                received += self.handle_events()
                if self.events_at < self.events_count or self.events_count < EVENTS_MAX or received >= RECEIVED_MAX:
                    break
        finally:
            self.end()

    cdef Py_ssize_t handle_events(self) except -1:
        """Handle the events of the last epoll_wait, in order, within the time of this iteration.

        The next iteration begins at once, as epoll still reports these sockets, and handles the rest first. Else the
        sockets at the end of epoll's list would be served less often.
        """
        cdef Py_ssize_t received = 0
        cdef epoll_event *event
        while self.events_at < self.events_count and self.now_ns < self.deadline_ns:
            event = &self.events[self.events_at]
            self.events_at += 1
            received += self.handle(event.events, event.data.u64)
        return received

    cdef Py_ssize_t handle(self, uint32_t events, uint64_t data) except -1:
        cdef int fd = <int> (data & 0xffffffff)
        cdef SocketConnection connection
        cdef Py_ssize_t received = 0
        entry = self.by_fd.get(fd)
        if entry is None:
            return 0
        if type(entry) is not SocketConnection:
            try:
                entry()
            except Exception as error:
                self.fault("accept", error)
            return 0
        connection = <SocketConnection> entry
        if connection.token != <uint32_t> (data >> 32) or connection.closed:
            return 0
        try:
            connection.active_at = self.now
            if events & EPOLLOUT:
                self.note(connection)
            if events & EPOLLIN:
                received = connection.receive()
            if events & EPOLLRDHUP:
                connection.hang_up()
            if events & (EPOLLERR | EPOLLHUP):
                connection.shut("reset by the peer")
        except Exception as error:
            self.fault("receive", error)
            connection.shut("internal error")
        return received

    cdef int gather(self, SocketConnection connection) except -2:
        """Gather the bytes of one send. Returns 0, or -1 if a file is too short (the connection is shut).

        If the next byte is in a large region, nothing is gathered and file_fd, file_at and file_left describe it.
        """
        cdef Reply reply = connection.head
        cdef Py_ssize_t skip = connection.head_sent
        cdef uint8_t[SIZE_BYTES] size
        self.parts_count = 0
        self.scratch_at = self.gathered = self.file_left = 0
        self.region_follows = False
        while reply is not None and reply.answered and not reply.closes:
            if reply.size:
                if self.scratch_at + SIZE_BYTES > SCRATCH_BYTES or self.parts_count + 2 > PARTS_MAX:
                    return 0
                if skip < SIZE_BYTES:
                    store_u32(size, <uint32_t> (reply.size - SIZE_BYTES))
                    memcpy(self.scratch + self.scratch_at, size + skip, SIZE_BYTES - skip)
                    self.add_scratch(SIZE_BYTES - skip)
                    skip = 0
                else:
                    skip -= SIZE_BYTES
                if PyBytes_CheckExact(reply.parts):
                    if not self.add_bytes(<bytes> reply.parts, &skip):
                        return 0
                else:
                    for part in <list> reply.parts:
                        if PyBytes_CheckExact(part):
                            if not self.add_bytes(<bytes> part, &skip):
                                return 0
                        else:
                            if not self.add_region(connection, <FileRegion> part, &skip):
                                return -1 if connection.closed else 0
                skip = 0
            reply = reply.following
        return 0

    cdef int add_scratch(self, Py_ssize_t n) except -1:
        cdef uint8_t *p = self.scratch + self.scratch_at
        cdef iovec *last
        if self.parts_count:
            last = &self.parts[self.parts_count - 1]
            if <uint8_t *> last.iov_base + last.iov_len == p:
                last.iov_len += n
                self.scratch_at += n
                self.gathered += n
                return 0
        self.parts[self.parts_count].iov_base = p
        self.parts[self.parts_count].iov_len = n
        self.parts_count += 1
        self.scratch_at += n
        self.gathered += n
        return 0

    cdef bint add_bytes(self, bytes data, Py_ssize_t *skip) except -1:
        cdef Py_ssize_t n = PyBytes_GET_SIZE(data) - skip[0]
        cdef const char *p = PyBytes_AS_STRING(data) + skip[0]
        if n <= 0:
            skip[0] = -n
            return True
        if self.parts_count == PARTS_MAX:
            return False
        skip[0] = 0
        if n <= COPY_MAX:
            if self.scratch_at + n > SCRATCH_BYTES:
                return False
            memcpy(self.scratch + self.scratch_at, p, n)
            self.add_scratch(n)
        else:
            self.parts[self.parts_count].iov_base = <void *> p
            self.parts[self.parts_count].iov_len = n
            self.parts_count += 1
            self.gathered += n
        return True

    cdef bint add_region(self, SocketConnection connection, FileRegion region, Py_ssize_t *skip) except -1:
        cdef Py_ssize_t length = region.length
        cdef Py_ssize_t n = length - skip[0]
        cdef off_t at
        cdef ssize_t done
        if n <= 0:
            skip[0] -= length
            return True
        at = <off_t> region.offset + skip[0]
        if n > GATHER_MAX - self.scratch_at or self.parts_count == PARTS_MAX:
            if self.gathered == 0:
                self.file_fd = region.file.fd
                self.file_at = at
                self.file_left = n
            else:
                self.region_follows = True
            return False
        skip[0] = 0
        while n:
            done = pread(region.file.fd, self.scratch + self.scratch_at, n, at)
            if done <= 0:
                if done < 0 and c_errno == EINTR:
                    continue
                connection.shut("a file is shorter than the response" if done == 0
                                else f"reading a file failed: {os.strerror(c_errno)}")
                return False
            self.add_scratch(done)
            at += done
            n -= done
        return True

    cdef ssize_t send_gathered(self, int fd) noexcept:
        cdef msghdr message
        memset(&message, 0, sizeof(message))
        message.msg_iov = self.parts
        message.msg_iovlen = self.parts_count
        return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL | (MSG_MORE if self.region_follows else 0))

    cdef int forget(self, SocketConnection connection) except -1:
        cdef int fd = connection.fd
        if fd < 0:
            return 0
        connection.fd = -1
        self.by_fd.pop(fd, None)
        count = self.by_host[connection.peer_host] - 1
        if count:
            self.by_host[connection.peer_host] = count
        else:
            del self.by_host[connection.peer_host]
        # Closing with unread bytes resets the connection and may destroy responses in flight.
        for _ in range(RECEIVES_MAX):
            if recv(fd, self.scratch, SCRATCH_BYTES, MSG_DONTWAIT) <= 0:
                break
        try:
            self.control(EPOLL_CTL_DEL, fd, 0, 0)
        finally:
            close(fd)
        self.connections_count -= 1
        if self.on_closed is not None:
            self.on_closed()
        return 0

    def adopt(self, int fd, str listener, peer, local):
        """Serve a connected, non-blocking descriptor; the reactor owns it from now on.

        Arguments:
            fd: the descriptor.
            listener: name of the listener.
            peer, local: (host, port) each.
        """
        cdef SocketConnection connection = SocketConnection(self, listener, peer, local)
        self.tokens += 1
        connection.fd = fd
        connection.token = self.tokens
        connection.active_at = self.now
        connection.interest = EPOLLIN | EPOLLRDHUP
        try:
            self.control(EPOLL_CTL_ADD, fd, connection.interest, connection.token)
        except OSError:
            close(fd)
            raise
        self.by_host[connection.peer_host] = self.by_host.get(connection.peer_host, 0) + 1
        self.by_fd[fd] = connection
        self.connections_count += 1
        self.accept_connection(connection)

    def watch(self, int fd, listener_socket, bint muted=False):
        """Call `listener_socket()` when the listening descriptor `fd` is readable, unless `muted`."""
        self.by_fd[fd] = listener_socket
        self.control(EPOLL_CTL_ADD, fd, 0 if muted else EPOLLIN, 0)

    def mute(self, int fd, bint muted):
        """Stop or continue the calls for the listening descriptor `fd`."""
        self.control(EPOLL_CTL_MOD, fd, 0 if muted else EPOLLIN, 0)

    def unwatch(self, int fd):
        """Remove the listening descriptor `fd`; the caller closes it afterwards."""
        del self.by_fd[fd]
        self.control(EPOLL_CTL_DEL, fd, 0, 0)

    def connections_of(self, str host):
        """Number of connections of `host`."""
        return self.by_host.get(host, 0)

    def connections(self):
        """The open connections, as a list."""
        return [entry for entry in self.by_fd.values() if type(entry) is SocketConnection]

    def abort(self, str reason):
        """Close all connections."""
        for connection in self.connections():
            connection.close(reason)

    def close_idle(self, double idle_s, double half_closed_s):
        """Close overdue connections; limits in seconds as in `overdue`."""
        cdef SocketConnection connection
        self.now = self.loop.time()
        for entry in list(self.by_fd.values()):
            if type(entry) is SocketConnection:
                connection = <SocketConnection> entry
                reason = connection.overdue(self.now, idle_s, half_closed_s, connection.blocked)
                if reason is not None:
                    connection.shut(reason)

    def dispose(self):
        """Close the epoll descriptor. All connections must be closed."""
        if self.connections_count:
            raise RuntimeError(f"{self.connections_count} connections are still open")
        if self.epfd >= 0:
            self.loop.remove_reader(self.epfd)
            close(self.epfd)
            self.epfd = -1
