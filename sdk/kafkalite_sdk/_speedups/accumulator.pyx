# cython: nonecheck=True
"""The records of a producer that wait to be sent: an open batch and a queue of full batches per partition.

Invariants:
1. `send` does no I/O and creates no task. It calls `wall_ms`, at the first record of a batch `monotonic_s` and `wake`.
2. Memory is bounded: `send` fails above `buffer_memory` until completed batches have released enough. Records that
   cannot be sent because their partition has no leader get half of it per topic.
3. Records of a partition are in the order of their `send` calls, also those that came before the metadata.
4. `partitioners` chooses the partition of a record.
5. `incomplete` has each batch from its first record to its outcome, also of partitions that no longer exist; expiry,
   flush, abort and close walk it (IncompleteBatches.java).
6. `send` and `drain` reject another event loop or thread, a forked process and a closed producer.
7. An open batch closes when the next record of its partition does not fit (`put`), when it is old enough to be sent
   (`close_batches`), when it expires, at abort and close (`queues_of_incomplete`), and when its partition is removed.
"""

cimport cython

from cpython.bytes cimport PyBytes_CheckExact
from cpython.time cimport time
from cpython.unicode cimport PyUnicode_CheckExact
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t

from asyncio import InvalidStateError
from collections import deque

from kafkalite._speedups.records.batch_builder cimport Builder, as_bytes, frozen_headers
from kafkalite._speedups.records.batches cimport Batch
from kafkalite_sdk._speedups.arguments cimport as_integer, as_text
from kafkalite_sdk._speedups.deliveries cimport FutureRecordMetadata, ProducerBatch, open_records
from kafkalite_sdk._speedups.loop_guard cimport LoopGuard, forks, run_of_loop
from kafkalite_sdk._speedups.partitioners cimport Partitioner
from kafkalite_sdk._speedups.producer_queues cimport COLUMNS, PartitionQueue, Pause, TopicQueue

from kafkalite.errors import BufferExhaustedError, KafkaErrorCode, error_for

__all__ = ["RecordAccumulator"]

cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX

cdef enum:
    EMPTY_BATCH = 61  # bytes of a batch without records
    ITERATION_BYTES = 131072  # `drain` gives the loop an iteration when so many bytes were sent since the last one


