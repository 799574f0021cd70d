"""The queues of a producer, for the modules that append records to them."""

from libc.stdint cimport int32_t, int64_t

from kafkalite_sdk._speedups.deliveries cimport FutureRecordMetadata, ProducerBatch
from kafkalite_sdk._speedups.loop_guard cimport LoopGuard
from kafkalite_sdk._speedups.partitioners cimport Partitioner
from kafkalite_sdk._speedups.producer_queues cimport PartitionQueue, Pause, TopicQueue


cdef class RecordAccumulator:
    cdef dict topics
    cdef readonly Py_ssize_t buffered
    cdef readonly Py_ssize_t buffer_memory
    cdef readonly Py_ssize_t batch_size
    cdef readonly object ready
    cdef readonly dict unassigned
    cdef readonly int64_t opened
    cdef public bint must_wait
    cdef Py_ssize_t record_bytes_max
    cdef Py_ssize_t since_iteration
    cdef Py_ssize_t offload_bytes
    cdef readonly object large
    cdef double assigned_since
    cdef TopicQueue limited
    cdef LoopGuard guard
    cdef object loop
    cdef Partitioner partitioner
    cdef object wall_ms
    cdef object monotonic_s
    cdef object wake
    cdef object refuse
    cdef object wait
    cdef object open_batches
    cdef dict incomplete
    cdef Pause at_once
    cdef Pause next_iteration

    cdef FutureRecordMetadata enqueue(self, topic, value, key, partition, timestamp_ms, headers)
    cdef bint usable(self) noexcept
    cdef bint has_to_wait(self) noexcept
    cpdef bint iteration_due(self) noexcept
    cdef int check_share(self, TopicQueue queue) except -1
    cdef int keep(
        self, str topic, FutureRecordMetadata future, int64_t timestamp, key, value, headers, partition
    ) except -1
    cdef int keep_entry(
        self, str topic, FutureRecordMetadata future, int64_t timestamp, key, value, headers, partition, Py_ssize_t size
    ) except -1
    cdef ProducerBatch new_batch(self, PartitionQueue target)
    cdef int begin_batch(self, PartitionQueue target, ProducerBatch batch) except -1
    cdef int check_use(self) except -1
    cdef int64_t now_ms(self) except? -1
    cdef int check_size(self, str topic, Py_ssize_t size) except -1
    cdef int reserve(self, TopicQueue queue, Py_ssize_t size, bint leaderless) except -1
    cdef int put(
        self, TopicQueue queue, FutureRecordMetadata future, int64_t timestamp, key, value, headers, partition
    ) except -1
    cdef Py_ssize_t open_batch(
        self, PartitionQueue target, FutureRecordMetadata future, int64_t timestamp, key, value, headers
    ) except -1
    cdef bint close_batch(self, PartitionQueue target) except -1
    cdef list assign(self, TopicQueue queue)
    cdef int release(self, ProducerBatch batch) except -1
