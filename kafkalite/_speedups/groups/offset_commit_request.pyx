"""Decodes OffsetCommit requests into C structs, without a Python object per partition.

It decodes common requests only: no tagged fields, no retention time, ASCII metadata. The codec decodes all others and
reports every error; tests compare the two.
1. The request is copied once: it outlives the loop iteration that received it.
2. Every read goes through `take*`; a length is compared with the bytes left before memory is allocated for it.
Source: OffsetCommitRequest.json of Apache Kafka 4.3.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc

from kafkalite._speedups.groups.offset_commit_bytes cimport UUID_SIZE
from kafkalite._speedups.groups.partition_offsets cimport PartitionOffset, PartitionOffsets
from kafkalite._speedups.wire.strings cimport Text, decoded, take_text
from kafkalite._speedups.wire.wire cimport Span, take, take_i32, take_i64, take_uvarint

cdef enum:
    VERSION_MIN = 2
    RETENTION_UNTIL = 4
    EPOCH_SINCE = 6
    INSTANCE_SINCE = 7
    VERSION_MAX = 10
    PARTITION_BYTES_MIN = 13      # index, offset, an empty or null metadata
    TOPIC_BYTES_MIN = 2           # an empty name, no partitions

cdef Py_ssize_t VALIDATED_FIRST = 1 << 20  # bytes: larger requests are validated before they are copied


def read_packed(int version, body, Py_ssize_t elements_max):
    """The request in `body`, or None where the codec must decode it. See the .pyi."""
    cdef PackedCommit request
    cdef Py_buffer view
    cdef const uint8_t *at
    if not VERSION_MIN <= version <= VERSION_MAX:
        return None
    request = PackedCommit.__new__(PackedCommit)
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        if view.len > VALIDATED_FIRST and not decodes(
            PackedCommit.__new__(PackedCommit), version, <const uint8_t *> view.buf, view.len, elements_max
        ):
            return None  # before as much again is reserved for the copy
        request.copy = PyBytes_FromStringAndSize(<const char *> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    at = <const uint8_t *> PyBytes_AS_STRING(request.copy)
    return request if decodes(request, version, at, PyBytes_GET_SIZE(request.copy), elements_max) else None


cdef bint decodes(
    PackedCommit request, int version, const uint8_t *at, Py_ssize_t size, int64_t elements_max
) except -1:
    """Whether these bytes are a common request; `request` has its fields then, and points into them."""
    cdef Span span
    span.at, span.left = at, size
    request.version = version
    try:
        return request.read(&span, elements_max)
    except UnicodeDecodeError:
        return False


cdef inline Py_ssize_t take_count(Span *span, bint flexible) noexcept nogil:
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


@cython.final
@cython.no_gc
cdef class PackedCommit:
    """A decoded OffsetCommit request, made by `read_packed`; see the .pyi."""

    def __dealloc__(self):
        free(self.names)

    cdef int read(self, Span *span, int64_t elements_max) except -1:
        """1, or 0 where the codec must decode the request. Raises UnicodeDecodeError."""
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
        """1, or 0 where the codec must decode the topics."""
        cdef Py_ssize_t count = take_count(span, flexible)
        cdef Py_ssize_t i
        cdef bint by_id = self.version >= TOPIC_ID_SINCE
        cdef Text name
        if count < 0 or count > elements_max or count > span.left // TOPIC_BYTES_MIN:
            return 0
        self.names = <Text *> malloc(max(count, <Py_ssize_t> 1) * sizeof(Text))
        if self.names == NULL:
            raise MemoryError
        self.topics = []
        self.offsets = PartitionOffsets.__new__(PartitionOffsets)
        self.offsets.source = self.copy
        self.offsets.allocate_topics(count)
        for i in range(count):
            name = take_id(span) if by_id else take_text(span, flexible)
            if name.at == NULL or not self.read_partitions(span, i, flexible, elements_max - count):
                return 0
            self.names[i] = name
            self.topics.append(<bytes> (<const char *> name.at)[:UUID_SIZE] if by_id else decoded(name))
        return 1

    cdef int read_partitions(self, Span *span, Py_ssize_t at, bint flexible, int64_t partitions_max) except -1:
        """1, or 0 where the codec must decode topic `at`, or the request has more than `partitions_max` partitions."""
        cdef PartitionOffsets offsets = self.offsets
        cdef Py_ssize_t count = take_count(span, flexible), i
        cdef PartitionOffset *entry
        if count < 0 or count > span.left // PARTITION_BYTES_MIN or count > partitions_max - offsets.count:
            return 0  # before memory is reserved for them
        offsets.reserve(count)
        offsets.ranges[at].first, offsets.ranges[at].end = offsets.count, offsets.count + count
        for i in range(offsets.count, offsets.count + count):
            entry = &offsets.entries[i]
            entry.partition = take_i32(span)
            entry.offset = take_i64(span)
            entry.leader_epoch = take_i32(span) if self.version >= EPOCH_SINCE else -1
            entry.metadata = take_text(span, flexible)
            if not is_ascii(entry.metadata):
                return 0
            offsets.metadata_longest = max(offsets.metadata_longest, entry.metadata.size)
            if flexible and take_uvarint(span, 5) != 0:
                return 0
        offsets.count += count
        if flexible and take_uvarint(span, 5) != 0:
            return 0
        return span.left >= 0