@cython.final
cdef class RecordAccumulator:
    """All unsent records of a producer; see accumulator.pyi."""

    def __init__(
        self, loop, *,
        Py_ssize_t batch_size, Py_ssize_t buffer_memory, monotonic_s, choose, wake, refuse, wait,
        record_bytes_max=None, offload_bytes=None, wall_ms=None, partitioner=None,
    ):
        self.topics = {}
        self.batch_size = batch_size
        self.buffer_memory = buffer_memory
        self.record_bytes_max = buffer_memory if record_bytes_max is None else min(record_bytes_max, buffer_memory)
        self.loop = loop
        self.partitioner = Partitioner(partitioner, choose, batch_size)
        self.wall_ms = wall_ms
        self.monotonic_s = monotonic_s
        self.wake = wake
        self.refuse = refuse
        self.wait = wait
        self.offload_bytes = PY_SSIZE_T_MAX if offload_bytes is None else offload_bytes
        self.large = deque()
        self.assigned_since = -1.0
        self.ready = deque()
        self.unassigned = {}
        self.open_batches = deque()
        self.incomplete = {}
        self.guard = LoopGuard(loop)
        self.at_once = Pause(())
        self.next_iteration = Pause((None,))

    def send(self, topic, value=None, key=None, *, partition=None, timestamp_ms=None, headers=None):
        """Queue a record; see accumulator.pyi."""
        if (self.guard.run != run_of_loop() or self.guard.forks != forks) and not self.guard.passes():
            self.refuse()
        return self.enqueue(topic, value, key, partition, timestamp_ms, headers)

    cdef FutureRecordMetadata enqueue(self, topic, value, key, partition, timestamp_ms, headers):
        """Queue a record; the caller has checked that the accumulator may be used here."""
        cdef TopicQueue queue
        cdef int64_t timestamp
        cdef FutureRecordMetadata future
        if not PyUnicode_CheckExact(topic):
            topic = as_text(topic, "topic")
        queue = self.topics.get(topic)
        if timestamp_ms is not None:
            timestamp = as_integer(timestamp_ms, "timestamp_ms")
        elif self.wall_ms is None:
            timestamp = <int64_t> (time() * 1000)
        else:
            timestamp = self.wall_ms()
        if self.buffered >= self.buffer_memory:
            raise BufferExhaustedError(f"{self.buffered} bytes are not acknowledged yet; await drain() first")
        if key is not None and not PyBytes_CheckExact(key):
            key = as_bytes(key)
        if value is not None and not PyBytes_CheckExact(value):
            value = as_bytes(value)
        if self.limited is not None:
            self.limited = None
        future = FutureRecordMetadata.__new__(FutureRecordMetadata)
        if queue is None or queue.partitions is None:
            self.keep(<str> topic, future, timestamp, key, value, headers, partition)
        else:
            self.put(queue, future, timestamp, key, value, headers, partition)
        return future

    def drain(self):
        """Wait until there is space for records; see accumulator.pyi."""
        if (self.guard.run != run_of_loop() or self.guard.forks != forks) and not self.guard.passes():
            self.refuse()
        if self.has_to_wait():
            return self.wait()
        return self.next_iteration if self.iteration_due() else self.at_once

    cpdef bint iteration_due(self) noexcept:
        """Whether the loop needs an iteration; see accumulator.pyi."""
        if self.since_iteration < ITERATION_BYTES:
            return False
        self.since_iteration = 0
        return True

    cdef int check_use(self) except -1:
        """Raise unless the producer may be used here, and has space."""
        if (self.guard.run != run_of_loop() or self.guard.forks != forks) and not self.guard.passes():
            self.refuse()
        if self.buffered >= self.buffer_memory:
            raise BufferExhaustedError(f"{self.buffered} bytes are not acknowledged yet; await drain() first")
        return 0

    cdef int64_t now_ms(self) except? -1:
        """The timestamp of a record without one."""
        return <int64_t> (time() * 1000) if self.wall_ms is None else self.wall_ms()

    @property
    def limited_topic(self):
        """The topic without a leader that the last record was for; see accumulator.pyi."""
        return None if self.limited is None else self.limited.topic

    def has_space(self, str topic not None):
        """Whether a topic without a leader may fill the buffer further; see accumulator.pyi."""
        cdef TopicQueue queue = self.topics.get(topic)
        if queue is None or queue.buffered <= self.buffer_memory // 4:
            return True
        return queue.partitions is not None and len(queue.available) == len(queue.partitions)

    cdef int check_share(self, TopicQueue queue) except -1:
        """Reject a record of a partition without a leader when its topic has half of the buffer."""
        if queue.buffered >= self.buffer_memory // 2:
            self.limited = queue
            raise BufferExhaustedError(
                f"{queue.topic} has no leader, and {queue.buffered} bytes wait for one, half of the buffer; "
                "await drain() first"
            )
        return 0

    def share(self, *, monotonic_s, wake):
        """Prepare for records of several threads; see accumulator.pyi."""
        self.monotonic_s = monotonic_s
        self.wake = wake

    cdef bint usable(self) noexcept:
        """Whether records are accepted, of any thread of the process that created it."""
        return not self.guard.closed and self.guard.same_process()

    cdef bint has_to_wait(self) noexcept:
        """Whether `drain` waits."""
        return self.must_wait or self.limited is not None or self.buffered >= self.buffer_memory

    def close(self):
        """Reject all further records; see accumulator.pyi."""
        self.guard.close()

    def open(self):
        """Accept records again; see accumulator.pyi."""
        self.guard.open()

    cdef int keep(
        self, str topic, FutureRecordMetadata future, int64_t timestamp, key, value, headers, partition
    ) except -1:
        """Queue a record whose partition cannot be chosen yet, without a reference to what the caller may change."""
        cdef Builder builder = Builder(1)
        if headers is not None:
            headers = frozen_headers(headers)
        if partition is not None:
            partition = as_integer(partition, "partition")
        builder.add(timestamp, key, value, headers)  # counts the bytes
        self.check_size(topic, builder.size)
        return self.keep_entry(topic, future, timestamp, key, value, headers, partition, builder.size)

    cdef int keep_entry(
        self, str topic, FutureRecordMetadata future, int64_t timestamp, key, value, headers, partition, Py_ssize_t size
    ) except -1:
        """Queue a record; or columns of `size` bytes, whose `partition` is COLUMNS and whose `value` sends them."""
        cdef TopicQueue queue = self.topics.get(topic)
        cdef double now = self.monotonic_s() if queue is None else 0.0
        if queue is None:
            queue = self.topics[topic] = TopicQueue(topic, self.loop)
            self.unassigned[topic] = now
            self.wake()
        self.check_share(queue)
        queue.unassigned.adopt(future, timestamp)
        queue.records.append((future, timestamp, key, value, headers, partition, size))
        self.reserve(queue, size, leaderless=True)
        return 0

    cdef int check_size(self, str topic, Py_ssize_t size) except -1:
        if size > self.record_bytes_max:
            text = f"a record of {size} bytes for {topic}; max_request_size and buffer_memory allow "
            raise error_for(KafkaErrorCode.MESSAGE_TOO_LARGE, text + str(self.record_bytes_max))
        return 0

    cdef int reserve(self, TopicQueue queue, Py_ssize_t size, bint leaderless) except -1:
        self.buffered += size
        self.since_iteration += size
        queue.buffered += size
        queue.used = True
        if leaderless and queue.buffered >= self.buffer_memory // 2:
            self.limited = queue
        return 0

    cdef int put(
        self, TopicQueue queue, FutureRecordMetadata future, int64_t timestamp, key, value, headers, partition
    ) except -1:
        cdef PartitionQueue target = self.partitioner.choose(queue, key, value, partition)
        cdef ProducerBatch batch = target.open
        cdef Py_ssize_t size = EMPTY_BATCH if batch is None else batch.builder.size
        if target.leaderless:
            self.check_share(queue)
        if batch is not None and batch.add(future, timestamp, key, value, headers):
            size = batch.builder.size - size
        else:
            size = self.open_batch(target, future, timestamp, key, value, headers)
        self.reserve(queue, size, target.leaderless)
        if key is None and partition is None:
            queue.sticky_left -= size
        return 0

    cdef Py_ssize_t open_batch(
        self, PartitionQueue target, FutureRecordMetadata future, int64_t timestamp, key, value, headers
    ) except -1:
        """Put a record into a new batch; return its size. A record that is rejected opens none."""
        cdef ProducerBatch batch = self.new_batch(target)
        batch.add(future, timestamp, key, value, headers)
        if batch.builder.size > self.batch_size:
            self.check_size(target.topic, batch.builder.size)
        self.begin_batch(target, batch)
        return batch.builder.size - EMPTY_BATCH

    cdef ProducerBatch new_batch(self, PartitionQueue target):
        """A batch that is not in the queue yet."""
        cdef ProducerBatch batch
        created_s = self.monotonic_s() if self.assigned_since < 0 else self.assigned_since
        batch = ProducerBatch(target.topic, target.partition, self.batch_size, self.loop, created_s)
        batch.queue = target
        return batch

    cdef int begin_batch(self, PartitionQueue target, ProducerBatch batch) except -1:
        """Make a new batch the open one of its partition."""
        cdef bint wake = not self.open_batches
        if target.open is not None:
            wake |= self.close_batch(target)
        target.open = batch
        self.open_batches.append((target, batch))
        self.opened += 1
        self.incomplete[batch] = self.opened
        if wake:
            self.wake()
        return 0

    cdef bint close_batch(self, PartitionQueue target) except -1:
        """Close the open batch of a partition; return whether the partition became ready."""
        cdef bint first = not target.full
        if first:
            self.ready.append(target)
        if target.open.builder.size >= self.offload_bytes:
            self.large.append(target.open)
        target.full.append(target.open)
        target.open = None
        return first

    def set_partitions(self, str topic not None, int32_t count, available=None):
        """Take over the number of partitions of a topic; see accumulator.pyi."""
        cdef TopicQueue queue = self.topics.get(topic)
        cdef PartitionQueue partition
        if queue is None:
            queue = self.topics[topic] = TopicQueue(topic, self.loop)
        unassigned = queue.partitions is None
        known = [] if unassigned else queue.partitions
        if count < max(1, len(known)):
            raise ValueError(f"{topic} cannot shrink from {len(known)} to {count} partitions")
        known.extend([PartitionQueue(topic, number) for number in range(len(known), count)])
        queue.partitions = known
        queue.numbers = range(count)
        queue.available = list(queue.numbers if available is None else available)
        with_leader = set(queue.available)
        for partition in known:
            partition.leaderless = partition.partition not in with_leader
        if (<PartitionQueue> known[queue.sticky]).leaderless:
            queue.sticky_left = 0
        if not unassigned:
            return []
        self.assigned_since = self.unassigned.pop(topic, -1.0)
        failed = self.assign(queue)
        self.assigned_since = -1.0
        return failed

    def remove_partitions(self, str topic not None, int32_t count):
        """Keep the first partitions of a topic only; see accumulator.pyi."""
        cdef TopicQueue queue = self.topics[topic]
        cdef PartitionQueue partition
        removed = queue.partitions[count:]
        for partition in removed:
            if partition.open is not None:
                self.close_batch(partition)
        del queue.partitions[count:]
        queue.numbers = range(count)
        queue.available = [each for each in queue.available if each < count]
        queue.sticky = queue.sticky_left = 0
        return removed

    cdef list assign(self, TopicQueue queue):
        """Put the records that came before the metadata into batches, in order; return those that are rejected."""
        cdef list failed = []
        records, queue.records = queue.records, []
        for future, timestamp, key, value, headers, partition, size in records:
            self.buffered -= size
            queue.buffered -= size
            try:
                if partition is COLUMNS:
                    value()
                else:
                    self.put(queue, future, timestamp, key, value, headers, partition)
            except Exception as error:  # there is no such partition, or the user's partitioner raises
                rejected = ProducerBatch(queue.topic, -1, 1, self.loop)
                rejected.adopt(future, timestamp)
                rejected.fail(error)
                failed.append(rejected)
        return failed

    def fail_topic(self, str topic not None, error):
        """Fail the records of a topic without metadata; see accumulator.pyi."""
        cdef TopicQueue queue = self.topics[topic]
        if queue.partitions is not None:
            raise ValueError(f"the partitions of {topic} are known")
        del self.topics[topic]
        self.unassigned.pop(topic, None)
        self.buffered -= queue.buffered
        queue.unassigned.fail(error)
        return queue.unassigned

    def unused_topics(self):
        """The topics without records since the last call; see accumulator.pyi."""
        cdef TopicQueue queue
        cdef list unused = []
        for queue in self.topics.values():
            if queue.partitions is not None and not queue.used and not queue.buffered:
                unused.append(queue.topic)
            queue.used = False
        return unused

    def forget_topic(self, str topic not None):
        """Forget a topic without records; see accumulator.pyi."""
        cdef TopicQueue queue = self.topics[topic]
        if queue.buffered or queue.partitions is None:
            raise ValueError(f"records for {topic} have no outcome yet")
        del self.topics[topic]

    @property
    def records_incomplete(self):
        cdef TopicQueue queue
        cdef ProducerBatch batch
        cdef int64_t count = 0
        for batch in self.incomplete:
            count += open_records(batch)
        for topic in self.unassigned:
            queue = self.topics[topic]
            count += queue.unassigned.records_count
        return count

    def partitions_of(self, str topic not None):
        """The queues of a topic; see accumulator.pyi."""
        cdef TopicQueue queue = self.topics.get(topic)
        return None if queue is None else queue.partitions

    def close_batches(self, double created_until_s):
        """Close open batches that are old enough to be sent; see accumulator.pyi."""
        cdef PartitionQueue target
        cdef ProducerBatch batch
        self.since_iteration = 0
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
        cdef ProducerBatch root = batch.root()
        self.release(batch)
        batch.acknowledge(base_offset, log_append_time_ms)
        if root.done:
            self.incomplete.pop(root, None)

    def fail(self, ProducerBatch batch not None, error):
        """Fail a batch and release its memory; see accumulator.pyi."""
        cdef ProducerBatch root = batch.root()
        self.release(batch)
        batch.fail(error)
        if root.done:
            self.incomplete.pop(root, None)

    cdef int release(self, ProducerBatch batch) except -1:
        cdef TopicQueue queue = self.topics.get(batch.topic)
        if batch.done:
            raise InvalidStateError("a batch is completed once")
        self.buffered -= batch.builder.size - EMPTY_BATCH
        if queue is not None:
            queue.buffered -= batch.builder.size - EMPTY_BATCH
        return 0

    def oldest_incomplete(self):
        """The number of the oldest batch that is not completed; see accumulator.pyi."""
        return next(iter(self.incomplete.values()), self.opened + 1)

    def queues_of_incomplete(self, double now, double timeout_s):
        """The queues of batches that are not completed; see accumulator.pyi."""
        cdef dict queues = {}
        cdef PartitionQueue queue
        cdef ProducerBatch batch
        for batch in self.incomplete:
            if batch.created_s + timeout_s > now:
                continue
            queue = batch.queue
            if queue.open is batch:
                self.close_batch(queue)
            queues[queue] = None
        return list(queues)

    def oldest_created_s(self):
        """When the oldest incomplete batch was created; see accumulator.pyi."""
        cdef double oldest = INFINITY
        cdef ProducerBatch batch
        for batch in self.incomplete:
            if batch.created_s < oldest:
                oldest = batch.created_s
        return oldest

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
            half.queue = batch.queue
            for record in part:
                half.builder.add(record.timestamp, record.key, record.value, record.headers or None)
            half.records_count = len(part)
            self.reserve(self.topics[batch.topic], half.builder.size - EMPTY_BATCH, leaderless=False)
            halves.append(half)
        batch.divide(halves)
        return halves
