"""Encodes the partitions of a transaction: the field `TransactionPartitions` of a record of `__transaction_state`.

The bytes are those of the codec for topics and partitions in order; tests compare the two.
Source: TransactionLogValue.json of Apache Kafka 4.3.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcpy

from kafkalite._speedups.wire.wire cimport put_uvarint, store_u16, store_u32, uvarint_size

cdef enum:
    NAME_MAX = 32767
    DENSE = 16                    # indexes below this number per partition are put in order without comparisons


def encode_partitions(dict by_topic not None, bint flexible):
    """The field. See the .pyi."""
    cdef list topics = [((<str?> topic).encode(), by_topic[topic]) for topic in sorted(by_topic)]
    cdef Py_ssize_t most = 1, size = count_size(len(topics), flexible)
    cdef bytes name
    cdef frozenset indexes
    cdef int32_t *ordered
    cdef uint8_t *p
    for name, indexes in topics:
        most = max(most, len(indexes))
        size += topic_size(PyBytes_GET_SIZE(name), len(indexes), flexible)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, size)
    ordered = <int32_t *> PyMem_Malloc(most * sizeof(int32_t))
    if ordered == NULL:
        raise MemoryError
    try:
        p = put_count(<uint8_t *> PyBytes_AS_STRING(out), len(topics), flexible)
        for name, indexes in topics:
            put_in_order(indexes, ordered)
            p = put_topic(p, name, ordered, len(indexes), flexible)
    finally:
        PyMem_Free(ordered)
    assert p == <uint8_t *> PyBytes_AS_STRING(out) + size, "the field has another size"
    return out


cdef int put_in_order(frozenset partitions, int32_t *indexes) except -1:
    """Copy the indexes of a topic in order."""
    cdef Py_ssize_t count = 0, at, to = 0
    cdef int32_t most = 0, index
    cdef uint8_t *has
    for each in partitions:
        index = each
        if index < 0:
            raise ValueError(f"the partition {index} is negative")
        most = max(most, index)
        indexes[count] = index
        count += 1
    if most >= DENSE * count:
        qsort(indexes, count, sizeof(int32_t), compare)
        return 0
    has = <uint8_t *> PyMem_Calloc(most + 1, 1)
    if has == NULL:
        raise MemoryError
    for at in range(count):
        has[indexes[at]] = 1
    for at in range(most + 1):
        if has[at]:
            indexes[to] = <int32_t> at
            to += 1
    PyMem_Free(has)
    return 0


cdef int compare(const void *a, const void *b) noexcept nogil:
    cdef int32_t left = (<const int32_t *> a)[0], right = (<const int32_t *> b)[0]
    return (left > right) - (left < right)


cdef Py_ssize_t topic_size(Py_ssize_t name, Py_ssize_t count, bint flexible) except -1:
    if name > NAME_MAX:
        raise ValueError(f"a topic name of {name} bytes")
    return (uvarint_size(name + 1) + 1 if flexible else 2) + name + count_size(count, flexible) + 4 * count


cdef inline Py_ssize_t count_size(Py_ssize_t count, bint flexible) noexcept nogil:
    return uvarint_size(count + 1) if flexible else 4


cdef inline uint8_t *put_count(uint8_t *p, Py_ssize_t count, bint flexible) noexcept nogil:
    if flexible:
        return p + put_uvarint(p, <uint64_t> (count + 1))
    store_u32(p, <uint32_t> count)
    return p + 4


cdef uint8_t *put_topic(uint8_t *p, bytes name, const int32_t *indexes, Py_ssize_t count, bint flexible) noexcept:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(name), at
    if flexible:
        p += put_uvarint(p, <uint64_t> (size + 1))
    else:
        store_u16(p, <uint16_t> size)
        p += 2
    memcpy(p, PyBytes_AS_STRING(name), size)
    p = put_count(p + size, count, flexible)
    for at in range(count):
        store_u32(p + 4 * at, <uint32_t> indexes[at])
    p += 4 * count
    if flexible:
        p[0] = 0                  # no tagged fields
        p += 1
    return p
