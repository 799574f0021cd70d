"""Encodes the partitions of a transaction: the field `TransactionPartitions` of a record of `__transaction_state`.

The bytes are those of the codec for topics and partitions in order; tests compare the two.
Source: TransactionLogValue.json of Apache Kafka 4.3.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcpy

from kafkalite._speedups.wire.wire cimport put_uvarint, store_u16, store_u32, uvarint_size

cdef enum:
    NAME_MAX = 32767
    DENSE = 16                    # indexes below this number per partition are put in order without comparisons


cdef struct Found:                # a partition in the order of the set
    int32_t topic
    int32_t partition


def encode_partitions(frozenset partitions not None, bint flexible):
    """The field. See the .pyi."""
    cdef dict numbers = {}        # of topics, in the order of the set
    cdef Py_ssize_t count = len(partitions)
    cdef Found *found = <Found *> PyMem_Malloc(max(count, 1) * sizeof(Found))
    cdef int32_t *ordered = <int32_t *> PyMem_Malloc(max(count, 1) * sizeof(int32_t))
    try:
        if found == NULL or ordered == NULL:
            raise MemoryError
        number_topics(partitions, numbers, found)
        return encode_topics(numbers, found, ordered, count, flexible)
    finally:
        PyMem_Free(found)
        PyMem_Free(ordered)


cdef int number_topics(frozenset partitions, dict numbers, Found *found) except -1:
    """Replace each topic by a number."""
    cdef Py_ssize_t at = 0
    cdef str topic, last = None
    cdef int32_t number = 0
    for each in partitions:
        if not isinstance(each, tuple) or PyTuple_GET_SIZE(each) != 2:
            raise TypeError(f"{each!r} is not a topic and a partition")
        topic = <str?> <object> PyTuple_GET_ITEM(each, 0)
        if topic is not last:
            number = numbers.setdefault(topic, len(numbers))
            last = topic
        found[at].topic = number
        found[at].partition = <object> PyTuple_GET_ITEM(each, 1)
        at += 1
    return 0


cdef bytes encode_topics(dict numbers, Found *found, int32_t *ordered, Py_ssize_t count, bint flexible):
    cdef Py_ssize_t topics = len(numbers), at, size, begin = 0
    cdef Py_ssize_t *ends = <Py_ssize_t *> PyMem_Calloc(topics + 1, sizeof(Py_ssize_t))
    cdef int32_t number
    cdef list names = [(name, name.encode(), number) for name, number in sorted(numbers.items())]
    cdef bytes encoded, out
    cdef uint8_t *p
    if ends == NULL:
        raise MemoryError
    try:
        for at in range(count):
            ends[found[at].topic + 1] += 1
        for at in range(topics):
            ends[at + 1] += ends[at]
        for at in range(count):   # afterwards ends[t] is the end of topic t
            number = found[at].topic
            ordered[ends[number]] = found[at].partition
            ends[number] += 1
        size = count_size(topics, flexible)
        for _, encoded, number in names:
            begin = ends[number - 1] if number else 0
            size += topic_size(PyBytes_GET_SIZE(encoded), ends[number] - begin, flexible)
            put_in_order(ordered + begin, ends[number] - begin)
        out = PyBytes_FromStringAndSize(NULL, size)
        p = put_count(<uint8_t *> PyBytes_AS_STRING(out), topics, flexible)
        for _, encoded, number in names:
            begin = ends[number - 1] if number else 0
            p = put_topic(p, encoded, ordered + begin, ends[number] - begin, flexible)
    finally:
        PyMem_Free(ends)
    assert p == <uint8_t *> PyBytes_AS_STRING(out) + size, "the field has another size"
    return out


cdef int put_in_order(int32_t *indexes, Py_ssize_t count) except -1:
    """Sort different indexes in place."""
    cdef int32_t most = 0
    cdef Py_ssize_t at, to = 0
    cdef uint8_t *has
    for at in range(count):
        if indexes[at] < 0:
            raise ValueError(f"the partition {indexes[at]} is negative")
        most = max(most, indexes[at])
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
