# cython: nonecheck=True
"""The records of a producer that wait to be sent: an open batch and a queue of full batches per partition.

Invariants:
1. `send` does no I/O, creates no task, and calls only `wall_ms` and, for the first record of a batch, `monotonic_s`.
2. Memory is bounded: `send` fails above `buffer_memory` until completed batches have released enough.
3. Records of a partition are in the order of their `send` calls, also those that came before the metadata.
4. Records without a key go to one partition until `batch_size` bytes have gone there; then to another one, which is
   chosen with less weight the more batches wait for it (KIP-794).
"""

cimport cython

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.time cimport time
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from asyncio import InvalidStateError
from collections import deque

from kafkalite._speedups.records.batch_builder cimport Builder
from kafkalite._speedups.records.batches cimport Batch
from kafkalite_sdk._speedups.deliveries cimport FutureRecordMetadata, ProducerBatch
from kafkalite_sdk._speedups.partitioners cimport murmur2_of

from kafkalite.errors import BufferExhaustedError

__all__ = ["PartitionQueue", "RecordAccumulator"]

cdef enum:
    POSITIVE = 0x7fffffff
    EMPTY_BATCH = 61  # bytes of a batch without records


@cython.final
cdef class PartitionQueue:
    """The unsent batches of one partition; see accumulator.pyi."""
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly ProducerBatch open
    cdef readonly object full

    def __cinit__(self, str topic not None, int32_t partition):
        self.topic = topic
        self.partition = partition
        self.full = deque()


@cython.final
cdef class TopicQueue:
    """The partitions of a topic; while they are unknown, its records in `records` and their futures in `unassigned`."""
    cdef str topic
    cdef list partitions
    cdef ProducerBatch unassigned
    cdef list records
    cdef int32_t sticky
    cdef Py_ssize_t sticky_left

    def __cinit__(self, str topic not None, loop):
        self.topic = topic
        self.unassigned = ProducerBatch(topic, -1, 1, loop)
        self.records = []


