"""Record batches v2 built and taken apart: for clients, tools and the broker's own internal topics.

1. A builder writes each record once, into memory of its own; `build` only fills in the header around it.
2. A batch is read lazily: the header at once, records one by one, decompression when the first record is asked for.
3. Records own their bytes: they stay valid when the buffer they came from is used again.
4. What the bytes say is bounded before it is believed; bad bytes raise `BatchError`.

Sources: DefaultRecordBatch.java, DefaultRecord.java, MemoryRecordsBuilder.java.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from kafkalite._speedups.records.validator cimport crc_of
from kafkalite._speedups.records.record_walk cimport (
    FAULT_HEADERS,
    FAULT_LENGTH,
    FAULT_MISSING,
    RecordFields,
    read_record,
    short_varint,
)
from kafkalite._speedups.wire.error_codes cimport (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from kafkalite._speedups.wire.wire cimport (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    BATCH_LENGTH_AT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORDS_COUNT_AT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Span,
    load_u32,
    put_varlong,
    read_batch_header,
    store_u16,
    store_u32,
    store_u64,
    take,
)

from kafkalite._speedups.records.validator import BatchError, codecs_in_use

cdef enum:
    SIZE_MAX_DEFAULT = 2147483647
    FIRST_ROOM = 4096
    DECOMPRESSED_MAX = 1073741824

cdef extern from *:
    """
    static inline int kl_varint_size(uint64_t v) { return (63 - __builtin_clzll(v | 1)) / 7 + 1; }
    """
    int varint_size "kl_varint_size"(uint64_t v) noexcept nogil


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)


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
    """Headers whose framing `read_record` has proven. Names are UTF-8; what is not becomes U+FFFD, as in Java."""
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
    """One record batch in a buffer, read lazily. Iterating, again and again if need be, gives `Record` objects.

    Arguments: any object with bytes, where in it the batch begins, and how many bytes its records may decompress to.
    Raises BatchError when there is no whole batch of magic 2. The CRC is checked only by `check_crc`.
    """

    def __cinit__(self, buffer, Py_ssize_t position=0, int64_t decompressed_max=DECOMPRESSED_MAX):
        cdef BatchHeader header
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.position = position
        self.decompressed_max = decompressed_max
        if not 0 <= position <= self.view.len:
            raise BatchError(CORRUPT_MESSAGE, f"no batch begins at {position} of {self.view.len} bytes")
        if read_batch_header(<const uint8_t *> self.view.buf + position, self.view.len - position, &header) != 0:
            raise BatchError(CORRUPT_MESSAGE, f"no batch begins at {position} of {self.view.len} bytes")
        if header.magic != 2:
            raise BatchError(CORRUPT_MESSAGE, f"the batch has magic {header.magic}, not 2")
        self.fill(&header)
        if not HEADER_SIZE <= self.size <= self.view.len - position:
            raise BatchError(CORRUPT_MESSAGE, f"the batch claims {self.size} of {self.view.len - position} bytes")

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
        PyBuffer_Release(&self.view)

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
        if crc_of(<const uint8_t *> self.view.buf + self.position, self.size) != self.crc:
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
        """All records as a list: one call instead of one per record."""
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
        """Point `span` at the plain records."""
        cdef const uint8_t *p = <const uint8_t *> self.view.buf + self.position + HEADER_SIZE
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
    """The whole batches in `buffer`, as a list; a batch cut off at the end is left out, as fetch answers may end so."""
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


@cython.final
cdef class Builder:
    """Collects records and builds one batch of them.

    Argument: `size_max`, the largest size in bytes of the uncompressed batch; a record that does not fit is refused by
    `append` answering -1, unless it is the first.
    """

    def __cinit__(self, Py_ssize_t size_max=SIZE_MAX_DEFAULT):
        if not 0 < size_max <= SIZE_MAX_DEFAULT:
            raise ValueError(f"size_max must be 1 to {SIZE_MAX_DEFAULT}, not {size_max}")
        self.size_max = size_max
        self.reserve(FIRST_ROOM)
        self.clear()

    def __dealloc__(self):
        free(self.at)

    def __len__(self):
        return self.records_count

    def clear(self):
        """Forget all records, keep the memory."""
        self.size = HEADER_SIZE
        self.records_count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1

    def append(self, int64_t timestamp, key, value, headers=None):
        """Add a record; answers its offset delta, or -1 when it does not fit. See the .pyi."""
        return self.add(timestamp, key, value, headers)

    cdef int reserve(self, Py_ssize_t n) except -1:
        """Make room for `n` bytes after `size`."""
        cdef Py_ssize_t room
        cdef void *grown
        if n <= self.room - self.size:
            return 0
        room = max(self.size + n, 2 * self.room)
        grown = realloc(self.at, room)
        if grown == NULL:
            raise MemoryError
        self.at = <uint8_t *> grown
        self.room = room
        return 0

    cdef int32_t add(self, int64_t timestamp, key, value, headers) except -2:
        if (key is None or PyBytes_CheckExact(key)) and (value is None or PyBytes_CheckExact(value)):
            return add_record(
                self, timestamp,
                NULL if key is None else PyBytes_AS_STRING(key), -1 if key is None else PyBytes_GET_SIZE(key),
                NULL if value is None else PyBytes_AS_STRING(value), -1 if value is None else PyBytes_GET_SIZE(value),
                headers,
            )
        return self.add(
            timestamp, None if key is None else as_bytes(key), None if value is None else as_bytes(value), headers
        )

    def build(
        self,
        int codec=0,
        level=None,
        *,
        int64_t producer_id=-1,
        int16_t producer_epoch=-1,
        int32_t base_sequence=-1,
        bint transactional=False,
        bint control=False,
        int64_t base_offset=0,
        int32_t leader_epoch=-1,
    ):
        """The batch's bytes; the builder keeps its records, so that it can be built again. See the .pyi."""
        cdef uint8_t *p = self.at
        cdef bytes out
        cdef int32_t attributes = codec
        if not self.records_count:
            raise ValueError("a batch needs at least one record")
        if not 0 <= codec <= CODEC_MASK:
            raise BatchError(UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression type {codec}")
        if transactional:
            attributes |= TRANSACTIONAL_BIT
        if control:
            attributes |= CONTROL_BIT
        store_u64(p + BASE_OFFSET_AT, <uint64_t> base_offset)
        store_u32(p + LEADER_EPOCH_AT, <uint32_t> leader_epoch)
        p[MAGIC_AT] = 2
        store_u16(p + ATTRIBUTES_AT, <uint16_t> attributes)
        store_u32(p + LAST_OFFSET_DELTA_AT, <uint32_t> (self.records_count - 1))
        store_u64(p + BASE_TIMESTAMP_AT, <uint64_t> self.base_timestamp)
        store_u64(p + MAX_TIMESTAMP_AT, <uint64_t> self.max_timestamp)
        store_u64(p + PRODUCER_ID_AT, <uint64_t> producer_id)
        store_u16(p + PRODUCER_EPOCH_AT, <uint16_t> producer_epoch)
        store_u32(p + BASE_SEQUENCE_AT, <uint32_t> base_sequence)
        store_u32(p + RECORDS_COUNT_AT, <uint32_t> self.records_count)
        out = self.compressed(codec, level) if codec else PyBytes_FromStringAndSize(<char *> p, self.size)
        p = <uint8_t *> PyBytes_AS_STRING(out)
        store_u32(p + BATCH_LENGTH_AT, <uint32_t> (PyBytes_GET_SIZE(out) - LENGTH_OVERHEAD))
        store_u32(p + CRC_AT, <uint32_t> crc_of(p, PyBytes_GET_SIZE(out)))
        return out

    cdef bytes compressed(self, int codec, level):
        cdef bytes records
        cdef bytes out
        compress, _decompress = codecs_in_use()
        records = compress(codec, self.at[HEADER_SIZE:self.size], level)
        out = PyBytes_FromStringAndSize(NULL, HEADER_SIZE + PyBytes_GET_SIZE(records))
        memcpy(PyBytes_AS_STRING(out), self.at, HEADER_SIZE)
        memcpy(PyBytes_AS_STRING(out) + HEADER_SIZE, PyBytes_AS_STRING(records), PyBytes_GET_SIZE(records))
        return out


cdef object as_bytes(value):
    """Keys and values may be any object with bytes; a str is the caller's mistake."""
    if not PyObject_CheckBuffer(value):
        raise TypeError(f"keys and values are bytes or None, not {type(value).__name__}")
    return bytes(value)


cdef bytes encode_headers(headers):
    """The headers' bytes without their count."""
    cdef bytearray out = bytearray()
    cdef uint8_t number[10]
    for name, value in headers:
        name = name.encode() if isinstance(name, str) else as_bytes(name)
        out += number[:put_varlong(number, len(name))]
        out += name
        if value is None:
            out += number[:put_varlong(number, -1)]
        else:
            value = as_bytes(value)
            out += number[:put_varlong(number, len(value))]
            out += value
    return bytes(out)


cdef inline uint8_t *put_nullable(uint8_t *p, const char *data, Py_ssize_t size) noexcept nogil:
    """A size and its bytes; the caller has made room."""
    p += put_varlong(p, size)
    if size > 0:
        memcpy(p, data, size)
        p += size
    return p


cdef int32_t add_record(
    Builder b, int64_t timestamp,
    const char *key, Py_ssize_t key_size, const char *value, Py_ssize_t value_size, headers,
) except -2:
    cdef bytes header_bytes = None
    cdef Py_ssize_t headers_size = 0
    cdef Py_ssize_t headers_count = 0
    cdef int64_t timestamp_delta = 0
    cdef Py_ssize_t body
    cdef Py_ssize_t whole
    cdef uint8_t *p
    if headers is not None and (headers_count := len(headers)):
        header_bytes = encode_headers(headers)
        headers_size = PyBytes_GET_SIZE(header_bytes)
    if b.records_count:
        timestamp_delta = <int64_t> (<uint64_t> timestamp - <uint64_t> b.base_timestamp)
    body = (
        1 + varint_size(zigzag(timestamp_delta)) + varint_size(zigzag(b.records_count))
        + varint_size(zigzag(key_size)) + max(key_size, 0) + varint_size(zigzag(value_size)) + max(value_size, 0)
        + varint_size(zigzag(headers_count)) + headers_size
    )
    whole = body + varint_size(zigzag(body))
    if whole > b.size_max - b.size and b.records_count:
        return -1
    if whole > SIZE_MAX_DEFAULT - b.size:
        raise BatchError(MESSAGE_TOO_LARGE, f"a record of {whole} bytes fits no batch")
    b.reserve(whole)
    p = b.at + b.size
    p += put_varlong(p, body)
    p[0] = 0  # attributes
    p += 1 + put_varlong(p + 1, timestamp_delta)
    p += put_varlong(p, b.records_count)
    p = put_nullable(p, key, key_size)
    p = put_nullable(p, value, value_size)
    p += put_varlong(p, headers_count)
    if headers_size:
        memcpy(p, PyBytes_AS_STRING(header_bytes), headers_size)
    if not b.records_count:
        b.base_timestamp = timestamp
        b.max_timestamp = timestamp
    elif timestamp > b.max_timestamp:
        b.max_timestamp = timestamp
    b.size += whole
    b.records_count += 1
    return b.records_count - 1
