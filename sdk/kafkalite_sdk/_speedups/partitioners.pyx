"""Hashes that map a key to a partition, so that all clients of a topic agree. `RecordAccumulator.target` chooses the
partition of a record: the one that is given, of the hash, or without a key that of the open batch.

Sources: Utils.murmur2 of Apache Kafka; rd_kafka_msg_partitioner_consistent of librdkafka (crc32).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t

from zlib import crc32

cdef enum:
    SEED = 0x9747b28c
    MULTIPLIER = 0x5bd1e995
    POSITIVE = 0x7fffffff


cdef uint32_t murmur2_of(const uint8_t *p, Py_ssize_t n) noexcept nogil:
    cdef uint32_t m = <uint32_t> MULTIPLIER
    cdef uint32_t h = <uint32_t> SEED ^ <uint32_t> n
    cdef uint32_t k
    while n >= 4:
        k = <uint32_t> p[0] | <uint32_t> p[1] << 8 | <uint32_t> p[2] << 16 | <uint32_t> p[3] << 24
        k *= m
        k ^= k >> 24
        k *= m
        h = (h * m) ^ k
        p += 4
        n -= 4
    if n == 3:
        h ^= <uint32_t> p[2] << 16
    if n >= 2:
        h ^= <uint32_t> p[1] << 8
    if n >= 1:
        h = (h ^ p[0]) * m
    h = (h ^ (h >> 13)) * m
    return h ^ (h >> 15)


def murmur2(bytes data not None):
    """Return the 32-bit hash of `data` as an unsigned int."""
    return murmur2_of(<const uint8_t *> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


def murmur2_partition(bytes key not None, uint32_t partitions):
    """Return the partition of a key among `partitions`, as Kafka's Java clients choose it."""
    if not partitions:
        raise ValueError("a topic has at least one partition")
    return (murmur2_of(<const uint8_t *> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & POSITIVE) % partitions


def crc32_partition(bytes key not None, uint32_t partitions):
    """Return the partition of a key among `partitions`, as librdkafka's `consistent` partitioner chooses it."""
    if not partitions:
        raise ValueError("a topic has at least one partition")
    return crc32(key) % partitions
