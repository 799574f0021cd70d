# cython: nonecheck=True
"""Chooses the partition of a record: the one that is given, that of the application's function, of the hash of the key,
or without a key the sticky one: that of the open batch.

Records without a key go to one partition until `batch_size` bytes have gone there; then to another one with a leader,
which is chosen with less weight the more batches wait for it (KIP-794, BuiltInPartitioner.java).

Sources: Utils.murmur2 of Apache Kafka; rd_kafka_msg_partitioner_consistent of librdkafka (crc32).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from zlib import crc32

from kafkalite_sdk._speedups.arguments cimport as_integer
from kafkalite_sdk._speedups.producer_queues cimport PartitionQueue, TopicQueue

__all__ = ["crc32_partition", "murmur2", "murmur2_partition"]

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


@cython.final
cdef class Partitioner:
    """Chooses the partitions of a producer's records.

    Arguments:
        partitioner: `crc32`, a function of the application, or anything else for murmur2.
        draw: returns a random number from 0 to below its argument.
        sticky_bytes: after so many bytes without a key another partition is chosen.
    """

    def __cinit__(self, partitioner, draw, Py_ssize_t sticky_bytes):
        self.crc32 = partitioner == "crc32"
        self.function = partitioner if callable(partitioner) else None
        self.draw = draw
        self.sticky_bytes = sticky_bytes

    cdef PartitionQueue choose(self, TopicQueue queue, key, value, partition):
        """The partition of a record. Raises ValueError for one that the topic does not have."""
        cdef uint32_t count = len(queue.partitions)
        cdef int64_t chosen
        if partition is not None:
            chosen = as_integer(partition, "partition")
        elif self.function is not None:
            chosen = self.function(key, value, queue.numbers, queue.available)
        elif key is None or (self.crc32 and not len(key)):
            if queue.sticky_left <= 0:
                self.choose_sticky(queue)
            return <PartitionQueue> queue.partitions[queue.sticky]
        elif self.crc32:
            chosen = crc32(key) % count
        else:
            chosen = (murmur2_of(<const uint8_t *> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & POSITIVE) % count
        if not 0 <= chosen < count:
            raise ValueError(f"{queue.topic} has partitions 0 to {count - 1}, not {chosen}")
        return <PartitionQueue> queue.partitions[chosen]

    cdef int32_t of_key(self, TopicQueue queue, const uint8_t *key, int64_t size) except -2:
        """The partition of a key; STICKY for none, which has size -1."""
        cdef uint32_t count = len(queue.partitions)
        if size < 0 or (self.crc32 and size == 0):
            return STICKY
        if self.crc32:
            return crc32(key[:size]) % count
        return (murmur2_of(key, size) & POSITIVE) % count

    cdef PartitionQueue sticky(self, TopicQueue queue):
        """The partition of the next record without a key."""
        if queue.sticky_left <= 0:
            self.choose_sticky(queue)
        return <PartitionQueue> queue.partitions[queue.sticky]

    cdef int choose_sticky(self, TopicQueue queue) except -1:
        """Choose a partition with a leader at random, by 1 + longest queue - its own queue."""
        cdef list candidates = queue.available or list(queue.numbers)
        cdef list lengths = [len((<PartitionQueue> queue.partitions[each]).full) for each in candidates]
        cdef Py_ssize_t longest = max(lengths)
        cdef Py_ssize_t left = self.draw(sum([1 + longest - length for length in lengths]))
        for number, length in zip(candidates, lengths):
            left -= 1 + longest - length
            if left < 0:
                queue.sticky = number
                queue.sticky_left = self.sticky_bytes
                return 0
        raise AssertionError("`draw` returned more than it was given")
