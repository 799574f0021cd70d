"""The choice of a record's partition; see partitioners.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalite_sdk._speedups.producer_queues cimport PartitionQueue, TopicQueue

cdef enum:
    STICKY = -1


cdef class Partitioner:
    cdef readonly object function  # of the application, or None
    cdef bint crc32
    cdef object draw
    cdef Py_ssize_t sticky_bytes

    cdef PartitionQueue choose(self, TopicQueue queue, key, value, partition)
    cdef int32_t of_key(self, TopicQueue queue, const uint8_t *key, int64_t size) except -2
    cdef PartitionQueue sticky(self, TopicQueue queue)
    cdef int choose_sticky(self, TopicQueue queue) except -1
