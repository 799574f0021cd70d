# cython: nonecheck=True
"""Appends the rows of Arrow tables to the queues of a producer, and their outcome.

Invariants:
1. All rows of a table are checked, and their partitions chosen, before the first one is appended: an error sends none.
2. The rows of one call that a batch contains are one run, with one `FutureRecordMetadata` for all of them.
3. Rows of a topic without metadata wait as a copy of the table, in the order of the `send` calls: the owner of a buffer
   that was exported, such as an array of NumPy, may change it.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from kafkalite._speedups.records.batch_builder cimport Builder, begin_record
from kafkalite_sdk._speedups.accumulator cimport RecordAccumulator
from kafkalite_sdk._speedups.arguments cimport as_text
from kafkalite_sdk._speedups.arrow_rows cimport ArrowRows, bytes_at, integer_at
from kafkalite_sdk._speedups.deliveries cimport FutureRecordMetadata, ProducerBatch
from kafkalite_sdk._speedups.partitioners cimport STICKY, Partitioner
from kafkalite_sdk._speedups.producer_queues cimport COLUMNS, PartitionQueue, TopicQueue

from contextvars import copy_context

from kafkalite.errors import KafkaErrorCode, error_for
from kafkalite_sdk._speedups.arrow_rows import import_rows

__all__ = ["ColumnsDelivery", "send_columns"]

cdef enum:
    EMPTY_BATCH = 61          # bytes of a batch without records


cdef int32_t chosen_partition(Partitioner partitioner, TopicQueue queue, ArrowRows rows, int64_t row) except -2:
    """The partition of a row; STICKY = any."""
    cdef const uint8_t *key
    cdef const uint8_t *value
    cdef int64_t size
    cdef int64_t value_size
    cdef int64_t chosen
    if integer_at(&rows.partition, row, &chosen):
        return check_partition(queue, row, chosen)
    key = bytes_at(&rows.key, row, &size)
    if partitioner.function is not None:
        value = bytes_at(&rows.value, row, &value_size)
        arguments = nullable(key, size), nullable(value, value_size)
        return check_partition(queue, row, partitioner.function(*arguments, queue.numbers, queue.available))
    return partitioner.of_key(queue, key, size)


cdef int32_t check_partition(TopicQueue queue, int64_t row, int64_t chosen) except -2:
    if not 0 <= chosen < len(queue.partitions):
        known = len(queue.partitions) - 1
        raise ValueError(f"column partition, row {row}: {queue.topic} has partitions 0 to {known}, not {chosen}")
    return chosen


cdef bytes nullable(const uint8_t *data, int64_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char *> data, size)


cdef bint add_row(Builder builder, ArrowRows rows, int64_t row, int64_t timestamp) except -1:
    """Append a row to a batch; False = it does not fit."""
    cdef int64_t key_size
    cdef int64_t value_size
    cdef int64_t begin = 0
    cdef const uint8_t *key = bytes_at(&rows.key, row, &key_size)
    cdef const uint8_t *value = bytes_at(&rows.value, row, &value_size)
    cdef int64_t count = rows.header_range(row, &begin)
    cdef Py_ssize_t size = rows.headers_size(begin, count) if count else 0
    cdef uint8_t *p
    integer_at(&rows.timestamp, row, &timestamp)
    p = begin_record(
        builder, timestamp, <const char *> key, key_size, <const char *> value, value_size, count, size
    )
    if p == NULL:
        return False
    if count:
        rows.put_headers(p, begin, count)
    return True


@cython.final
cdef class ColumnsDelivery:
    """The outcome of the rows of one call; see column_sends.pyi."""
    cdef RecordAccumulator accumulator
    cdef str topic
    cdef list tables
    cdef list runs                    # FutureRecordMetadata
    cdef Py_ssize_t open_runs
    cdef object waiter

    def __cinit__(self, RecordAccumulator accumulator not None, str topic not None, list tables not None):
        self.accumulator = accumulator
        self.topic = topic
        self.tables = tables
        self.runs = []

    cdef int send(self, Py_ssize_t size) except -1:
        """Append the rows to the queues, or keep them until the metadata of the topic is known."""
        cdef TopicQueue queue = self.accumulator.topics.get(self.topic)
        cdef FutureRecordMetadata run
        cdef ArrowRows rows
        if queue is not None and queue.partitions is not None:
            self.append()
            return 0
        self.tables = [rows.kept() for rows in self.tables if rows.count]
        run = self.new_run()
        run.more = sum([len(rows) for rows in self.tables]) - 1
        self.accumulator.keep_entry(self.topic, run, 0, None, self.append, None, COLUMNS, size)
        self.open_runs = 1
        return 0

    def append(self):
        """Append the rows to the queues of their partitions."""
        cdef RecordAccumulator accumulator = self.accumulator
        cdef TopicQueue queue = accumulator.topics[self.topic]
        cdef int64_t count = sum([len(rows) for rows in self.tables])
        cdef int32_t *partitions = <int32_t *> malloc(max(1, count) * sizeof(int32_t))
        cdef int64_t at = 0
        cdef int64_t row
        cdef ArrowRows rows
        if partitions == NULL:
            raise MemoryError
        try:
            for rows in self.tables:
                for row in range(rows.count):
                    partitions[at] = chosen_partition(accumulator.partitioner, queue, rows, row)
                    at += 1
            observed = self.runs and (<FutureRecordMetadata> self.runs[0]).is_observed
            self.runs = []
            self.append_to(queue, partitions)
            self.tables = None
            self.open_runs = len(self.runs)
            if observed:
                self.observe()
        finally:
            free(partitions)

    cdef int append_to(self, TopicQueue queue, const int32_t *partitions) except -1:
        cdef RecordAccumulator accumulator = self.accumulator
        cdef int64_t now_ms = accumulator.now_ms()
        cdef list current = [None] * len(queue.partitions)  # the run of each partition
        cdef PartitionQueue target
        cdef ArrowRows rows
        cdef int64_t row
        cdef int64_t at = 0
        cdef int32_t partition
        cdef Py_ssize_t size
        for rows in self.tables:
            for row in range(rows.count):
                partition = partitions[at]
                at += 1
                if partition == STICKY:
                    target = accumulator.partitioner.sticky(queue)
                else:
                    target = <PartitionQueue> queue.partitions[partition]
                size = self.append_row(target, current, rows, row, now_ms)
                accumulator.reserve(queue, size, target.leaderless)
                if partition == STICKY:
                    queue.sticky_left -= size
        return 0

    cdef Py_ssize_t append_row(
        self, PartitionQueue target, list current, ArrowRows rows, int64_t row, int64_t now_ms
    ) except -1:
        """Append a row to the open batch of a partition, or to a new one; return its size."""
        cdef FutureRecordMetadata run = current[target.partition]
        cdef ProducerBatch batch = target.open
        cdef Py_ssize_t size = EMPTY_BATCH if batch is None else batch.builder.size
        if batch is None or not add_row(batch.builder, rows, row, now_ms):
            batch = self.accumulator.new_batch(target)
            size = EMPTY_BATCH
            add_row(batch.builder, rows, row, now_ms)
            self.accumulator.begin_batch(target, batch)
        if run is None or run.batch is not batch:
            run = current[target.partition] = self.new_run()
            batch.adopt(run, now_ms)
        else:
            run.more += 1
            batch.records_count += 1
        return batch.builder.size - size

    cdef FutureRecordMetadata new_run(self):
        """A future that is not observed although this object is called when it is done."""
        cdef FutureRecordMetadata run = FutureRecordMetadata.__new__(FutureRecordMetadata)
        run.callbacks = [(self.run_ended, copy_context())]
        self.runs.append(run)
        return run

    def run_ended(self, _run):
        """The rows of one batch have their outcome."""
        self.open_runs -= 1
        if not self.open_runs and self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    cdef int observe(self) except -1:
        cdef FutureRecordMetadata run
        for run in self.runs:
            run.observe()
        return 0

    def done(self):
        return not self.open_runs

    async def wait(self):
        """Wait for all rows; see column_sends.pyi."""
        self.observe()
        if self.open_runs:
            if self.waiter is None or self.waiter.cancelled():
                self.waiter = self.accumulator.loop.create_future()
            await self.waiter
        return self.result()

    def __await__(self):
        return self.wait().__await__()

    def result(self):
        cdef FutureRecordMetadata run
        cdef list ranges = []
        cdef list errors = []
        if self.open_runs:
            raise RuntimeError("not all rows are acknowledged yet; await it")
        self.observe()
        for run in self.runs:
            collect(run.batch, run.index, run.index + 1 + run.more, ranges, errors)
        if errors:
            error, failed = errors[0][0], sum([count for _, count in errors])
            error.add_note(f"{failed} of {failed + sum([each[3] for each in ranges])} rows failed")
            raise error
        return ranges


cdef int collect(ProducerBatch batch, int32_t begin, int32_t end, list ranges, list errors) except -1:
    """Collect the outcome of the records from index `begin` to below `end`, of each part of a batch."""
    cdef ProducerBatch part
    if batch.parts is not None:
        for part in batch.parts:
            if begin < part.records_count and end > 0:
                collect(part, max(begin, 0), min(end, part.records_count), ranges, errors)
            begin -= part.records_count
            end -= part.records_count
    elif batch.error is not None:
        errors.append((batch.error_copy(), end - begin))
    else:
        offset = batch.base_offset + begin if batch.base_offset >= 0 else -1
        ranges.append((batch.topic, batch.partition, offset, end - begin))
    return 0


def send_columns(RecordAccumulator accumulator not None, topic, table, *, bint require_key=False):
    """Queue the rows of a table; see column_sends.pyi."""
    cdef ColumnsDelivery delivery
    cdef int64_t count = 0
    cdef Py_ssize_t size = 0
    cdef ArrowRows rows
    cdef str name = as_text(topic, "topic")
    accumulator.check_use()
    tables = import_rows(table)
    for rows in tables:
        size += rows.check(count, require_key=require_key, size_max=accumulator.record_bytes_max)
        count += rows.count
    if size > accumulator.buffer_memory:
        text = f"the rows for {name} have {size} bytes, buffer_memory allows {accumulator.buffer_memory}; send slices"
        raise error_for(KafkaErrorCode.MESSAGE_TOO_LARGE, text)
    delivery = ColumnsDelivery(accumulator, name, tables)
    if count:
        delivery.send(size)
    return delivery
