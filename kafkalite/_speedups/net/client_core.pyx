# cython: nonecheck=True
"""The steps of a client's connection that each request needs: encode it, split bytes into responses, decode them.

Invariants of `FrameReader`:
1. Memory grows with the bytes that arrive: a size field reserves at most as much as the last large frame had.
2. A frame is memory of its own, which the receiver may keep. A small frame is copied once. A frame of `LARGE_BYTES` or
   more is received in place: its memory is handed over without a copy.
3. The memory of the last large frames is used again when nothing refers to them any more. New memory of this size costs
   a page fault for each 4 KiB, which took two thirds of a consumer's CPU time.

Those of `ClientCalls` are in `kafkalite.net.client.core`, which completes it. `kafkalite.net.client.connection`
completes `TransportWriter`.
"""

cimport cython

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE
from cpython.ref cimport Py_REFCNT
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kafkalite._speedups.codec.decoder cimport decode
from kafkalite._speedups.wire.wire cimport load_u32, store_u32

from collections import deque
from math import inf

from kafkalite._speedups.codec import encode_request_parts, read_response_header
from kafkalite.errors import DecodeError, KafkaConnectionError, KafkaErrorCode, SslAuthenticationError, error_for

__all__ = ["ClientCalls", "FrameReader", "PendingCall", "TransportWriter"]

cdef enum:
    API_VERSIONS = 18
    CORRELATION_ID_MAX = 0x7fffffff
    SIZE_BYTES = 4
    FRAME_BYTES_MIN = 4    # a correlation id
    INITIAL_BYTES = 65536
    LARGE_BYTES = 65536
    SPARES_MAX = 2              # one with unread records, and one for the next response
    SPARE_BYTES_MAX = 16 << 20
    SMALL_FRAMES_MAX = 16       # after so many without a large one, the memory is given back
    NO_FRAME = -1
    TLS_ALERT = 0x1503     # the first bytes of an alert, with which a TLS listener answers a plaintext request


cdef extern from "Python.h":
    ctypedef struct PyByteArrayObject:
        Py_ssize_t ob_exports


cdef inline bint is_unused(bytearray buffer) noexcept:
    """Whether nothing but the list of a `FrameReader` and the caller refers to a buffer."""
    return (<PyByteArrayObject *> buffer).ob_exports == 0 and Py_REFCNT(buffer) == 2