@cython.final
cdef class RecordAccumulator:
    """All unsent records of a producer; see accumulator.pyi."""
    cdef dict topics
    cdef readonly Py_ssize_t buffered
    cdef readonly Py_ssize_t buffer_memory
    cdef readonly Py_ssize_t batch_size
    cdef readonly object ready
    cdef readonly object unknown_topics
    cdef object loop
    cdef object partitioner
    cdef object choose
    cdef object wall_ms
    cdef object monotonic_s
    cdef object open_batches

    def __init__(
        self, loop, *,
        Py_ssize_t batch_size, Py_ssize_t buffer_memory, monotonic_s, choose, wall_ms=None, partitioner=None,
    ):
        self.topics = {}
        self.batch_size = batch_size
        self.buffer_memory = buffer_memory
        self.loop = loop
        self.partitioner = partitioner
        self.choose = choose
        self.wall_ms = wall_ms
        self.monotonic_s = monotonic_s
        self.ready = deque()
        self.unknown_topics = []
        self.open_batches = deque()

    def send(self, str topic not None, value=None, key=None, *, partition=None, timestamp_ms=None, headers=None):
        """Queue a record; see accumulator.pyi."""
        cdef TopicQueue queue = self.topics.get(topic)
        cdef int64_t timestamp
        cdef FutureRecordMetadata future
        if timestamp_ms is not None:
            timestamp = timestamp_ms
        elif self.wall_ms is None:
            timestamp = <int64_t> (time() * 1000)
        else:
            timestamp = self.wall_ms()
        if self.buffered >= self.buffer_memory:
            raise BufferExhaustedError(f"{self.buffered} bytes are not acknowledged yet; await drain() first")
        if queue is None:
            queue = self.topics[topic] = TopicQueue(topic, self.loop)
            self.unknown_topics.append(topic)
        future = FutureRecordMetadata.__new__(FutureRecordMetadata)
        if queue.partitions is None:
            self.keep(queue, future, timestamp, key, value, headers, partition)
        else:
            self.put(queue, future, timestamp, key, value, headers, partition)
        return future

    cdef int keep(
        self, TopicQueue queue, FutureRecordMetadata future, int64_t timestamp, key, value, headers, partition
    ) except -1:
        """Queue a record whose partition cannot be chosen yet."""
        cdef Builder size = Builder(1)
        size.add(timestamp, key, value, headers)  # verifies the types, and counts the bytes
        queue.unassigned.adopt(future, timestamp)
        queue.records.append((future, timestamp, key, value, headers, partition, size.size))
        self.buffered += size.size
        return 0

    cdef int put(
        self, TopicQueue queue, FutureRecordMetadata future, int64_t timestamp, key, value, headers, partition
    ) except -1:
        cdef PartitionQueue target = self.target(queue, key, value, partition)
        cdef ProducerBatch batch = target.open
        cdef Py_ssize_t before = EMPTY_BATCH if batch is None else batch.builder.size
        if batch is None or not batch.add(future, timestamp, key, value, headers):
            batch = ProducerBatch(target.topic, target.partition, self.batch_size, self.loop, self.monotonic_s())
            before = EMPTY_BATCH
            batch.add(future, timestamp, key, value, headers)  # raises for a wrong type: no batch without records opens
            if target.open is not None:
                self.close_batch(target)
            target.open = batch
            self.open_batches.append((target, batch))
        self.buffered += batch.builder.size - before
        if key is None and partition is None:
            queue.sticky_left -= batch.builder.size - before
        return 0

    cdef PartitionQueue target(self, TopicQueue queue, key, value, partition):
        """The partition of a record."""
        cdef uint32_t count = len(queue.partitions)
        cdef int64_t chosen
        if partition is not None:
            chosen = partition
        elif self.partitioner is not None:
            chosen = self.partitioner(key, value, count)
        elif key is None:
            if queue.sticky_left <= 0:
                queue.sticky = self.next_sticky(queue)
                queue.sticky_left = self.batch_size
            return <PartitionQueue> queue.partitions[queue.sticky]
        else:
            if not PyBytes_CheckExact(key):
                key = bytes(key)
            chosen = (murmur2_of(<const uint8_t *> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & POSITIVE) % count
        if not 0 <= chosen < count:
            raise ValueError(f"{queue.topic} has partitions 0 to {count - 1}, not {chosen}")
        return <PartitionQueue> queue.partitions[chosen]

    cdef int32_t next_sticky(self, TopicQueue queue) except -1:
        """Choose a partition at random, by 1 + longest queue - its own queue."""
        cdef list lengths = [len((<PartitionQueue> each).full) for each in queue.partitions]
        cdef Py_ssize_t longest = max(lengths)
        cdef Py_ssize_t left = self.choose(sum([1 + longest - length for length in lengths]))
        for number, length in enumerate(lengths):
            left -= 1 + longest - length
            if left < 0:
                return number
        raise AssertionError("`choose` returned more than it was given")

    cdef int close_batch(self, PartitionQueue target) except -1:
        if not target.full:
            self.ready.append(target)
        target.full.append(target.open)
        target.open = None
        return 0

    def set_partitions(self, str topic not None, int32_t count):
        """Take over the number of partitions of a topic; see accumulator.pyi."""
        cdef TopicQueue queue = self.topics.get(topic)
        if queue is None:
            queue = self.topics[topic] = TopicQueue(topic, self.loop)
        known = [] if queue.partitions is None else queue.partitions
        if count < max(1, len(known)):
            raise ValueError(f"{topic} cannot shrink from {len(known)} to {count} partitions")
        known.extend([PartitionQueue(topic, number) for number in range(len(known), count)])
        if queue.partitions is None:
            queue.partitions = known
            self.assign(queue)

    cdef int assign(self, TopicQueue queue) except -1:
        """Put the records that came before the metadata into batches, in order."""
        records, queue.records = queue.records, []
        for future, timestamp, key, value, headers, partition, size in records:
            self.buffered -= size
            try:
                self.put(queue, future, timestamp, key, value, headers, partition)
            except ValueError as error:  # a partition that does not exist
                rejected = ProducerBatch(queue.topic, -1, 1, self.loop)
                rejected.adopt(future, timestamp)
                rejected.fail(error)
        return 0

    def fail_topic(self, str topic not None, error):
        """Fail the records of a topic without metadata; see accumulator.pyi."""
        cdef TopicQueue queue = self.topics.pop(topic)
        if queue.partitions is not None:
            raise ValueError(f"the partitions of {topic} are known")
        self.buffered -= sum([record[6] for record in queue.records])
        queue.unassigned.fail(error)
        return queue.unassigned

    def partitions_of(self, str topic not None):
        """The queues of a topic; see accumulator.pyi."""
        cdef TopicQueue queue = self.topics.get(topic)
        return None if queue is None else queue.partitions

    def close_batches(self, double created_until_s):
        """Close open batches that are old enough to be sent; see accumulator.pyi."""
        cdef PartitionQueue target
        cdef ProducerBatch batch
        while self.open_batches:
            target, batch = self.open_batches[0]
            if target.open is batch:
                if batch.created_s > created_until_s:
                    return batch.created_s
                self.close_batch(target)
            self.open_batches.popleft()
        return None

    def complete(self, ProducerBatch batch not None, int64_t base_offset, int64_t log_append_time_ms=-1):
        """Acknowledge a batch and release its memory; see accumulator.pyi."""
        self.release(batch)
        batch.acknowledge(base_offset, log_append_time_ms)

    def fail(self, ProducerBatch batch not None, error):
        """Fail a batch and release its memory; see accumulator.pyi."""
        self.release(batch)
        batch.fail(error)

    cdef int release(self, ProducerBatch batch) except -1:
        if batch.done:
            raise InvalidStateError("a batch is completed once")
        self.buffered -= batch.builder.size - EMPTY_BATCH
        return 0

    def split(self, ProducerBatch batch not None):
        """Replace a batch by two; see accumulator.pyi."""
        cdef ProducerBatch half
        cdef list halves = []
        cdef list records
        if batch.done:
            raise InvalidStateError("the batch is completed")
        records = Batch(batch.builder.build()).records()
        if len(records) < 2:
            raise ValueError("one record cannot be split")
        self.release(batch)
        middle = len(records) // 2
        for part in (records[:middle], records[middle:]):
            half = ProducerBatch(batch.topic, batch.partition, self.batch_size, self.loop, batch.created_s)
            for record in part:
                half.builder.add(record.timestamp, record.key, record.value, record.headers or None)
            half.records_count = len(part)
            self.buffered += half.builder.size - EMPTY_BATCH
            halves.append(half)
        batch.divide(halves)
        return halves
