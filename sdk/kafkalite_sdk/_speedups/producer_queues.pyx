# cython: nonecheck=True
"""The queues of a producer: one per topic, and one per partition with its open batch and its full ones."""

cimport cython

from libc.stdint cimport int32_t

from kafkalite_sdk._speedups.deliveries cimport ProducerBatch

from collections import deque

__all__ = ["PartitionQueue"]

COLUMNS = object()


@cython.final
cdef class PartitionQueue:
    """The unsent batches of one partition; see producer_queues.pyi."""

    def __cinit__(self, str topic not None, int32_t partition):
        self.topic = topic
        self.partition = partition
        self.full = deque()
        self.leaderless = False


@cython.final
cdef class TopicQueue:
    """The partitions of a topic; while they are unknown, its records in `records` and their futures in `unassigned`."""

    def __cinit__(self, str topic not None, loop):
        self.topic = topic
        self.unassigned = ProducerBatch(topic, -1, 1, loop)
        self.records = []


@cython.final
cdef class Pause:
    """An awaitable that ends at once, or after one iteration of the loop."""

    def __cinit__(self, tuple steps):
        self.steps = steps

    def __await__(self):
        return iter(self.steps)