@cython.final
cdef class FrameReader:
    """The receive buffer of one connection; see client_core.pyi."""
    cdef list spares               # the memory of the last large frames
    cdef int small_frames          # since the last large one
    cdef bytearray buffer
    cdef object whole              # a memoryview of `buffer`
    cdef Py_ssize_t start          # of the first frame that is not complete
    cdef Py_ssize_t end            # of the received bytes
    cdef Py_ssize_t frame_bytes_max
    cdef Py_ssize_t large_bytes    # size of the last large frame

    def __init__(self, Py_ssize_t frame_bytes_max):
        self.frame_bytes_max = frame_bytes_max
        self.start = self.end = 0
        self.spares = []
        self.use(bytearray(INITIAL_BYTES))

    cdef int use(self, bytearray buffer) except -1:
        self.buffer = buffer
        self.whole = memoryview(buffer)
        return 0

    cpdef object free_space(self):
        """The memory for the next bytes; see client_core.pyi."""
        if self.end == 0:
            return self.whole
        if self.end == PyByteArray_GET_SIZE(self.buffer):
            self.make_space()
        return self.whole[self.end:]

    cpdef int received(self, Py_ssize_t count) except -1:
        """Add received bytes; see client_core.pyi."""
        self.end += count
        return 0

    cpdef object next_frame(self):
        """The next whole frame; see client_core.pyi."""
        cdef Py_ssize_t size = self.next_size()
        cdef Py_ssize_t begin = self.start + SIZE_BYTES
        if size == NO_FRAME or self.end - begin < size:
            if self.start == self.end:
                self.start = self.end = 0
            return None
        self.start = begin + size
        if size >= LARGE_BYTES:
            return self.hand_over(begin, size)
        if self.spares:
            self.small_frames += 1
            if self.small_frames > SMALL_FRAMES_MAX:
                self.spares = []
        return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(self.buffer) + begin, size)

    cdef Py_ssize_t next_size(self) except -2:
        cdef Py_ssize_t size
        if self.end - self.start < SIZE_BYTES:
            return NO_FRAME
        size = <int32_t> load_u32(<const uint8_t *> PyByteArray_AS_STRING(self.buffer) + self.start)
        if FRAME_BYTES_MIN <= size <= self.frame_bytes_max:
            return size
        if size >> 16 == TLS_ALERT:
            raise SslAuthenticationError(
                'the broker answered with a TLS alert; the listener expects TLS: set security_protocol to "SSL" or '
                '"SASL_SSL"'
            )
        raise KafkaConnectionError(
            f"a response of {size} bytes, allowed are {FRAME_BYTES_MIN} to {self.frame_bytes_max}; "
            "is it a broker's port, without TLS?"
        )

    cdef object hand_over(self, Py_ssize_t begin, Py_ssize_t size):
        cdef bytearray buffer = self.buffer
        frame = self.whole[begin:begin + size]
        self.large_bytes = size
        self.small_frames = 0
        self.replace(max(INITIAL_BYTES, self.end - self.start))
        if PyByteArray_GET_SIZE(buffer) <= SPARE_BYTES_MAX:
            self.spares.append(buffer)
            if len(self.spares) > SPARES_MAX:
                del self.spares[0]
        return frame

    cdef bytearray memory(self, Py_ssize_t length):
        """Memory of at least `length` bytes, not cleared: that of a former frame, or new one."""
        cdef bytearray spare
        cdef int position
        if length >= LARGE_BYTES:
            for position in range(len(self.spares)):
                spare = self.spares[position]
                if length <= PyByteArray_GET_SIZE(spare) and is_unused(spare):
                    del self.spares[position]
                    return spare
        return PyByteArray_FromStringAndSize(NULL, length)

    cdef int make_space(self) except -1:
        """Enlarge the memory, at most to the end of the frame that arrives; a frame in front of it is dropped."""
        cdef Py_ssize_t wanted = 2 * PyByteArray_GET_SIZE(self.buffer)
        cdef Py_ssize_t size = self.next_size()
        if self.start and self.end - self.start < wanted // 4:
            wanted //= 2
        if NO_FRAME < size <= self.large_bytes:
            wanted = SIZE_BYTES + size  # at once, instead of by copies that double
        self.replace(wanted if size == NO_FRAME else max(INITIAL_BYTES, min(wanted, SIZE_BYTES + size)))
        return 0

    cdef int replace(self, Py_ssize_t length) except -1:
        """Move the bytes from `start` on to new memory: the old one may be in use by a frame or by the transport."""
        cdef bytearray buffer = self.memory(length)
        cdef Py_ssize_t pending = self.end - self.start
        memcpy(PyByteArray_AS_STRING(buffer), PyByteArray_AS_STRING(self.buffer) + self.start, pending)
        self.start = 0
        self.end = pending
        return self.use(buffer)


@cython.final
@cython.freelist(64)
cdef class PendingCall:
    """A request whose response has not arrived; see client_core.pyi."""
    cdef readonly object request
    cdef readonly int version
    cdef readonly int32_t correlation_id
    cdef readonly double deadline
    cdef readonly object answer
    cdef readonly object fail
    cdef readonly bint keep_connection
    cdef public bint ended

    @property
    def name(self):
        return self.request.__name__


