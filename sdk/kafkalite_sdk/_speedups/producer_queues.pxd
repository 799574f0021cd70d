"""The queues of a producer, for the modules that append records to them."""

from libc.stdint cimport int32_t

from kafkalite_sdk._speedups.deliveries cimport ProducerBatch


cdef object COLUMNS           # in place of a partition: the entry is columns


cdef class PartitionQueue:
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly ProducerBatch open
    cdef readonly object full
    cdef readonly bint leaderless
    cdef public object sender


cdef class TopicQueue:
    cdef str topic
    cdef list partitions
    cdef ProducerBatch unassigned
    cdef list records
    cdef list available
    cdef object numbers
    cdef Py_ssize_t buffered
    cdef bint used                # since the last `unused_topics`
    cdef int32_t sticky
    cdef Py_ssize_t sticky_left


cdef class Pause:
    cdef object steps
