"""Encodes OffsetCommit responses, header included, from the decoded request and its errors.

The bytes are those of the codec; tests compare the two.
Source: OffsetCommitResponse.json of Apache Kafka 4.3.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kafkalite._speedups.groups.offset_commit_request cimport FLEXIBLE_SINCE, TOPIC_ID_SINCE, PackedCommit
from kafkalite._speedups.groups.partition_offsets cimport PartitionOffsets
from kafkalite._speedups.wire.strings cimport Text
from kafkalite._speedups.wire.wire cimport put_uvarint, store_u16, store_u32, uvarint_size

cdef enum:
    THROTTLED_SINCE = 3
    PARTITION_BYTES = 6           # index, error code


def encode_response(PackedCommit request not None, int32_t correlation_id, errors, int32_t throttle_ms=0):
    """The response with its header. See the .pyi."""
    cdef bint flexible = request.version >= FLEXIBLE_SINCE
    cdef PartitionOffsets offsets = request.offsets
    cdef Py_ssize_t size, at, i
    cdef bytes out
    cdef uint8_t *p
    cdef tuple by_partition = None if isinstance(errors, int) else <tuple?> errors
    cdef int16_t error = errors if by_partition is None else 0
    if offsets is None:
        raise ValueError("the request was not decoded by `read_packed`")
    if by_partition is not None and len(by_partition) != offsets.count:
        raise ValueError(f"{len(by_partition)} errors for {offsets.count} partitions")
    size = response_size(request, flexible)
    out = PyBytes_FromStringAndSize(NULL, size)
    p = <uint8_t *> PyBytes_AS_STRING(out)
    store_u32(p, <uint32_t> correlation_id)
    p = put_empty_tags(p + 4, flexible)
    if request.version >= THROTTLED_SINCE:
        store_u32(p, <uint32_t> throttle_ms)
        p += 4
    p = put_count(p, offsets.topics_count, flexible)
    for at in range(offsets.topics_count):
        p = put_name(p, request.names[at], request.version)
        p = put_count(p, offsets.ranges[at].end - offsets.ranges[at].first, flexible)
        for i in range(offsets.ranges[at].first, offsets.ranges[at].end):
            if by_partition is not None:
                error = by_partition[i]
            store_u32(p, <uint32_t> offsets.entries[i].partition)
            store_u16(p + 4, <uint16_t> error)
            p = put_empty_tags(p + PARTITION_BYTES, flexible)
        p = put_empty_tags(p, flexible)
    p = put_empty_tags(p, flexible)
    assert p == <uint8_t *> PyBytes_AS_STRING(out) + size, "the response has another size"
    return out


cdef Py_ssize_t response_size(PackedCommit request, bint flexible) noexcept:
    cdef PartitionOffsets offsets = request.offsets
    cdef Py_ssize_t size = (8 if request.version >= THROTTLED_SINCE else 4) + count_size(offsets.topics_count, flexible)
    cdef Py_ssize_t at, count, name_size
    for at in range(offsets.topics_count):
        count, name_size = offsets.ranges[at].end - offsets.ranges[at].first, request.names[at].size
        size += name_size + count_size(count, flexible) + count * (PARTITION_BYTES + flexible)
        if request.version < TOPIC_ID_SINCE:
            size += uvarint_size(name_size + 1) if flexible else 2
    return size + (2 + offsets.topics_count if flexible else 0)


cdef inline Py_ssize_t count_size(Py_ssize_t count, bint flexible) noexcept nogil:
    return uvarint_size(count + 1) if flexible else 4


cdef inline uint8_t *put_count(uint8_t *p, Py_ssize_t count, bint flexible) noexcept nogil:
    if flexible:
        return p + put_uvarint(p, <uint64_t> (count + 1))
    store_u32(p, <uint32_t> count)
    return p + 4


cdef inline uint8_t *put_empty_tags(uint8_t *p, bint flexible) noexcept nogil:
    if not flexible:
        return p
    p[0] = 0
    return p + 1


cdef inline uint8_t *put_name(uint8_t *p, Text name, int version) noexcept nogil:
    """The name of a topic, or its id."""
    if version < FLEXIBLE_SINCE:
        store_u16(p, <uint16_t> name.size)
        p += 2
    elif version < TOPIC_ID_SINCE:
        p += put_uvarint(p, <uint64_t> (name.size + 1))
    memcpy(p, name.at, name.size)
    return p + name.size
