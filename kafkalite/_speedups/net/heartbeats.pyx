"""Answers heartbeats that only extend a session before they are dispatched.

Most heartbeats change nothing and wake an idle broker, whose caches are cold. This fast path reads the frame, calls the
group coordinator and writes the response. Rules:

1. A heartbeat is answered here only if the dispatcher would return the same response and change nothing but the time of
   the member's last heartbeat: no record, no timer. The registered callbacks decide this.
2. With an authorizer, the callback `authorized` knows whether the client is allowed to read the group. It decides
   nothing: a heartbeat without a kept decision is dispatched.
3. The heartbeats of a client whose time is charged to a quota (`has_quota`) are dispatched.
4. Uncommon heartbeats (changes, tagged fields, malformed bytes) are left to the dispatcher.

Sources: HeartbeatRequest.json, ConsumerGroupHeartbeatRequest.json and their responses, of Apache Kafka 4.3.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kafkalite._speedups.net.framing cimport Connection, FrameInterceptor
from kafkalite._speedups.wire.strings cimport Text, decoded, take_text
from kafkalite._speedups.wire.wire cimport (
    Span, put_uvarint, store_u32, take, take_i16, take_i32, take_uvarint, uvarint_size,
)

cdef enum:
    CLASSIC_KEY = 12
    CLASSIC_VERSION_MAX = 4
    CLASSIC_THROTTLE_SINCE = 1
    CLASSIC_INSTANCE_SINCE = 3
    CLASSIC_FLEXIBLE_SINCE = 4
    CONSUMER_KEY = 68
    CONSUMER_VERSION_MAX = 1
    CONSUMER_PATTERN_SINCE = 1
    CORRELATION_AT = 4           # in a frame: key, version, correlation id
    NO_TIMEOUT = -1              # in a heartbeat without changes
    CLASSIC_ANSWER_MAX = 12
    CONSUMER_ANSWER_FIXED = 22   # all but the member id and its length


cdef inline bint starts_empty(Span *span) noexcept:
    """Take an empty tag section, a null array or a null string: each is the byte 0."""
    return take_uvarint(span, 5) == 0 and span.left >= 0


cdef class Heartbeats(FrameInterceptor):
    """See heartbeats.pyi."""
    cdef object classic, consumer, authorized
    cdef public object has_quota

    def register_callbacks(self, *, classic, consumer, authorized=None):
        """Register the callbacks. See heartbeats.pyi."""
        self.classic = classic
        self.consumer = consumer
        self.authorized = authorized
        self.takes[CLASSIC_KEY] = classic is not None
        self.takes[CONSUMER_KEY] = consumer is not None

    def __cinit__(self):
        memset(self.takes, 0, sizeof(self.takes))

    cdef bytes answer(self, Connection connection, const uint8_t *frame, Py_ssize_t size):
        cdef Span span
        cdef int16_t key, version
        span.at = frame
        span.left = size
        key = take_i16(&span)
        version = take_i16(&span)
        take(&span, 4)
        try:
            if key == CLASSIC_KEY:
                return self.of_classic(connection, frame, &span, version)
            return self.of_consumer(connection, frame, &span, version)
        except UnicodeDecodeError:
            return None

    cdef bint may_answer(self, Connection connection, str client, str group) except -1:
        if self.has_quota is not None and self.has_quota(connection, client):
            return False
        return self.authorized is None or self.authorized(connection, group)

    cdef bytes of_classic(self, Connection connection, const uint8_t *frame, Span *span, int16_t version):
        cdef bint flexible = version >= CLASSIC_FLEXIBLE_SINCE
        cdef Text group, member, instance
        cdef str client
        cdef int32_t generation
        instance.at = NULL
        if version < 0 or version > CLASSIC_VERSION_MAX:
            return None
        client = decoded(take_text(span, False))  # the dispatcher rejects invalid UTF-8
        if flexible and not starts_empty(span):
            return None
        group = take_text(span, flexible)
        generation = take_i32(span)
        member = take_text(span, flexible)
        if version >= CLASSIC_INSTANCE_SINCE:
            instance = take_text(span, flexible)
        if (flexible and not starts_empty(span)) or span.left != 0 or group.at == NULL or member.at == NULL:
            return None
        if not self.may_answer(connection, client, decoded(group)):
            return None
        if not self.classic(decoded(group), decoded(member), decoded(instance), generation):
            return None
        return classic_answer(frame, version)

    cdef bytes of_consumer(self, Connection connection, const uint8_t *frame, Span *span, int16_t version):
        cdef Text client, group, member, instance
        cdef int32_t epoch
        if version < 0 or version > CONSUMER_VERSION_MAX:
            return None
        client = take_text(span, False)
        if not starts_empty(span):
            return None
        group = take_text(span, True)
        member = take_text(span, True)
        epoch = take_i32(span)
        instance = take_text(span, True)
        if not has_no_changes(span, version) or group.at == NULL or member.at == NULL:
            return None
        if not self.may_answer(connection, decoded(client), decoded(group)):
            return None
        interval_ms = self.consumer(
            decoded(group), decoded(member), decoded(instance), epoch, decoded(client), connection.peer_host
        )
        if interval_ms is None:
            return None
        return consumer_answer(frame, member, epoch, interval_ms)


cdef bint has_no_changes(Span *span, int16_t version) noexcept:
    """Rack, rebalance timeout, topics, pattern, assignor and partitions are those of before; then the frame ends."""
    if not starts_empty(span) or take_i32(span) != NO_TIMEOUT or not starts_empty(span):
        return False
    if version >= CONSUMER_PATTERN_SINCE and not starts_empty(span):
        return False
    return starts_empty(span) and starts_empty(span) and starts_empty(span) and span.left == 0


cdef bytes classic_answer(const uint8_t *frame, int16_t version):
    """No error: correlation id, tags, throttle time, error code, tags, as far as the version has them."""
    cdef uint8_t[CLASSIC_ANSWER_MAX] answer
    cdef Py_ssize_t size = 6
    memset(answer, 0, CLASSIC_ANSWER_MAX)
    memcpy(answer, frame + CORRELATION_AT, 4)
    if version >= CLASSIC_THROTTLE_SINCE:
        size += 4
    if version >= CLASSIC_FLEXIBLE_SINCE:
        size += 2
    return PyBytes_FromStringAndSize(<char *> answer, size)


cdef bytes consumer_answer(const uint8_t *frame, Text member, int32_t epoch, int32_t interval):
    """Correlation id, tags, throttle time, error, no message, member id, epoch, interval, no assignment, tags."""
    cdef int length_size = uvarint_size(<uint64_t> member.size + 1)
    cdef bytes answer = PyBytes_FromStringAndSize(NULL, CONSUMER_ANSWER_FIXED + length_size + member.size)
    cdef uint8_t *p = <uint8_t *> PyBytes_AS_STRING(answer)
    memcpy(p, frame + CORRELATION_AT, 4)
    memset(p + 4, 0, 8)
    p += 12
    p += put_uvarint(p, <uint64_t> member.size + 1)
    memcpy(p, member.at, member.size)
    p += member.size
    store_u32(p, <uint32_t> epoch)
    store_u32(p + 4, <uint32_t> interval)
    p[8] = 0xff  # a null structure is -1
    p[9] = 0
    return answer
