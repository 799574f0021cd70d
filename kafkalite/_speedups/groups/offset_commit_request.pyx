"""OffsetCommit requests in one piece: read, stored, written to a batch and answered without an object per partition.

A request that is as nearly all are: no tags, no expiry of its own, metadata of ASCII alone. What is not is left to
the codec, and so is every error of a request; the tests compare the two.
1. The request is copied once: it outlives the pass that received it.
2. Every read goes through `take*`; a length is compared with the bytes left before memory is made for it.
Source: OffsetCommitRequest.json, OffsetCommitResponse.json of Apache Kafka 4.3.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_FromLongLong
from cpython.object cimport PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from kafkalite._speedups.records.batches cimport Builder, add_record
from kafkalite._speedups.groups.offset_commit_bytes cimport (
    UUID_SIZE, key_size, put_key, put_partition, put_value, value_size,
)
from kafkalite._speedups.wire.strings cimport STRING_MAX, Text, decoded, take_text
from kafkalite._speedups.wire.wire cimport (
    Span, put_uvarint, store_u16, store_u32, take, take_i32, take_i64, take_uvarint, uvarint_size,
)

cdef extern from *:
    """
    /* From CPython 3.14 on a tuple remembers its hash, -1 = not yet; the bare allocator leaves 0 there. */
    #if PY_VERSION_HEX >= 0x030E0000
    #define kl_forget_hash(made) (((PyTupleObject *) (made))->ob_hash = -1)
    #else
    #define kl_forget_hash(made) ((void) (made))
    #endif
    """
    void forget_hash "kl_forget_hash"(object made) noexcept
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *n) except NULL
    object PyType_GenericAlloc(PyTypeObject *cls, Py_ssize_t n)

cdef enum:
    VERSION_MIN = 2
    THROTTLED_SINCE = 3
    RETENTION_UNTIL = 4
    EPOCH_SINCE = 6
    INSTANCE_SINCE = 7
    FLEXIBLE_SINCE = 8
    TOPIC_ID_SINCE = 10
    VERSION_MAX = 10
    PART_BYTES_MIN = 13           # index, offset, an empty or null metadata
    TOPIC_BYTES_MIN = 2           # an empty name, no partitions
    STORED_FIELDS = 6

cdef bytes NO_ID = bytes(UUID_SIZE)


cdef Py_ssize_t READ_TWICE = 1 << 20  # bytes: larger requests are validated before they are copied


def read_packed(int version, body, Py_ssize_t elements_max):
    """The request in `body`; None where it is not just as usual. See the .pyi."""
    cdef PackedCommit request
    cdef Py_buffer view
    cdef const uint8_t *at
    if not VERSION_MIN <= version <= VERSION_MAX:
        return None
    request = PackedCommit.__new__(PackedCommit)
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        if view.len > READ_TWICE and not reads(
            PackedCommit.__new__(PackedCommit), version, <const uint8_t *> view.buf, view.len, elements_max
        ):
            return None  # before as much again is reserved for the copy
        request.copy = PyBytes_FromStringAndSize(<const char *> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    at = <const uint8_t *> PyBytes_AS_STRING(request.copy)
    return request if reads(request, version, at, PyBytes_GET_SIZE(request.copy), elements_max) else None


cdef bint reads(PackedCommit request, int version, const uint8_t *at, Py_ssize_t size, int64_t elements_max) except -1:
    """Whether these bytes are a request that is just as usual; it refers to them then."""
    cdef Span span
    span.at, span.left = at, size
    request.version = version
    try:
        return request.read(&span, elements_max)
    except UnicodeDecodeError:
        return False


cdef inline Py_ssize_t count_of(Span *span, bint flexible) noexcept nogil:
    """The length of an array; -1 = null."""
    return <Py_ssize_t> take_uvarint(span, 5) - 1 if flexible else take_i32(span)


cdef inline bint is_ascii(Text text) noexcept nogil:
    cdef uint8_t seen = 0
    cdef Py_ssize_t i
    for i in range(text.size):
        seen |= text.at[i]
    return seen < 0x80


cdef inline Text take_id(Span *span) noexcept nogil:
    cdef Text text
    text.size = UUID_SIZE
    text.at = take(span, UUID_SIZE)
    return text


cdef inline bytes id_of(Text text):
    return PyBytes_FromStringAndSize(<const char *> text.at, UUID_SIZE)


@cython.final
@cython.no_gc
cdef class PackedCommit:
    """An OffsetCommit request. Made by `read_packed`; see the .pyi."""

    def __dealloc__(self):
        free(self.parts)
        free(self.runs)

    def __len__(self):
        return self.parts_count

    # reading

    cdef int read(self, Span *span, int64_t elements_max) except -1:
        """1, or 0 where the request is not as usual. Raises UnicodeDecodeError."""
        cdef bint flexible = self.version >= FLEXIBLE_SINCE
        cdef Text group = take_text(span, flexible)
        cdef Text member, instance
        self.generation = take_i32(span)
        member = take_text(span, flexible)
        instance.at = NULL
        if self.version >= INSTANCE_SINCE:
            instance = take_text(span, flexible)
        if self.version <= RETENTION_UNTIL and take_i64(span) != -1:
            return 0
        if span.left < 0 or group.at == NULL or member.at == NULL:
            return 0
        self.group_id, self.member_id, self.group_instance_id = decoded(group), decoded(member), decoded(instance)
        if not self.read_topics(span, flexible, elements_max):
            return 0
        if flexible and take_uvarint(span, 5) != 0:
            return 0
        return span.left >= 0

    cdef int read_topics(self, Span *span, bint flexible, int64_t elements_max) except -1:
        """1, or 0 where the topics are not as usual."""
        cdef Py_ssize_t count = count_of(span, flexible)
        cdef Py_ssize_t i
        cdef Run *run
        if count < 0 or count > elements_max or count > span.left // TOPIC_BYTES_MIN:
            return 0
        self.runs = <Run *> malloc(max(count, <Py_ssize_t> 1) * sizeof(Run))
        if self.runs == NULL:
            raise MemoryError
        self.runs_count = count
        self.topics = []
        self.located = []
        for i in range(count):
            run = &self.runs[i]
            run.name = take_id(span) if self.version >= TOPIC_ID_SINCE else take_text(span, flexible)
            if run.name.at == NULL or not self.read_parts(span, run, flexible, elements_max - count):
                return 0
            self.topics.append(id_of(run.name) if self.version >= TOPIC_ID_SINCE else decoded(run.name))
        return 1

    cdef int read_parts(self, Span *span, Run *run, bint flexible, int64_t parts_max) except -1:
        """1, or 0 where the partitions of a topic are not as usual, or more than `parts_max` with those before."""
        cdef Py_ssize_t i
        cdef Part *part
        run.count = count_of(span, flexible)
        run.first = self.parts_count
        if run.count < 0 or run.count > span.left // PART_BYTES_MIN or run.count > parts_max - self.parts_count:
            return 0  # before memory is reserved for them
        self.reserve(run.count)
        for i in range(run.count):
            part = &self.parts[run.first + i]
            part.index = take_i32(span)
            part.offset = take_i64(span)
            part.leader_epoch = take_i32(span) if self.version >= EPOCH_SINCE else -1
            part.metadata = take_text(span, flexible)
            if not is_ascii(part.metadata):
                return 0
            self.metadata_longest = max(self.metadata_longest, part.metadata.size)
            if flexible and take_uvarint(span, 5) != 0:
                return 0
        self.parts_count += run.count
        if flexible and take_uvarint(span, 5) != 0:
            return 0
        return span.left >= 0

    cdef int reserve(self, Py_ssize_t n) except -1:
        """Make room for `n` more parts."""
        cdef Py_ssize_t room
        cdef void *grown
        if self.parts_count + n <= self.parts_room:
            return 0
        room = max(self.parts_count + n, 2 * self.parts_room)
        grown = realloc(self.parts, room * sizeof(Part))
        if grown == NULL:
            raise MemoryError
        self.parts = <Part *> grown
        self.parts_room = room
        return 0

    # deciding

    def locate(self, Py_ssize_t at, str name not None, bytes topic_id not None, Py_ssize_t partitions):
        """Say which topic of the cluster the topic `at` of the request is; topics in their order. See the .pyi."""
        cdef Run *run
        cdef Py_ssize_t i
        if at != len(self.located) or at >= self.runs_count:
            raise ValueError(f"topic {at} is not the next of {self.runs_count}, {len(self.located)} are located")
        if PyBytes_GET_SIZE(topic_id) != UUID_SIZE:
            raise ValueError(f"a topic id has 16 bytes, not {PyBytes_GET_SIZE(topic_id)}")
        run = &self.runs[at]
        for i in range(run.first, run.first + run.count):
            if not 0 <= self.parts[i].index < partitions:
                return False
        self.located.append((name, topic_id))
        return True

    cdef tuple partition_of(self, Py_ssize_t at):
        """Name and id of the topic `at`."""
        if at >= len(self.located):
            raise ValueError(f"topic {at} is not located")
        return self.located[at]

    def partitions(self, type kind not None):
        """All partitions, each a `kind`. See the .pyi."""
        cdef list found = []
        cdef Py_ssize_t at, i
        cdef Part *part
        for at in range(self.runs_count):
            name, topic_id = self.partition_of(at)
            for i in range(self.runs[at].first, self.runs[at].first + self.runs[at].count):
                part = &self.parts[i]
                fields = (name, part.index, part.offset, part.leader_epoch, decoded(part.metadata), topic_id)
                found.append(tuple.__new__(kind, fields))
        return found

    # storing

    def located_topics(self):
        """The topics as `locate` was told, in order: (name, id)."""
        if len(self.located) != self.runs_count:
            raise ValueError(f"{len(self.located)} of {self.runs_count} topics are located")
        return self.located

    def put_into(self, dict partitions not None, Py_ssize_t at, type kind not None, committed_ms, bytes topic_id):
        """Put the offsets of topic `at` into a dict by partition. See the .pyi."""
        cdef Part *part
        cdef const Part *last = NULL
        cdef Py_ssize_t i
        cdef object metadata = "", expire_ms = -1, made
        if not 0 <= at < self.runs_count:
            raise ValueError(f"there is no topic {at}")
        if not issubclass(kind, tuple):
            raise TypeError(f"{kind.__name__} is no tuple")
        for i in range(self.runs[at].first, self.runs[at].first + self.runs[at].count):
            part = &self.parts[i]
            if part.metadata.size > 0:
                if last == NULL or not same_metadata(last, part):
                    metadata = decoded(part.metadata)
                last = part
            made = PyType_GenericAlloc(<PyTypeObject *> kind, STORED_FIELDS)
            forget_hash(made)
            put(made, 0, PyLong_FromLongLong(part.offset))
            put(made, 1, PyLong_FromLongLong(part.leader_epoch))
            put(made, 2, metadata if part.metadata.size > 0 else "")
            put(made, 3, committed_ms)
            put(made, 4, expire_ms)
            put(made, 5, topic_id)
            partitions[part.index] = made

    # writing

    cdef int append_to(self, Builder builder, str group, int64_t timestamp, int64_t commit_ms) except -1:
        """Add a record for each partition; 0 where they do not all fit, or a name is too long: then none is added."""
        cdef Py_ssize_t group_size = 0, size = builder.size
        cdef const char *group_at = PyUnicode_AsUTF8AndSize(group, &group_size)
        cdef int32_t count = builder.records_count
        cdef int64_t base_timestamp = builder.base_timestamp, max_timestamp = builder.max_timestamp
        cdef Py_ssize_t at
        if group_size > STRING_MAX:
            return 0
        for at in range(self.runs_count):
            if not append_run(self, at, builder, group_at, group_size, timestamp, commit_ms):
                builder.size = size
                builder.records_count = count
                builder.base_timestamp = base_timestamp
                builder.max_timestamp = max_timestamp
                return 0
        return 1

    # answering

    def answer(self, int32_t correlation_id, errors):
        """The response with its header. See the .pyi."""
        cdef bint flexible = self.version >= FLEXIBLE_SINCE
        cdef Py_ssize_t size = answer_size(self, flexible)
        cdef bytes out = PyBytes_FromStringAndSize(NULL, size)
        cdef uint8_t *p = <uint8_t *> PyBytes_AS_STRING(out)
        cdef Py_ssize_t at, i
        cdef tuple of_parts = None if isinstance(errors, int) else <tuple?> errors
        cdef int16_t error = errors if of_parts is None else 0
        if of_parts is not None and len(of_parts) != self.parts_count:
            raise ValueError(f"{len(of_parts)} errors for {self.parts_count} partitions")
        store_u32(p, <uint32_t> correlation_id)
        p += 4
        if flexible:
            p[0] = 0
            p += 1
        if self.version >= THROTTLED_SINCE:
            store_u32(p, 0)
            p += 4
        p = put_count(p, self.runs_count, flexible)
        for at in range(self.runs_count):
            p = put_name(p, &self.runs[at], self.version)
            p = put_count(p, self.runs[at].count, flexible)
            for i in range(self.runs[at].first, self.runs[at].first + self.runs[at].count):
                store_u32(p, <uint32_t> self.parts[i].index)
                if of_parts is not None:
                    error = of_parts[i]
                store_u16(p + 4, <uint16_t> error)
                p += 6
                if flexible:
                    p[0] = 0
                    p += 1
            if flexible:
                p[0] = 0
                p += 1
        if flexible:
            p[0] = 0
            p += 1
        assert p == <uint8_t *> PyBytes_AS_STRING(out) + size, "the answer has another size"
        return out


cdef inline void put(object made, Py_ssize_t at, object value):
    """A field of a fresh tuple."""
    Py_INCREF(value)
    PyTuple_SET_ITEM(made, at, value)


cdef inline bint same_metadata(const Part *one, const Part *other) noexcept:
    return (
        one.metadata.size == other.metadata.size
        and memcmp(one.metadata.at, other.metadata.at, one.metadata.size) == 0
    )


cdef int append_run(
    PackedCommit request, Py_ssize_t at, Builder builder, const char *group, Py_ssize_t group_size,
    int64_t timestamp, int64_t commit_ms
) except -1:
    """As `PackedCommit.append_to` for one topic, but what fits stays added."""
    cdef Py_ssize_t topic_size = 0, size_of_key, size_of_value, i
    cdef object name, topic_id
    cdef const char *topic_at
    cdef const char *id_at
    cdef const Part *part
    cdef uint8_t *scratch
    name, topic_id = request.partition_of(at)
    topic_at = PyUnicode_AsUTF8AndSize(name, &topic_size)
    if topic_size > STRING_MAX:
        return 0
    id_at = NULL if topic_id == NO_ID else PyBytes_AS_STRING(topic_id)
    size_of_key = key_size(group_size, topic_size)
    scratch = <uint8_t *> malloc(size_of_key + value_size(request.metadata_longest, True))
    if scratch == NULL:
        raise MemoryError
    try:
        put_key(scratch, group, group_size, topic_at, topic_size, 0)
        for i in range(request.runs[at].first, request.runs[at].first + request.runs[at].count):
            part = &request.parts[i]
            put_partition(scratch + size_of_key - 4, part.index)
            size_of_value = value_size(max(part.metadata.size, 0), id_at != NULL)
            put_value(
                scratch + size_of_key, part.offset, part.leader_epoch, <const char *> part.metadata.at,
                max(part.metadata.size, 0), commit_ms, id_at,
            )
            if add_record(
                builder, timestamp, <const char *> scratch, size_of_key,
                <const char *> scratch + size_of_key, size_of_value, None,
            ) < 0:
                return 0
    finally:
        free(scratch)
    return 1


cdef Py_ssize_t answer_size(PackedCommit request, bint flexible) noexcept:
    cdef Py_ssize_t size = (8 if request.version >= THROTTLED_SINCE else 4) + count_size(request.runs_count, flexible)
    cdef Py_ssize_t at
    cdef Run *run
    for at in range(request.runs_count):
        run = &request.runs[at]
        size += run.name.size + count_size(run.count, flexible) + run.count * (7 if flexible else 6)
        if request.version < TOPIC_ID_SINCE:
            size += uvarint_size(run.name.size + 1) if flexible else 2
    return size + (2 + request.runs_count if flexible else 0)


cdef inline Py_ssize_t count_size(Py_ssize_t count, bint flexible) noexcept nogil:
    return uvarint_size(count + 1) if flexible else 4


cdef inline uint8_t *put_count(uint8_t *p, Py_ssize_t count, bint flexible) noexcept nogil:
    if flexible:
        return p + put_uvarint(p, <uint64_t> (count + 1))
    store_u32(p, <uint32_t> count)
    return p + 4


cdef inline uint8_t *put_name(uint8_t *p, const Run *run, int version) noexcept nogil:
    if version < FLEXIBLE_SINCE:
        store_u16(p, <uint16_t> run.name.size)
        p += 2
    elif version < TOPIC_ID_SINCE:
        p += put_uvarint(p, <uint64_t> (run.name.size + 1))
    memcpy(p, run.name.at, run.name.size)
    return p + run.name.size
