"""Reads record batches: header fields and records, for clients, tools and the broker's internal topics.

1. A batch is read lazily: the header at once, each record on request; the first record decompresses the batch.
2. Records own their bytes: they stay valid when the buffer is reused.
3. Every length is bounded before it is used; invalid bytes raise `BatchError`.

Sources: DefaultRecordBatch.java, DefaultRecord.java.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kafkalite._speedups.records.validator cimport crc_of
from kafkalite._speedups.records.record_walk cimport (
    FAULT_HEADERS,
    FAULT_LENGTH,
    FAULT_MISSING,
    RecordFields,
    read_record,
    short_varint,
)
from kafkalite._speedups.wire.error_codes cimport CORRUPT_MESSAGE, INVALID_RECORD
from kafkalite._speedups.wire.wire cimport (
    BATCH_LENGTH_AT,
    BatchHeader,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    Span,
    TRANSACTIONAL_BIT,
    load_u32,
    read_batch_header,
    take,
)

from kafkalite._speedups.records.validator import BatchError, codecs_in_use

cdef enum:
    DECOMPRESSED_MAX = 1073741824

cdef inline bytes nullable(const uint8_t *at, int32_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char *> at, size)


@cython.final
@cython.no_gc
@cython.freelist(512)
cdef class Record:
    """One record: offset, timestamp in ms, key and value (None is null), headers as ((name, value or None), ...)."""

    def __repr__(self):
        return f"<Record {self.offset} at {self.timestamp}: key={self.key!r}, value={self.value!r}>"


cdef tuple read_headers(Span span, int32_t count):
    """Headers whose framing `read_record` has checked. Invalid UTF-8 in names becomes U+FFFD, as in Java."""
    cdef list found = []
    cdef const uint8_t *name
    cdef int32_t name_size
    cdef int32_t value_size
    cdef int32_t _i
    for _i in range(count):
        name_size = short_varint(&span)
        name = take(&span, name_size)
        value_size = short_varint(&span)
        found.append((
            PyUnicode_DecodeUTF8(<char *> name, name_size, "replace"),
            nullable(take(&span, max(value_size, 0)), value_size),
        ))
    return tuple(found)


@cython.final
cdef class Batch:
    """One record batch in a buffer, read lazily; iteration returns its records. See the .pyi."""

    def __cinit__(self, buffer, Py_ssize_t position=0, int64_t decompressed_max=DECOMPRESSED_MAX):
        cdef BatchHeader header
        cdef Py_buffer *view = &self.held.view
        PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
        self.position = position
        self.decompressed_max = decompressed_max
        if not 0 <= position <= view.len:
            raise BatchError(CORRUPT_MESSAGE, f"no batch begins at {position} of {view.len} bytes")
        if read_batch_header(<const uint8_t *> view.buf + position, view.len - position, &header) != 0:
            raise BatchError(CORRUPT_MESSAGE, f"no batch begins at {position} of {view.len} bytes")
        if header.magic != 2:
            raise BatchError(CORRUPT_MESSAGE, f"the batch has magic {header.magic}, not 2")
        self.fill(&header)
        if not HEADER_SIZE <= self.size <= view.len - position:
            raise BatchError(CORRUPT_MESSAGE, f"the batch claims {self.size} of {view.len - position} bytes")

    cdef void fill(self, const BatchHeader *header) noexcept:
        self.size = <Py_ssize_t> header.batch_length + LENGTH_OVERHEAD
        self.base_offset = header.base_offset
        self.leader_epoch = header.leader_epoch
        self.crc = header.crc
        self.attributes = header.attributes
        self.last_offset_delta = header.last_offset_delta
        self.base_timestamp = header.base_timestamp
        self.max_timestamp = header.max_timestamp
        self.producer_id = header.producer_id
        self.producer_epoch = header.producer_epoch
        self.base_sequence = header.base_sequence
        self.records_count = header.records_count

    def __dealloc__(self):
        PyBuffer_Release(&self.held.view)

    @property
    def codec(self):
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self):
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def transactional(self):
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def control(self):
        return self.attributes & CONTROL_BIT != 0

    @property
    def delete_horizon(self):
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def last_offset(self):
        return <int64_t> (<uint64_t> self.base_offset + <uint64_t> self.last_offset_delta)

    def __repr__(self):
        return f"<Batch {self.base_offset} to {self.last_offset}, {self.records_count} records, {self.size} bytes>"

    def __len__(self):
        return max(self.records_count, 0)

    def check_crc(self):
        """Raise BatchError unless the batch's CRC-32C is right."""
        if crc_of(<const uint8_t *> self.held.view.buf + self.position, self.size) != self.crc:
            raise BatchError(CORRUPT_MESSAGE, f"the batch is corrupt: its CRC is not {self.crc:#010x}")

    def records_bytes(self):
        """The records' bytes, decompressed."""
        cdef Span span
        self.open(&span)
        return PyBytes_FromStringAndSize(<const char *> span.at, span.left)

    def __iter__(self):
        cdef Records records = Records.__new__(Records)
        self.open(&records.span)
        records.batch = self
        records.left = self.records_count
        return records

    def records(self):
        """All records as a list, by one call."""
        cdef list found = []
        cdef RecordFields fields
        cdef Span span
        cdef int32_t i
        cdef int fault
        self.open(&span)
        for i in range(self.records_count):
            fault = read_record(&span, &fields)
            if fault:
                raise broken(fault, i)
            found.append(self.make(&fields))
        if span.left:
            raise trailing(span.left)
        return found

    cdef int open(self, Span *span) except -1:
        """Set `span` to the decompressed records."""
        cdef const uint8_t *p = <const uint8_t *> self.held.view.buf + self.position + HEADER_SIZE
        cdef Py_ssize_t size = self.size - HEADER_SIZE
        if self.records_count < 0:
            raise BatchError(INVALID_RECORD, f"the batch claims {self.records_count} records")
        if self.attributes & CODEC_MASK:
            if self.plain is None:
                _compress, decompress = codecs_in_use()
                self.plain = decompress(self.attributes & CODEC_MASK, p[:size], self.decompressed_max)
            span.at = <const uint8_t *> PyBytes_AS_STRING(self.plain)
            span.left = PyBytes_GET_SIZE(self.plain)
        else:
            span.at = p
            span.left = size
        return 0

    cdef Record make(self, const RecordFields *fields):
        cdef Record record = Record.__new__(Record)
        record.offset = <int64_t> (<uint64_t> self.base_offset + <uint64_t> fields.offset_delta)
        if self.attributes & LOG_APPEND_TIME_BIT:
            record.timestamp = self.max_timestamp
        else:
            record.timestamp = <int64_t> (<uint64_t> self.base_timestamp + <uint64_t> fields.timestamp_delta)
        record.key = nullable(fields.key, fields.key_size)
        record.value = nullable(fields.value, fields.value_size)
        record.headers = read_headers(fields.headers, fields.headers_count) if fields.headers_count else ()
        return record


