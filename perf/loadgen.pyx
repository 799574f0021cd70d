"""A load generator for measurements: pre-encoded requests over many connections, in one C loop without the GIL.

It runs in a process of its own, so that the broker's CPU is the broker's. Every answer is checked: its correlation id
is the one that is due on its connection and, where the caller says at which byte it stands, its error code is 0. A run
with a wrong answer, a closed connection or a silent broker raises; it never reports figures.
"""

import os
import resource
import socket

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno as c_errno
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove, memset

from perf.histogram cimport BUCKETS, bucket_of, bucket_value
from kafkalite._speedups.wire.wire cimport (
    BatchHeader, HEADER_SIZE, LENGTH_OVERHEAD, Span, load_u16, load_u32, read_batch_header, store_u32, store_u64, take,
)

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event *event)
    int epoll_wait(int epfd, epoll_event *events, int maxevents, int timeout)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLIN, EPOLLOUT

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void *buffer, size_t length, int flags)
    ssize_t send(int fd, const void *buffer, size_t length, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef extern from "<time.h>" nogil:
    ctypedef long time_t
    struct timespec:
        time_t tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec *now)
    int CLOCK_MONOTONIC

cdef enum:
    SIZE_BYTES = 4
    CORRELATION_AT = 8        # in a request with its size: size, api key, version
    RECEIVE_BYTES = 256 * 1024
    HEAD_BYTES = 256          # of an answer kept for its checks
    EVENTS_MAX = 256

cdef enum:
    FAULT_CORRELATION, FAULT_ERROR_CODE, FAULT_CLOSED, FAULT_SIZE, FAULT_SILENT, FAULT_SYSTEM

FAULTS = [
    "an answer has correlation id {0}, due was {1}",
    "an answer has error code {0}",
    "the broker closed a connection (errno {0}, {1} answers were due)",
    "an answer has an impossible size of {0} bytes",
    "no answer came for {0} ms",
    "a system call failed with errno {0}",
]


cdef struct Link:
    int fd
    bint wants_out
    int in_flight
    uint32_t sent_id          # correlation id of the next request to be sent
    uint32_t due_id           # of the next answer
    Py_ssize_t out_from, out_to, out_size
    uint8_t *out              # encoded requests not sent yet
    Py_ssize_t head_have      # bytes of the present answer's beginning kept
    int64_t body_left         # bytes of the present answer still to come
    uint8_t[HEAD_BYTES] head
    int64_t *sent_at          # when each request in flight was sent, a ring of `depth`


cdef struct Load:
    int links_count, depth, requests_count, epfd, error_at
    Link *links
    const uint8_t **requests
    Py_ssize_t *sizes
    Py_ssize_t request_bytes_max, head_wanted
    uint64_t asked, answered, count, bytes_in, bytes_out
    int64_t started_ns, until_ns, last_ns, timeout_ns, finished_ns
    uint64_t[BUCKETS] latency
    int64_t latency_max
    int fault
    int64_t fault_value, fault_due
    uint8_t *buffer


cdef int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


cdef int fail(Load *load, int fault, int64_t value, int64_t due) noexcept nogil:
    load.fault = fault
    load.fault_value = value
    load.fault_due = due
    return -1


cdef int flush(Load *load, int index) noexcept nogil:
    cdef Link *link = &load.links[index]
    cdef ssize_t n
    cdef bint blocked = False
    while link.out_from < link.out_to:
        n = send(link.fd, link.out + link.out_from, link.out_to - link.out_from, MSG_DONTWAIT | MSG_NOSIGNAL)
        if n < 0:
            if c_errno == EINTR:
                continue
            if c_errno != EAGAIN:
                return fail(load, FAULT_CLOSED, c_errno, link.in_flight)
            blocked = True
            break
        load.bytes_out += n
        link.out_from += n
    if blocked != link.wants_out:
        link.wants_out = blocked
        return watch(load, index, EPOLL_CTL_MOD)
    return 0


cdef int watch(Load *load, int index, int operation) noexcept nogil:
    cdef epoll_event event
    memset(&event, 0, sizeof(event))
    event.events = EPOLLIN | (EPOLLOUT if load.links[index].wants_out else 0)
    event.data.u64 = index
    if epoll_ctl(load.epfd, operation, load.links[index].fd, &event) < 0:
        return fail(load, FAULT_SYSTEM, c_errno, 0)
    return 0


