"""Serializes committed offsets as records of `__consumer_offsets`, and reads them.

Most stored records are of this type: each commit writes some, and a broker with many groups reads millions at its
start. Records that are not common (an expiry of their own, an old version, broken bytes) are left to the codec of
`protocol.stored`, which decodes or rejects all of them; tests compare the two.
Source: OffsetCommitKey.json, OffsetCommitValue.json of Apache Kafka 4.3.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from kafkalite._speedups.groups.offset_commit_bytes cimport (
    RECORD_TYPE, TOPIC_ID_FIELD, UUID_SIZE, VALUE_VERSION, key_size, put_key, put_partition, put_value, value_size,
)
from kafkalite._speedups.groups.partition_offsets cimport PartitionOffset, PartitionOffsets
from kafkalite._speedups.records.batch_builder cimport Builder, add_record
from kafkalite._speedups.wire.strings cimport STRING_MAX, Text, decoded, take_text
from kafkalite._speedups.wire.wire cimport Span, take, take_i16, take_i32, take_i64, take_uvarint

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *n) except NULL

cdef enum:
    VERSION_WITH_EXPIRY = 1
    VERSION_WITH_EPOCH = 3
    FIELDS = 9
    PACKED_FIELDS = 3

cdef bytes NO_ID = bytes(UUID_SIZE)


def append_commits(
    Builder builder not None, list records not None, Py_ssize_t at, int64_t timestamp, type record_type not None,
    type packed_type=None,
):
    """Append committed offsets from `at` on, as many as fit. See the .pyi."""
    if at < 0:
        raise ValueError(f"there is no record {at}")
    while at < len(records):
        record = records[at]
        if type(record) is record_type:
            if not append_one(builder, <tuple> record, timestamp):
                break
        elif packed_type is None or type(record) is not packed_type:
            break
        elif not append_packed(builder, <tuple> record, timestamp):
            break
        at += 1
    return at


cdef int append_one(Builder builder, tuple record, int64_t timestamp) except -1:
    """1, or 0 where the codec must encode the record, or it does not fit."""
    cdef bytes key, value
    if len(record) != FIELDS or record[7] != -1:
        return 0
    key = key_of(record[0], record[1], record[2])
    value = None if key is None else value_of(record[3], record[4], record[5], record[6], record[8])
    return value is not None and builder.add(timestamp, key, value, None) >= 0


cdef int append_packed(Builder builder, tuple record, int64_t timestamp) except -1:
    """Add a record for each partition; 0 where they do not all fit, or a name is too long: then none is added."""
    cdef Py_ssize_t size = builder.size, at
    cdef int32_t count = builder.records_count
    cdef int64_t base_timestamp = builder.base_timestamp, max_timestamp = builder.max_timestamp
    cdef PartitionOffsets offsets
    if len(record) != PACKED_FIELDS or type(record[1]) is not PartitionOffsets:
        return 0
    offsets = <PartitionOffsets> record[1]
    for at in range(offsets.topics_count):
        if not append_topic(builder, offsets, at, record[0], timestamp, record[2]):
            builder.size = size
            builder.records_count = count
            builder.base_timestamp = base_timestamp
            builder.max_timestamp = max_timestamp
            return 0
    return 1


cdef int append_topic(
    Builder builder, PartitionOffsets offsets, Py_ssize_t at, str group, int64_t timestamp, int64_t commit_ms
) except -1:
    """As `append_packed` for topic `at`, but the records that fit stay added."""
    cdef Py_ssize_t group_size = 0, topic_size = 0, size_of_key, size_of_value, metadata_size, i
    cdef object name, topic_id
    cdef const char *group_at = PyUnicode_AsUTF8AndSize(group, &group_size)
    cdef const char *topic_at
    cdef const char *id_at
    cdef const PartitionOffset *entry
    cdef uint8_t *scratch
    name, topic_id = offsets.topic_at(at)
    topic_at = PyUnicode_AsUTF8AndSize(name, &topic_size)
    if group_size > STRING_MAX or topic_size > STRING_MAX:
        return 0
    id_at = NULL if topic_id == NO_ID else PyBytes_AS_STRING(topic_id)
    size_of_key = key_size(group_size, topic_size)
    scratch = <uint8_t *> malloc(size_of_key + value_size(offsets.metadata_longest, True))
    if scratch == NULL:
        raise MemoryError
    try:
        put_key(scratch, group_at, group_size, topic_at, topic_size, 0)
        for i in range(offsets.ranges[at].first, offsets.ranges[at].end):
            entry = &offsets.entries[i]
            metadata_size = max(entry.metadata.size, 0)
            put_partition(scratch + size_of_key - 4, entry.partition)
            size_of_value = value_size(metadata_size, id_at != NULL)
            put_value(
                scratch + size_of_key, entry.offset, entry.leader_epoch, <const char *> entry.metadata.at,
                metadata_size, commit_ms, id_at,
            )
            if add_record(
                builder, timestamp, <const char *> scratch, size_of_key,
                <const char *> scratch + size_of_key, size_of_value, None,
            ) < 0:
                return 0
    finally:
        free(scratch)
    return 1


cdef bytes key_of(str group, str topic, int32_t partition):
    """The key; None where a name is too long for one."""
    cdef Py_ssize_t group_size = 0, topic_size = 0
    cdef const char *group_at = PyUnicode_AsUTF8AndSize(group, &group_size)
    cdef const char *topic_at = PyUnicode_AsUTF8AndSize(topic, &topic_size)
    cdef bytes out
    if group_size > STRING_MAX or topic_size > STRING_MAX:
        return None
    out = PyBytes_FromStringAndSize(NULL, key_size(group_size, topic_size))
    put_key(<uint8_t *> PyBytes_AS_STRING(out), group_at, group_size, topic_at, topic_size, partition)
    return out


cdef bytes value_of(int64_t offset, int32_t leader_epoch, str metadata, int64_t commit_ms, bytes topic_id):
    """The value in VALUE_VERSION; None where a field has an uncommon size."""
    cdef Py_ssize_t size = 0
    cdef const char *metadata_at = PyUnicode_AsUTF8AndSize(metadata, &size)
    cdef const char *id_at = NULL
    cdef bytes out
    if size > STRING_MAX or PyBytes_GET_SIZE(topic_id) != UUID_SIZE:
        return None
    if topic_id != NO_ID:
        id_at = PyBytes_AS_STRING(topic_id)
    out = PyBytes_FromStringAndSize(NULL, value_size(size, id_at != NULL))
    put_value(<uint8_t *> PyBytes_AS_STRING(out), offset, leader_epoch, metadata_at, size, commit_ms, id_at)
    return out


def read_commit(bytes key not None, bytes value not None, type record_type not None):
    """The committed offset in these bytes, or None where the codec must decode them. See the .pyi."""
    cdef Span span
    cdef Text group, topic
    cdef int32_t partition
    cdef tuple rest
    span.at = <const uint8_t *> PyBytes_AS_STRING(key)
    span.left = PyBytes_GET_SIZE(key)
    if take_i16(&span) != RECORD_TYPE:
        return None
    group, topic = take_text(&span, False), take_text(&span, False)
    partition = take_i32(&span)
    if span.left != 0 or group.at == NULL or topic.at == NULL:
        return None
    try:
        rest = fields_of(value)
        return None if rest is None else tuple.__new__(record_type, (decoded(group), decoded(topic), partition, *rest))
    except UnicodeDecodeError:
        return None


cdef tuple fields_of(bytes value):
    """Offset, epoch, metadata, time, expiry, topic id; None where the codec must decode. Raises UnicodeDecodeError."""
    cdef Span span
    cdef Text metadata
    cdef bytes topic_id = NO_ID
    cdef int64_t offset, commit_ms, expire_ms = -1
    cdef int32_t leader_epoch = -1
    cdef int version
    span.at = <const uint8_t *> PyBytes_AS_STRING(value)
    span.left = PyBytes_GET_SIZE(value)
    version = take_i16(&span)
    if version < VERSION_WITH_EXPIRY or version > VALUE_VERSION:
        return None
    offset = take_i64(&span)
    if version >= VERSION_WITH_EPOCH:
        leader_epoch = take_i32(&span)
    metadata = take_text(&span, version == VALUE_VERSION)
    commit_ms = take_i64(&span)
    if version == VERSION_WITH_EXPIRY:
        expire_ms = take_i64(&span)
    elif version == VALUE_VERSION:
        topic_id = tagged_id(&span)
    if span.left != 0 or metadata.at == NULL or topic_id is None:
        return None
    return offset, leader_epoch, decoded(metadata), commit_ms, expire_ms, topic_id


cdef bytes tagged_id(Span *span):
    """The topic id, the only known tagged field; None where there are others."""
    cdef uint64_t count = take_uvarint(span, 5)
    cdef const uint8_t *p
    if count == 0:
        return NO_ID
    p = take(span, TOPIC_ID_FIELD)
    if count != 1 or p == NULL or p[0] != 0 or p[1] != UUID_SIZE:
        return None
    if memcmp(p + 2, PyBytes_AS_STRING(NO_ID), UUID_SIZE) == 0:
        return None
    return PyBytes_FromStringAndSize(<const char *> p + 2, UUID_SIZE)