cdef object broken(int fault, int32_t index):
    if fault == FAULT_MISSING:
        return BatchError(INVALID_RECORD, f"the bytes end after {index} records")
    if fault == FAULT_LENGTH:
        return BatchError(INVALID_RECORD, f"the length of record {index} reaches past the batch")
    if fault == FAULT_HEADERS:
        return BatchError(INVALID_RECORD, f"a header of record {index} is malformed")
    return BatchError(INVALID_RECORD, f"record {index} is malformed: its fields do not fill its length")


cdef object trailing(Py_ssize_t left):
    return BatchError(INVALID_RECORD, f"{left} bytes are left after the last record")


@cython.final
cdef class Records:
    """Iterator over one batch's records."""

    def __iter__(self):
        return self

    def __next__(self):
        cdef RecordFields fields
        cdef int fault
        if self.left <= 0:
            if self.span.left:
                raise trailing(self.span.left)
            raise StopIteration
        fault = read_record(&self.span, &fields)
        if fault:
            raise broken(fault, self.batch.records_count - self.left)
        self.left -= 1
        return self.batch.make(&fields)


def batches(buffer, int64_t decompressed_max=DECOMPRESSED_MAX):
    """The whole batches in `buffer`, without a truncated one at its end. See the .pyi."""
    cdef list found = []
    cdef Py_ssize_t position = 0
    cdef Py_buffer view
    cdef Batch batch
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        while whole_batch_at(&view, position):
            batch = Batch(buffer, position, decompressed_max)
            found.append(batch)
            position += batch.size
    finally:
        PyBuffer_Release(&view)
    return found


cdef bint whole_batch_at(const Py_buffer *view, Py_ssize_t position) noexcept:
    cdef Py_ssize_t left = view.len - position
    if left < LENGTH_OVERHEAD:
        return False
    return <int32_t> load_u32(<const uint8_t *> view.buf + position + BATCH_LENGTH_AT) <= left - LENGTH_OVERHEAD