cdef int fill(Load *load, int index) noexcept nogil:
    """Ask until `depth` requests are in flight or the run is over, then send."""
    cdef Link *link = &load.links[index]
    cdef int which
    cdef uint8_t *p
    if link.out_from:
        memmove(link.out, link.out + link.out_from, link.out_to - link.out_from)
        link.out_to -= link.out_from
        link.out_from = 0
    while link.in_flight < load.depth:
        if load.asked >= load.count if load.count else load.last_ns >= load.until_ns:
            break
        which = <int> (load.asked % load.requests_count)
        if link.out_size - link.out_to < load.sizes[which]:
            break
        p = link.out + link.out_to
        memcpy(p, load.requests[which], load.sizes[which])
        store_u32(p + CORRELATION_AT, link.sent_id)
        link.sent_at[link.sent_id % <uint32_t> load.depth] = load.last_ns
        link.out_to += load.sizes[which]
        link.sent_id += 1
        link.in_flight += 1
        load.asked += 1
    return flush(load, index)


cdef int judge(Load *load, Link *link) noexcept nogil:
    """An answer is whole: its id must be the one due, its error code 0."""
    cdef uint32_t correlation = load_u32(link.head + SIZE_BYTES)
    cdef int64_t latency
    if correlation != link.due_id or link.in_flight == 0:
        return fail(load, FAULT_CORRELATION, correlation, link.due_id)
    if load.error_at >= 0:
        if link.head_have < load.error_at + 2:
            return fail(load, FAULT_SIZE, link.head_have, 0)
        if load_u16(link.head + load.error_at) != 0:
            return fail(load, FAULT_ERROR_CODE, <int16_t> load_u16(link.head + load.error_at), 0)
    latency = load.last_ns - link.sent_at[correlation % <uint32_t> load.depth]
    load.latency[bucket_of(latency)] += 1
    load.latency_max = max(load.latency_max, latency)
    link.due_id += 1
    link.in_flight -= 1
    link.head_have = 0
    load.answered += 1
    return 0


cdef int digest(Load *load, Link *link, const uint8_t *p, Py_ssize_t left) noexcept nogil:
    """Walk received bytes: keep each answer's head, count its rest."""
    cdef Py_ssize_t n, wanted
    cdef int64_t size
    while left:
        if link.body_left < 0:
            n = min(SIZE_BYTES - link.head_have, left)
            memcpy(link.head + link.head_have, p, n)
            link.head_have += n
            p += n
            left -= n
            if link.head_have < SIZE_BYTES:
                return 0
            size = <int32_t> load_u32(link.head)
            if size < SIZE_BYTES:
                return fail(load, FAULT_SIZE, size, 0)
            link.body_left = size
            continue
        n = <Py_ssize_t> min(<int64_t> left, link.body_left)
        wanted = min(n, load.head_wanted - link.head_have)
        if wanted > 0:
            memcpy(link.head + link.head_have, p, wanted)
            link.head_have += wanted
        p += n
        left -= n
        link.body_left -= n
        if link.body_left == 0:
            link.body_left = -1
            if judge(load, link) < 0:
                return -1
    return 0


cdef int receive(Load *load, int index) noexcept nogil:
    cdef Link *link = &load.links[index]
    cdef ssize_t n = RECEIVE_BYTES
    while n == RECEIVE_BYTES:
        n = recv(link.fd, load.buffer, RECEIVE_BYTES, MSG_DONTWAIT)
        if n < 0 and c_errno == EINTR:
            n = RECEIVE_BYTES
            continue
        if n < 0 and c_errno == EAGAIN:
            return 0
        if n <= 0:
            return fail(load, FAULT_CLOSED, c_errno if n < 0 else 0, link.in_flight)
        load.bytes_in += n
        if digest(load, link, load.buffer, n) < 0:
            return -1
    return 0


