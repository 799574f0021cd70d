# cython: nonecheck=True
"""Decodes the record batches of Fetch responses into light records.

Invariants:
1. A record keeps the bytes of its batch in memory, at most; never the whole response.
2. Every length is compared with the bytes left before it is used. Records before damaged bytes are returned first, then
   `error` has the reason. A batch with a wrong CRC returns none of its records.
3. Offsets grow strictly. Offsets below the position, removed by compaction, of control records and of aborted
   transactions are skipped.

Sources: CompletedFetch.java and DefaultRecordBatch.java of Apache Kafka 4.3.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkalite._speedups.records.record_walk cimport (
    FAULT_NONE,
    FAULT_OFFSET,
    FAULT_TRAILING,
    RecordFields,
    read_record,
)
from kafkalite._speedups.records.validator cimport crc_of, decompressed
from kafkalite._speedups.wire.crc32c cimport crc32c
from kafkalite._speedups.wire.error_codes cimport CORRUPT_MESSAGE, INVALID_RECORD
from kafkalite._speedups.wire.held_buffer cimport HeldBuffer
from kafkalite._speedups.wire.wire cimport (
    ATTRIBUTES_AT, BATCH_LENGTH_AT, BatchHeader, CODEC_MASK, CONTROL_BIT, HEADER_SIZE, LEGACY_OVERHEAD,
    LENGTH_OVERHEAD, LOG_APPEND_TIME_BIT, MAGIC_AT, Span, TRANSACTIONAL_BIT, load_u16, load_u32, load_u64,
    read_batch_header,
)
from kafkalite_sdk._speedups.consumer_records cimport (
    BY_CREATE_TIME,
    BY_LOG_APPEND_TIME,
    Record,
    RecordBatch,
    RecordDecoder,
    fault_text,
)

from kafkalite_sdk._speedups.column_builder cimport COLUMNS_END, COLUMNS_FULL, COLUMNS_TIME, ColumnBuilder, RecordCursor

from types import GenericAlias

from kafkalite.errors import CorruptRecordError
from kafkalite.records import BatchError  # the package registers the codecs

__all__ = ["FetchedRecords"]

cdef enum:
    MAGIC = 2
    CRC_CALL_BYTES = 512      # below, the call of the crc32c package costs more than its speed gains
    ABORT_MARKER = 0          # ControlRecordType.java
    CONTROL_KEY_SIZE = 4      # int16 version, int16 type


@cython.final
cdef class FetchedRecords:
    """The records of one partition in one Fetch response; see fetched_records.pyi."""
    cdef RecordDecoder decoder
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int64_t position
    cdef readonly int32_t leader_epoch
    cdef readonly int64_t end_offset
    cdef readonly int32_t end_epoch
    cdef readonly bint continues
    cdef readonly Py_ssize_t size
    cdef readonly object error
    cdef readonly bint waits
    cdef HeldBuffer held
    cdef Py_ssize_t at                # of the next batch in the response
    cdef Py_ssize_t opened_at         # of the open batch in the response, -1 = its bytes are not kept
    cdef bint borrowing               # records may stay in the memory of the response while they are read
    cdef bint advanced                # a batch was read, or skipped although it is not below the position
    cdef list aborted                 # (first offset, producer id) of aborted transactions, the last one first
    cdef set aborted_producers
    cdef RecordBatch batch            # the open batch, and what is left of it
    cdef Span span
    cdef int32_t left
    cdef int64_t last_offset
    cdef int64_t before               # offset of the record before; each next one is larger
    cdef object plain                 # decompressed records of the next batch, or the error of decompressing them

    def __cinit__(
        self,
        RecordDecoder decoder not None,
        str topic not None,
        int32_t partition,
        data,
        int64_t position,
        aborted=(),
    ):
        if not 0 <= position < INT64_MAX:
            raise ValueError(f"{topic}-{partition}: no record has offset {position}")
        PyObject_GetBuffer(data, &self.held.view, PyBUF_SIMPLE)
        self.decoder = decoder
        self.topic = topic
        self.partition = partition
        self.position = position
        self.leader_epoch = -1
        self.aborted = sorted([(first, producer) for producer, first in aborted], reverse=True) if aborted else []
        self.aborted_producers = set()
        self.size = self.held.view.len
        self.end_offset = position
        self.end_epoch = -1
        self.continues = self.scan() and self.end_offset > position

    @classmethod
    def __class_getitem__(cls, types, /):
        return GenericAlias(cls, types)

    def __dealloc__(self):
        PyBuffer_Release(&self.held.view)

    def detach(self):
        """Copy the batches that are not open yet; see fetched_records.pyi."""
        self.own_batch()
        rest = PyBytes_FromStringAndSize(<const char *> self.bytes_at(self.at), self.held.view.len - self.at)
        PyBuffer_Release(&self.held.view)
        PyObject_GetBuffer(rest, &self.held.view, PyBUF_SIMPLE)
        self.at = 0
        self.opened_at = -1

    @property
    def open_bytes(self):
        """Memory of the open batch, or of the next one that is decompressed."""
        if self.batch is not None:
            return 0 if self.batch.memory is None else PyBytes_GET_SIZE(self.batch.memory)
        return PyBytes_GET_SIZE(self.plain) if isinstance(self.plain, bytes) else 0

    def close_batch(self):
        """Free the memory of `open_bytes`; see fetched_records.pyi."""
        if self.waits or (self.batch is not None and self.opened_at < 0):
            return False
        if self.batch is not None:
            self.at = self.opened_at
            self.batch = None
        self.plain = None
        return True

    @property
    def done(self):
        """Nothing is left, except an error."""
        return self.error is not None or (self.batch is None and self.at == self.held.view.len)

    cdef const uint8_t *bytes_at(self, Py_ssize_t at) noexcept:
        return <const uint8_t *> self.held.view.buf + at

    cdef Py_ssize_t size_at(self, Py_ssize_t at) noexcept:
        """Size that the batch at `at` claims; more than there is if its size field is missing."""
        if self.held.view.len - at < LENGTH_OVERHEAD:
            return LENGTH_OVERHEAD
        return <Py_ssize_t> <int32_t> load_u32(self.bytes_at(at) + BATCH_LENGTH_AT) + LENGTH_OVERHEAD

    cdef bint scan(self) except -1:
        """Find the offset behind the last whole batch, by the headers; False = a header is not plausible."""
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t size
        cdef const uint8_t *p
        cdef BatchHeader header
        cdef int64_t last
        while (size := self.size_at(at)) <= self.held.view.len - at:
            p = self.bytes_at(at)
            if size < LEGACY_OVERHEAD + LENGTH_OVERHEAD or p[MAGIC_AT] > MAGIC:
                return False
            last = <int64_t> load_u64(p)
            if p[MAGIC_AT] == MAGIC:
                if read_batch_header(p, size, &header) or not has_valid_offsets(&header):
                    return False
                last = header.base_offset + header.last_offset_delta
                self.end_epoch = header.leader_epoch
            if last == INT64_MAX:
                return False
            self.end_offset = max(self.end_offset, last + 1)
            at += size
        return True

    def take_columns(self, ColumnBuilder columns not None, int64_t end=INT64_MAX):
        """Append the next records to columns; see fetched_records.pyi."""
        cdef Py_ssize_t before = len(columns)
        self.borrowing = True
        columns.expect(self.held.view.len - self.at)
        while self.position < end and not columns.is_full() and self.error is None and not self.waits:
            if self.batch is None and (self.begins_behind(end) or not self.open_next()):
                break
            if self.batch is not None and not self.read_columns(columns, end):
                break
        return len(columns) - before

    cdef bint begins_behind(self, int64_t end) except -1:
        """Whether all offsets of the next batch are at `end` or behind it: the range ends before it."""
        if end == INT64_MAX or self.held.view.len - self.at < HEADER_SIZE or self.bytes_at(self.at)[MAGIC_AT] != MAGIC:
            return False
        if <int64_t> load_u64(self.bytes_at(self.at)) < end:
            return False
        self.position = end
        return True

    cdef bint read_columns(self, ColumnBuilder columns, int64_t end) except -1:
        """Append records of the open batch. False = the columns are full, `end` is reached, or the batch is damaged."""
        cdef RecordBatch batch = self.batch
        cdef RecordCursor cursor
        cdef int found
        cursor.span = self.span
        cursor.left = self.left
        cursor.base_offset = batch.base_offset
        cursor.last_offset = self.last_offset
        cursor.before = self.before
        cursor.position = self.position
        cursor.end = end
        cursor.base_timestamp = batch.base_timestamp
        cursor.append_timestamp = batch.append_timestamp
        cursor.timestamp_type = batch.timestamp_type
        found = columns.append_records(&cursor, self.topic, self.partition)
        self.span = cursor.span
        self.left = cursor.left
        self.before = cursor.before
        self.position = cursor.position
        if found > 0:
            self.damaged(found)
        elif found == COLUMNS_TIME:
            self.error = columns.time_error(self.topic, self.partition, self.position, cursor.time_ms)
            self.batch = None
        elif found == COLUMNS_END:
            self.position = end
        elif found != COLUMNS_FULL:
            self.end_records()
        return not found

    cdef int own_batch(self) except -1:
        """Copy the records of the open batch if they are in the memory of the response."""
        cdef RecordBatch batch = self.batch
        cdef const uint8_t *former
        if batch is not None and batch.memory is None:
            former = batch.records
            batch.memory = PyBytes_FromStringAndSize(<const char *> former, batch.size)
            batch.records = <const uint8_t *> PyBytes_AS_STRING(batch.memory)
            self.span.at = batch.records + (self.span.at - former)
        return 0

    def take(self, list records not None, Py_ssize_t records_max):
        """Append the next records; see fetched_records.pyi."""
        cdef Py_ssize_t before = len(records)
        cdef Py_ssize_t until = before + records_max
        self.borrowing = False
        self.own_batch()
        while len(records) < until and self.error is None and not self.waits:
            if self.batch is None and not self.open_next():
                break
            if self.batch is not None:
                self.read_batch(records, until)
        return len(records) - before

    cdef int read_batch(self, list records, Py_ssize_t until) except -1:
        """Append records of the open batch, until the list has `until` records."""
        cdef RecordBatch batch = self.batch
        cdef const uint8_t *begin = batch.records
        cdef const uint8_t *at
        cdef RecordFields fields
        cdef Record record
        cdef int64_t offset
        cdef int fault = FAULT_NONE
        cdef Py_ssize_t wanted = until - len(records)
        while self.left and wanted:
            at = self.span.at
            fault = read_record(&self.span, &fields)
            if fault:
                return self.damaged(fault)
            offset = <int64_t> (<uint64_t> batch.base_offset + <uint64_t> <int64_t> fields.offset_delta)
            if offset <= self.before or offset > self.last_offset:
                return self.damaged(FAULT_OFFSET)
            self.left -= 1
            self.before = offset
            if offset < self.position:
                continue
            record = Record.__new__(Record)
            record.batch = batch
            record.offset = offset
            record.at = <uint32_t> (at - begin)
            records.append(record)
            self.position = offset + 1
            wanted -= 1
        return 0 if self.left else self.end_records()

    cdef int end_records(self) except -1:
        """All records of the open batch have been read."""
        return self.damaged(FAULT_TRAILING) if self.span.left else self.end_batch()

    cdef int end_batch(self) except -1:
        self.position = max(self.position, self.last_offset + 1)
        self.batch = None
        return 0

    cdef int damaged(self, int fault) except -1:
        """The open batch cannot be read any further."""
        return self.fail(INVALID_RECORD, fault_text(fault), self.last_offset + 1)

    cdef int fail(self, int code, str reason, int64_t next_offset) except -1:
        self.error = CorruptRecordError(
            code, self.topic, self.partition, self.position, max(next_offset, self.position + 1), reason
        )
        self.batch = None
        return 0

    cdef bint open_next(self) except -1:
        """Open or skip the next batch; False = there is none."""
        cdef Py_ssize_t left = self.held.view.len - self.at
        cdef Py_ssize_t size
        cdef int64_t last
        if not left:
            if not self.advanced and self.held.view.len:
                self.fail(CORRUPT_MESSAGE, "all batches of the response end before it", self.position + 1)
            return False
        size = self.size_at(self.at)
        if size > left:  # the broker truncates the last batch of a response
            if not self.advanced:
                text = f"the response has {left} bytes, a batch claims {size} or more"
                self.fail(CORRUPT_MESSAGE, text, self.position + 1)
            self.at = self.held.view.len
            return False
        if size < LEGACY_OVERHEAD + LENGTH_OVERHEAD:
            self.fail(CORRUPT_MESSAGE, f"a batch claims {size} bytes", self.position + 1)
            return False
        magic = self.bytes_at(self.at)[MAGIC_AT]
        self.opened_at = self.at
        try:
            if magic < MAGIC:
                self.open_legacy(size)
            elif magic == MAGIC:
                self.open_batch(size)
            else:
                text = f"a batch has magic {magic}, known are 0 to {MAGIC}"
                raise BatchError(CORRUPT_MESSAGE, text)
        except BatchError as error:
            last = self.claimed_last_offset(size)
            self.fail(error.code, str(error), last + 1 if last < INT64_MAX else last)
        return not self.waits and self.error is None

    cdef int64_t claimed_last_offset(self, Py_ssize_t size) noexcept:
        """Last offset of the batch at `at` as its header claims; below the position if that is not plausible."""
        cdef const uint8_t *p = self.bytes_at(self.at)
        cdef BatchHeader header
        if p[MAGIC_AT] < MAGIC:
            return <int64_t> load_u64(p)
        if p[MAGIC_AT] > MAGIC or read_batch_header(p, size, &header) or not has_valid_offsets(&header):
            return -1
        return header.base_offset + header.last_offset_delta if header.base_offset <= self.position else -1

    cdef int open_batch(self, Py_ssize_t size) except -1:
        """Open the batch of magic 2 at `at`, or skip it. Raises BatchError."""
        cdef const uint8_t *p = self.bytes_at(self.at)
        cdef BatchHeader header
        if read_batch_header(p, size, &header):
            raise BatchError(CORRUPT_MESSAGE, f"a batch claims {size} bytes, less than its header has")
        if not has_valid_offsets(&header):
            text = f"a batch claims offset {header.base_offset} and {header.last_offset_delta} more"
            raise BatchError(CORRUPT_MESSAGE, text)
        if header.base_offset + header.last_offset_delta < self.position:
            self.at += size
            return 0
        if self.plain is None:
            if self.decoder.check_crcs and checksum(p, size) != header.crc:
                raise BatchError(CORRUPT_MESSAGE, f"a batch is corrupt, its CRC is not {header.crc:#010x}")
            if header.records_count < 0:
                raise BatchError(INVALID_RECORD, f"a batch claims {header.records_count} records")
        self.last_offset = header.base_offset + header.last_offset_delta
        if self.is_aborted(&header):
            self.leader_epoch = header.leader_epoch
            self.end_batch()
        elif header.attributes & CODEC_MASK and self.plain is None and 0 < self.decoder.offload_bytes <= size:
            self.waits = True
            return 0
        else:
            self.begin(p, size, &header)
            if header.attributes & CONTROL_BIT:
                self.apply_marker(&header)
                self.end_batch()
        self.at += size
        self.advanced = True
        return 0

    cdef bint is_aborted(self, const BatchHeader *header) except -1:
        """Whether the batch belongs to an aborted transaction, by the list of the response."""
        if not self.decoder.read_committed or header.producer_id < 0:
            return False
        while self.aborted and self.aborted[len(self.aborted) - 1][0] <= self.last_offset:
            self.aborted_producers.add(self.aborted.pop()[1])
        if header.attributes & CONTROL_BIT or not header.attributes & TRANSACTIONAL_BIT:
            return False
        return header.producer_id in self.aborted_producers

    cdef int apply_marker(self, const BatchHeader *header) except -1:
        """A control batch ends the transaction of its producer. Raises BatchError."""
        cdef RecordFields fields
        if not self.left:
            return 0  # removed by compaction
        if read_record(&self.span, &fields) or fields.key_size < CONTROL_KEY_SIZE:
            raise BatchError(INVALID_RECORD, "a control record is malformed")
        if load_u16(fields.key + 2) == ABORT_MARKER:
            self.aborted_producers.discard(header.producer_id)
        return 0

    cdef int begin(self, const uint8_t *p, Py_ssize_t size, const BatchHeader *header) except -1:
        """Open a batch. Its records are copied, or decompressed, so that they do not keep the response. Raises
        BatchError.
        """
        cdef RecordBatch batch = RecordBatch.__new__(RecordBatch)
        cdef int codec = header.attributes & CODEC_MASK
        plain, self.plain = self.plain, None
        if isinstance(plain, BatchError):
            raise plain
        if plain is not None:
            batch.memory = plain
        elif codec:
            batch.memory = decompressed(codec, p + HEADER_SIZE, size - HEADER_SIZE, self.decoder.decompressed_max)
        elif not self.borrowing:
            batch.memory = PyBytes_FromStringAndSize(<const char *> p + HEADER_SIZE, size - HEADER_SIZE)
        batch.base_offset = header.base_offset
        batch.base_timestamp = header.base_timestamp
        batch.append_timestamp = header.max_timestamp
        batch.leader_epoch = header.leader_epoch
        batch.timestamp_type = BY_LOG_APPEND_TIME if header.attributes & LOG_APPEND_TIME_BIT else BY_CREATE_TIME
        if batch.memory is not None:
            return self.begin_records(batch, header.records_count)
        batch.records = p + HEADER_SIZE
        batch.size = size - HEADER_SIZE
        return self.begin_batch(batch, header.records_count)

    cdef int begin_records(self, RecordBatch batch, int32_t count) except -1:
        batch.records = <const uint8_t *> PyBytes_AS_STRING(batch.memory)
        batch.size = PyBytes_GET_SIZE(batch.memory)
        return self.begin_batch(batch, count)

    cdef int begin_batch(self, RecordBatch batch, int32_t count) except -1:
        batch.decoder = self.decoder
        batch.topic = self.topic
        batch.partition = self.partition
        self.batch = batch
        self.leader_epoch = batch.leader_epoch
        self.span.at = batch.records
        self.span.left = batch.size
        self.left = count
        self.before = batch.base_offset - 1
        return 0

    cdef int open_legacy(self, Py_ssize_t size) except -1:
        """Open the entry of magic 0 or 1 at `at`, rewritten as records of magic 2. Raises BatchError."""
        from kafkalite.records.legacy_conversion import rewrite

        cdef RecordBatch batch = RecordBatch.__new__(RecordBatch)
        if <int64_t> load_u64(self.bytes_at(self.at)) < self.position:
            self.at += size
            return 0
        entry = PyBytes_FromStringAndSize(<const char *> self.bytes_at(self.at), size)
        found = rewrite(entry, self.decoder.decompressed_max, check_crc=self.decoder.check_crcs)
        batch.memory = found.records
        batch.base_offset = found.base_offset
        batch.append_timestamp = found.append_timestamp
        batch.leader_epoch = -1
        batch.timestamp_type = found.timestamp_type
        self.last_offset = found.last_offset
        self.begin_records(batch, found.records_count)
        self.at += size
        self.advanced = True
        return 0

    def decompress(self):
        """Decompress the batch that `take` waits for; see fetched_records.pyi."""
        cdef const uint8_t *p
        cdef Py_buffer held               # `detach` may replace the memory meanwhile
        cdef Py_ssize_t at = self.at
        cdef int codec
        if not self.waits:
            raise RuntimeError("no batch waits for decompression")
        size = self.size_at(at) - HEADER_SIZE
        PyObject_GetBuffer(<object> self.held.view.obj, &held, PyBUF_SIMPLE)
        try:
            p = <const uint8_t *> held.buf + at
            codec = load_u16(p + ATTRIBUTES_AT) & CODEC_MASK
            self.plain = decompressed(codec, p + HEADER_SIZE, size, self.decoder.decompressed_max)
        except BatchError as error:
            self.plain = error
        finally:
            PyBuffer_Release(&held)
        self.waits = False


cdef inline bint has_valid_offsets(const BatchHeader *header) noexcept nogil:
    return 0 <= header.last_offset_delta and 0 <= header.base_offset < INT64_MAX - header.last_offset_delta


cdef inline int64_t checksum(const uint8_t *p, Py_ssize_t size) except -1:
    """CRC-32C of a batch, from its attributes to its end."""
    if size < CRC_CALL_BYTES:
        return crc32c(p + ATTRIBUTES_AT, size - ATTRIBUTES_AT)
    return crc_of(p, size)
