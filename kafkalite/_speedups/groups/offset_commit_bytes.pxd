"""Writes key and value of a committed offset, as `__consumer_offsets` stores it, into memory that the caller allocated.

Source: OffsetCommitKey.json, OffsetCommitValue.json of Apache Kafka 4.3.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kafkalite._speedups.wire.wire cimport put_uvarint, store_u16, store_u32, store_u64, uvarint_size

cdef enum:
    RECORD_TYPE = 1
    VALUE_VERSION = 4             # version that Kafka 4.3 writes for values without an expiry
    UUID_SIZE = 16
    KEY_FIXED = 10                # type, two lengths, partition
    VALUE_FIXED = 23              # version, offset, epoch, time, count of tags
    TOPIC_ID_FIELD = 18           # tag, size, id


cdef inline Py_ssize_t key_size(Py_ssize_t group_size, Py_ssize_t topic_size) noexcept nogil:
    return KEY_FIXED + group_size + topic_size


cdef inline void put_key(
    uint8_t *p, const char *group, Py_ssize_t group_size, const char *topic, Py_ssize_t topic_size, int32_t partition
) noexcept nogil:
    """Write `key_size` bytes; names have at most `strings.STRING_MAX` bytes."""
    store_u16(p, RECORD_TYPE)
    store_u16(p + 2, <uint32_t> group_size)
    memcpy(p + 4, group, group_size)
    p += 4 + group_size
    store_u16(p, <uint32_t> topic_size)
    memcpy(p + 2, topic, topic_size)
    put_partition(p + 2 + topic_size, partition)


cdef inline void put_partition(uint8_t *p, int32_t partition) noexcept nogil:
    """Write the last four bytes of a key."""
    store_u32(p, <uint32_t> partition)


cdef inline Py_ssize_t value_size(Py_ssize_t metadata_size, bint has_topic_id) noexcept nogil:
    return VALUE_FIXED + uvarint_size(metadata_size + 1) + metadata_size + (TOPIC_ID_FIELD if has_topic_id else 0)


cdef inline void put_value(
    uint8_t *p, int64_t offset, int32_t leader_epoch, const char *metadata, Py_ssize_t metadata_size, int64_t commit_ms,
    const char *topic_id
) noexcept nogil:
    """Write `value_size` bytes; `metadata` may be NULL if its size is 0; `topic_id` NULL = unknown."""
    store_u16(p, VALUE_VERSION)
    store_u64(p + 2, <uint64_t> offset)
    store_u32(p + 10, <uint32_t> leader_epoch)
    p += 14
    p += put_uvarint(p, metadata_size + 1)
    if metadata_size > 0:  # memcpy must not receive NULL
        memcpy(p, metadata, metadata_size)
        p += metadata_size
    store_u64(p, <uint64_t> commit_ms)
    p[8] = topic_id != NULL
    if topic_id != NULL:
        p[9] = 0
        p[10] = UUID_SIZE
        memcpy(p + 11, topic_id, UUID_SIZE)