cdef int drive(Load *load) noexcept nogil:
    cdef epoll_event[EVENTS_MAX] events
    cdef int i, n
    cdef uint64_t answered
    cdef int64_t progress = now_ns()
    load.started_ns = load.last_ns = progress
    for i in range(load.links_count):
        if fill(load, i) < 0:
            return -1
    while load.answered < load.asked:
        n = epoll_wait(load.epfd, events, EVENTS_MAX, 100)
        load.last_ns = now_ns()
        if n < 0 and c_errno != EINTR:
            return fail(load, FAULT_SYSTEM, c_errno, 0)
        answered = load.answered
        for i in range(n):
            if events[i].events & ~<uint32_t> EPOLLOUT and receive(load, <int> events[i].data.u64) < 0:
                return -1
            if fill(load, <int> events[i].data.u64) < 0:
                return -1
        if load.answered != answered:
            progress = load.last_ns
        elif load.last_ns - progress > load.timeout_ns:
            return fail(load, FAULT_SILENT, load.timeout_ns // 1000000, 0)
    load.finished_ns = now_ns()
    return 0


cdef class Generator:
    """Owns the memory and the sockets of one run."""
    cdef Load load
    cdef list kept

    def __cinit__(self):
        memset(&self.load, 0, sizeof(Load))
        self.load.epfd = -1

    def __dealloc__(self):
        cdef int i
        if self.load.links != NULL:
            for i in range(self.load.links_count):
                if self.load.links[i].fd >= 0:
                    close(self.load.links[i].fd)
                free(self.load.links[i].out)
                free(self.load.links[i].sent_at)
        if self.load.epfd >= 0:
            close(self.load.epfd)
        free(self.load.links)
        free(self.load.requests)
        free(self.load.sizes)
        free(self.load.buffer)

    def __init__(self, list requests, int connections, int depth):
        cdef int i
        if not requests or connections < 1 or depth < 1:
            raise ValueError("there must be a request, a connection and a depth of at least 1")
        self.kept = [len(each).to_bytes(4, "big") + each for each in requests]
        self.load.requests_count = len(requests)
        self.load.depth = depth
        self.load.requests = <const uint8_t **> calloc(len(requests), sizeof(uint8_t *))
        self.load.sizes = <Py_ssize_t *> calloc(len(requests), sizeof(Py_ssize_t))
        self.load.links = <Link *> calloc(connections, sizeof(Link))
        self.load.buffer = <uint8_t *> malloc(RECEIVE_BYTES)
        self.load.epfd = epoll_create1(EPOLL_CLOEXEC)
        if self.load.epfd < 0:
            raise OSError(c_errno, os.strerror(c_errno))
        if self.load.requests == NULL or self.load.sizes == NULL or self.load.links == NULL or self.load.buffer == NULL:
            raise MemoryError("no memory for the load generator")
        self.load.links_count = connections
        for i in range(connections):
            self.load.links[i].fd = -1
        for i in range(len(requests)):
            if len(requests[i]) < CORRELATION_AT:
                raise ValueError(f"request {i} is too short to hold a correlation id")
            self.load.requests[i] = <const uint8_t *> PyBytes_AS_STRING(self.kept[i])
            self.load.sizes[i] = PyBytes_GET_SIZE(self.kept[i])
            self.load.request_bytes_max = max(self.load.request_bytes_max, self.load.sizes[i])

    cdef int connect(self, str host, int port) except -1:
        cdef int i
        cdef Py_ssize_t size
        cdef Link *link
        for i in range(self.load.links_count):
            link = &self.load.links[i]
            connection = socket.create_connection((host, port), timeout=10)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)
            link.fd = connection.detach()
            link.body_left = -1
            size = self.load.request_bytes_max
            link.out_size = max(size, min(size * self.load.depth, 4 << 20))
            link.out = <uint8_t *> malloc(link.out_size)
            link.sent_at = <int64_t *> calloc(self.load.depth, sizeof(int64_t))
            if link.out == NULL or link.sent_at == NULL:
                raise MemoryError("no memory for a connection")
            if watch(&self.load, i, EPOLL_CTL_ADD) < 0:
                self.complain()
        return 0

    def complain(self):
        raise RuntimeError(FAULTS[self.load.fault].format(self.load.fault_value, self.load.fault_due))

    def percentile_ms(self, double share):
        """The latency that `share` of the answers did not exceed, in milliseconds."""
        cdef uint64_t wanted = <uint64_t> (share * self.load.answered)
        cdef uint64_t seen = 0
        cdef int i
        for i in range(BUCKETS):
            seen += self.load.latency[i]
            if seen > wanted:
                return min(bucket_value(i + 1), self.load.latency_max) / 1e6
        return self.load.latency_max / 1e6

    def measure(self, str host, int port, uint64_t count, double seconds, int error_at, double timeout_s):
        cdef int result
        self.load.count = count
        self.load.error_at = error_at + SIZE_BYTES if error_at >= 0 else -1
        self.load.head_wanted = max(2 * SIZE_BYTES, self.load.error_at + 2)
        self.load.timeout_ns = <int64_t> (timeout_s * 1e9)
        self.connect(host, port)
        cpu_before_s = cpu_s()
        self.load.until_ns = now_ns() + <int64_t> (seconds * 1e9)
        with nogil:
            result = drive(&self.load)
        if result < 0:
            self.complain()
        elapsed = (self.load.finished_ns - self.load.started_ns) / 1e9
        return {
            "requests": self.load.answered, "seconds": elapsed, "requests_per_s": self.load.answered / elapsed,
            "bytes_in": self.load.bytes_in, "bytes_out": self.load.bytes_out,
            "latency_p50_ms": self.percentile_ms(0.5),
            "latency_p99_ms": self.percentile_ms(0.99),
            "latency_p999_ms": self.percentile_ms(0.999),
            "latency_max_ms": self.load.latency_max / 1e6,
            "cpu_s": cpu_s() - cpu_before_s,
        }