cdef class ClientCalls:
    """The open calls of a connection; see client_core.pyi."""
    cdef readonly str name
    cdef public object client_id
    cdef readonly Py_ssize_t responses
    cdef public dict api_versions
    cdef public object failure
    cdef public double next_deadline
    cdef public double throttled_until
    cdef public object pending
    cdef public list outgoing
    cdef public list unwritten
    cdef public object held
    cdef FrameReader frames
    cdef dict response_classes
    cdef object response_class
    cdef int32_t correlation_id

    def __init__(self, str name not None, client_id, Py_ssize_t frame_bytes_max, response_class):
        self.name = name
        self.client_id = client_id
        self.api_versions = {}
        self.failure = KafkaConnectionError(f"{name}: not connected")
        self.next_deadline = inf
        self.throttled_until = -inf
        self.pending = deque()
        self.outgoing = []
        self.unwritten = []
        self.frames = FrameReader(frame_bytes_max)
        self.response_classes = {}
        self.response_class = response_class

    cpdef int version(self, request, version_max=None) except -1:
        """The highest version of a request that both sides know; see client_core.pyi."""
        cdef tuple served = self.api_versions.get(request.api_key)
        cdef tuple known = request.versions
        cdef int low = known[0]
        cdef int high = known[1] if version_max is None else version_max
        if served is None:
            raise error_for(
                KafkaErrorCode.UNSUPPORTED_VERSION,
                f"{self.name} does not serve {request.__name__} (key {request.api_key})",
            )
        high = min(high, <int> served[1])
        if high < max(low, <int> served[0]):
            raise error_for(
                KafkaErrorCode.UNSUPPORTED_VERSION,
                f"{self.name} serves {request.__name__} v{served[0]}-{served[1]}, this client v{low}-{known[1]}",
            )
        return high

    def call(
        self, request, int version, double deadline, answer, fail, *, bint keep_connection=False, bint ahead=False,
    ):
        """Queue a request; see client_core.pyi."""
        if self.failure is not None:
            fail(self.failure)
        else:
            self.queue(request, version, deadline, answer, fail, keep_connection, ahead)

    cdef int queue(
        self, request, int version, double deadline, answer, fail, bint keep_connection, bint ahead,
    ) except -1:
        cdef PendingCall call
        held = None if ahead else self.held
        call = PendingCall.__new__(PendingCall)
        call.correlation_id = self.write(request, version, self.outgoing if held is None else held.outgoing)
        call.request = type(request)
        call.version = version
        call.deadline = deadline
        call.answer = answer
        call.fail = fail
        call.keep_connection = keep_connection
        (self.pending if held is None else held.pending).append(call)
        if deadline < self.next_deadline:
            self.next_deadline = deadline
        return 0

    cpdef int32_t write(self, request, int version, list outgoing) except -1:
        """Encode a request; see client_core.pyi."""
        cdef int32_t correlation_id = self.correlation_id % CORRELATION_ID_MAX + 1
        cdef list parts = encode_request_parts(request, version, correlation_id, self.client_id)
        cdef uint8_t size[SIZE_BYTES]
        cdef Py_ssize_t count = 0
        for part in parts:
            count += len(part)
        store_u32(size, <uint32_t> count)
        parts[0] = PyBytes_FromStringAndSize(<char *> size, SIZE_BYTES) + <bytes> parts[0]
        outgoing += parts
        self.correlation_id = correlation_id
        return correlation_id

    cpdef list take_outgoing(self, double now):
        """The bytes to write; see client_core.pyi."""
        cdef list parts = self.outgoing
        if not parts or now < self.throttled_until:
            return []
        self.outgoing = []
        return parts

    def earliest_deadline(self):
        """The first deadline; see client_core.pyi."""
        raise NotImplementedError

    def written(self):
        """The transport has accepted the requests; see client_core.pyi."""
        raise NotImplementedError

    def free_space(self):
        """The memory for the next bytes; see client_core.pyi."""
        return self.frames.free_space()

    cpdef object received(self, Py_ssize_t count, double now):
        """Complete calls; see client_core.pyi."""
        cdef object first = None
        self.frames.received(count)
        while True:
            try:
                frame = self.frames.next_frame()
            except (KafkaConnectionError, SslAuthenticationError) as error:
                self.failure = type(error)(f"{self.name}: {error}")
                break
            if frame is None:
                break
            if self.failure is not None:
                continue
            try:
                self.receive(frame, now)
            except Exception as error:
                first = first or error
        if first is not None:
            raise first

    cdef int receive(self, frame, double now) except -1:
        cdef PendingCall call
        if not self.pending or (<PendingCall> self.pending[0]).correlation_id != correlation_id_of(frame):
            self.reject(correlation_id_of(frame))
            return 0
        call = self.pending.popleft()
        self.responses += 1
        if not self.pending:
            others = self.unwritten or self.held is not None
            self.next_deadline = self.earliest_deadline() if others else inf
        try:
            response = self.decoded(call, frame)
        except DecodeError as error:
            detail = f"{self.name}, response of {call.name} v{call.version}: {error.detail}"
            failure = DecodeError(error.kind, detail, error.position, error.field)
        else:
            throttle_ms = getattr(response, "throttle_time_ms", 0)
            if throttle_ms > 0:
                self.throttled_until = max(self.throttled_until, now + throttle_ms / 1000)
            if not call.ended:
                call.ended = True
                call.answer(response)
            return 0
        if not call.ended:
            call.ended = True
            call.fail(failure)
        return 0

    cdef int reject(self, int32_t correlation_id) except -1:
        expected = (<PendingCall> self.pending[0]).correlation_id if self.pending else "none"
        text = f"{self.name}: response with correlation id {correlation_id}, expected {expected}"
        self.failure = KafkaConnectionError(text)
        return 0

    cdef object decoded(self, PendingCall call, frame):
        cdef int version = call.version
        cls = self.response_classes.get(call.request)
        if cls is None:
            cls = self.response_classes[call.request] = self.response_class(call.request)
        body = body_of(cls, version, frame)
        if cls.api_key == API_VERSIONS and bytes(body[:2]) == b"\0\x23":
            version = 0  # UNSUPPORTED_VERSION is always answered in v0
        return decode(cls, version, body)


cdef class TransportWriter:
    """The steps of a connection's driver that each request needs; see client_core.pyi."""
    cdef readonly ClientCalls core
    cdef readonly object loop
    cdef public object transport
    cdef public bint writable
    cdef public double timer_at
    cdef object time

    def __init__(self, ClientCalls core not None, loop):
        self.core = core
        self.loop = loop
        self.time = loop.time
        self.timer_at = inf

    def close_failed(self):
        """Close the transport of a failed core; see client_core.pyi."""
        raise NotImplementedError

    def report(self, error):
        """A callback has failed; see client_core.pyi."""
        raise NotImplementedError

    def joined(self, parts):
        """Join small parts; see client_core.pyi."""
        raise NotImplementedError

    def set_timer(self, now):
        """Set the timer; see client_core.pyi."""
        raise NotImplementedError

    def get_buffer(self, sizehint):
        """The memory for the next bytes; see client_core.pyi."""
        return self.core.frames.free_space()

    def buffer_updated(self, Py_ssize_t nbytes):
        """Complete calls; see client_core.pyi."""
        cdef ClientCalls core = self.core
        try:
            try:
                core.received(nbytes, self.time())
            finally:
                if core.failure is not None:
                    self.close_failed()
        except Exception as error:  # the transport would end the connection, but only one callback has failed
            self.report(error)

    def submit_now(self, request, answer, fail, double deadline, version_max=None):
        """Queue and write a request; see client_core.pyi."""
        cdef ClientCalls core = self.core
        if core.failure is not None:
            return False
        core.queue(request, core.version(type(request), version_max), deadline, answer, fail, False, False)
        self.flush()
        return True

    cpdef object flush(self):
        """Write what the core has; see client_core.pyi."""
        cdef ClientCalls core = self.core
        cdef double now = self.time()  # once: between two reads the throttle time may pass, and no timer would be set
        cdef list parts = []
        if self.transport is not None and self.writable:
            parts = core.take_outgoing(now)
            for part in parts if len(parts) < 2 else self.joined(parts):
                if self.transport.is_closing():
                    break  # a write has failed, and the end follows; asyncio would log further writes
                self.transport.write(part)
        if core.next_deadline < self.timer_at or core.outgoing:
            self.set_timer(now)
        if parts and core.unwritten:
            core.written()


cdef int32_t correlation_id_of(frame) except? -1:
    if PyBytes_CheckExact(frame):
        return <int32_t> load_u32(<const uint8_t *> PyBytes_AS_STRING(frame))
    return int.from_bytes(frame[:4], "big", signed=True)


cdef object body_of(cls, int version, frame):
    """What follows the header of a response: of a small frame a copy, else a slice."""
    cdef const char *at
    cdef Py_ssize_t size
    cdef bint tagged = version >= <int> cls.header_flexible
    if PyBytes_CheckExact(frame):
        at = PyBytes_AS_STRING(frame) + 4
        size = PyBytes_GET_SIZE(frame) - 4
        if not tagged:
            return PyBytes_FromStringAndSize(at, size)
        if size and at[0] == 0:
            return PyBytes_FromStringAndSize(at + 1, size - 1)
    return read_response_header(cls, version, frame)[1]