def cpu_s():
    """CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def run(
    str host, int port, list requests, int connections=1, int depth=1, *, uint64_t count=0, double seconds=0.0,
    int error_at=-1, double timeout_s=30.0,
):
    """Drive a broker and measure.

    Args:
        host, port: the broker.
        requests: encoded requests with header and without size, sent in turn; each gets its own correlation id.
        connections, depth: how many connections, and how many requests are in flight on each.
        count, seconds: when to stop asking; exactly one of them.
        error_at: where in an answer (without size) a 16-bit error code stands, up to 250; -1 = not checked.
        timeout_s: how long no answer may come.

    Returns: requests, seconds, requests_per_s, bytes_in, bytes_out, latency_*_ms, cpu_s (of this process).
    Raises: RuntimeError for a wrong answer, an error code, a closed connection, silence; OSError when connecting fails.
    """
    if (count > 0) == (seconds > 0):
        raise ValueError("give either count or seconds")
    if error_at > HEAD_BYTES - SIZE_BYTES - 2:
        raise ValueError(f"error_at is at most {HEAD_BYTES - SIZE_BYTES - 2}")
    return Generator(requests, connections, depth).measure(host, port, count, seconds, error_at, timeout_s)


cdef int64_t count_records(Span *span, int64_t *next_offset) except -1:
    """Count the records of whole batches by their headers; a batch cut at the end is left out."""
    cdef BatchHeader header
    cdef int64_t records = 0
    cdef Py_ssize_t size
    while read_batch_header(span.at, span.left, &header) == 0:
        size = <Py_ssize_t> header.batch_length + LENGTH_OVERHEAD
        if header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD or header.magic != 2 or header.records_count < 0:
            raise RuntimeError("a fetched batch has an impossible header")
        if take(span, size) == NULL:
            break
        if header.base_offset + header.last_offset_delta < next_offset[0]:
            continue
        records += header.records_count
        next_offset[0] = header.base_offset + header.last_offset_delta + 1
    return records


def consume(
    str host, int port, bytes request, int offset_at, int records_at, *, int64_t offset=0, int64_t end_offset,
    double timeout_s=30.0,
):
    """Fetch one partition from `offset` to `end_offset`, one request at a time, counting records by batch headers.

    Args:
        request: an encoded Fetch request with header and without size, that answers at least one batch.
        offset_at: where in it the 64-bit fetch offset stands.
        records_at: where in an answer (without size) the 32-bit length of the records stands (versions below 12).

    Returns: records, bytes (of batches), requests, seconds, records_per_s, cpu_s.
    Raises: RuntimeError when nothing more comes before `end_offset` or an answer is broken; OSError of the socket.
    """
    cdef bytearray frame = bytearray(len(request).to_bytes(4, "big") + request)
    cdef bytearray buffer = bytearray(1 << 20)
    cdef int64_t next_offset = offset, records = 0, requests = 0, total = 0, size, length
    cdef uint8_t[::1] out = frame
    cdef uint8_t[::1] answer
    cdef Span span
    if offset_at < 0 or offset_at + 8 > len(request) or records_at < 4:
        raise ValueError("offset_at and records_at must lie in the request and in the answer")
    cpu_before_s = cpu_s()
    started = now_ns()
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while next_offset < end_offset:
            requests += 1
            store_u32(&out[CORRELATION_AT], <uint32_t> requests)
            store_u64(&out[SIZE_BYTES + offset_at], <uint64_t> next_offset)
            connection.sendall(frame)
            receive_exactly(connection, memoryview(buffer)[:4])
            size = int.from_bytes(buffer[:4], "big", signed=True)
            if size < records_at + 4:
                raise RuntimeError(f"an answer of {size} bytes holds no records")
            if size > len(buffer):
                buffer = bytearray(size)
            receive_exactly(connection, memoryview(buffer)[:size])
            answer = buffer
            if load_u32(&answer[0]) != <uint32_t> requests:
                raise RuntimeError(f"an answer has correlation id {load_u32(&answer[0])}, due was {requests}")
            length = <int32_t> load_u32(&answer[records_at])
            if length <= 0 or length > size - records_at - 4:
                raise RuntimeError(f"no records at offset {next_offset}, wanted are those up to {end_offset}")
            span.at = &answer[records_at] + 4
            span.left = length
            total += length
            size = next_offset
            records += count_records(&span, &next_offset)
            if next_offset == size:
                raise RuntimeError(f"no whole batch at offset {next_offset}")
    elapsed = (now_ns() - started) / 1e9
    return {
        "records": records, "bytes": total, "requests": requests,
        "seconds": elapsed, "records_per_s": records / elapsed,
        "cpu_s": cpu_s() - cpu_before_s,
    }


def receive_exactly(connection, view):
    """Fill `view` from a socket; RuntimeError when it ends before."""
    while len(view):
        n = connection.recv_into(view)
        if n == 0:
            raise RuntimeError("the broker closed the connection")
        view = view[n:]
