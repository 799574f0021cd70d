"""Builds record batches: collects records in its own memory and writes the header around them.

Each record is written once; `build` fills in the header and compresses. Source: MemoryRecordsBuilder.java.
"""

cimport cython
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_Check,
    PyBytes_CheckExact,
    PyBytes_FromObject,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.number cimport PyNumber_Check
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from kafkalite._speedups.records.validator cimport crc_of
from kafkalite._speedups.wire.error_codes cimport MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE
from kafkalite._speedups.wire.wire cimport (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    BATCH_LENGTH_AT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORDS_COUNT_AT,
    TRANSACTIONAL_BIT,
    put_varlong,
    store_u16,
    store_u32,
    store_u64,
)

from kafkalite._speedups.records.validator import BatchError, codecs_in_use

cdef enum:
    SIZE_MAX_DEFAULT = 2147483647
    FIRST_CAPACITY = 4096

cdef extern from *:
    """
    static inline int kl_varint_size(uint64_t v) { return (63 - __builtin_clzll(v | 1)) / 7 + 1; }
    """
    int varint_size "kl_varint_size"(uint64_t v) noexcept nogil


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)


@cython.final
cdef class Builder:
    """Collects records and builds a batch of them. See the .pyi."""

    def __cinit__(self, Py_ssize_t size_max=SIZE_MAX_DEFAULT):
        if not 0 < size_max <= SIZE_MAX_DEFAULT:
            raise ValueError(f"size_max must be 1 to {SIZE_MAX_DEFAULT}, not {size_max}")
        self.size_max = size_max
        self.reserve(FIRST_CAPACITY)
        self.clear()

    def __dealloc__(self):
        free(self.at)

    def __len__(self):
        return self.records_count

    def clear(self):
        """Remove all records, keep the memory."""
        self.size = HEADER_SIZE
        self.records_count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1
        self.packed = None

    def append(self, int64_t timestamp, key, value, headers=None):
        """Add a record. Returns its offset delta, or -1 if it does not fit. See the .pyi."""
        return self.add(timestamp, key, value, headers)

    cdef int reserve(self, Py_ssize_t n) except -1:
        """Allocate memory for `n` bytes after `size`."""
        cdef Py_ssize_t capacity
        cdef void *grown
        if n <= self.capacity - self.size:
            return 0
        capacity = max(self.size + n, 2 * self.capacity)
        grown = realloc(self.at, capacity)
        if grown == NULL:
            raise MemoryError
        self.at = <uint8_t *> grown
        self.capacity = capacity
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
        """The bytes of the batch; the builder keeps its records. See the .pyi."""
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
        out = self.assembled(codec, level) if codec else PyBytes_FromStringAndSize(<char *> p, self.size)
        p = <uint8_t *> PyBytes_AS_STRING(out)
        store_u32(p + BATCH_LENGTH_AT, <uint32_t> (PyBytes_GET_SIZE(out) - LENGTH_OVERHEAD))
        store_u32(p + CRC_AT, <uint32_t> crc_of(p, PyBytes_GET_SIZE(out)))
        return out

    @property
    def compressed(self):
        """Whether `build` uses what `compress` has returned. See the .pyi."""
        return self.packed is not None and self.packed_count == self.records_count

    def compress(self, int codec, level=None):
        """Compress the records for later calls of `build`. See the .pyi."""
        compress, _decompress = codecs_in_use()
        count = self.records_count
        self.packed = compress(codec, self.at[HEADER_SIZE:self.size], level)
        self.packed_count = count
        self.packed_codec = codec

    cdef bytes assembled(self, int codec, level):
        """The header and the compressed records."""
        cdef bytes records
        cdef bytes out
        if self.compressed and self.packed_codec == codec:
            records = self.packed
        else:
            compress, _decompress = codecs_in_use()
            records = compress(codec, self.at[HEADER_SIZE:self.size], level)
        out = PyBytes_FromStringAndSize(NULL, HEADER_SIZE + PyBytes_GET_SIZE(records))
        memcpy(PyBytes_AS_STRING(out), self.at, HEADER_SIZE)
        memcpy(PyBytes_AS_STRING(out) + HEADER_SIZE, PyBytes_AS_STRING(records), PyBytes_GET_SIZE(records))
        return out


cdef bytes as_bytes(value):
    """The bytes of a key, a value or a header, copied from any buffer.

    Raises TypeError for a str and for a number: numbers of NumPy have a buffer, and `bytes` of one are as many zeros.
    """
    if PyBytes_CheckExact(value):
        return value
    if PyBytes_Check(value):
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    if not PyObject_CheckBuffer(value) or (PyNumber_Check(value) and memoryview(value).ndim == 0):
        raise TypeError(
            f"keys, values and values of headers are bytes or None, not {type(value).__name__}; encode the object"
        )
    return PyBytes_FromObject(value)


cdef inline bytes header_name(name):
    return name.encode() if isinstance(name, str) else as_bytes(name)


cdef int check_headers(headers) except -1:
    if isinstance(headers, dict):
        raise TypeError("headers is a dict, expected pairs of name and value; pass list(headers.items())")
    return 0


cdef tuple frozen_headers(headers):
    """The names and values of headers as bytes, which the caller cannot change."""
    check_headers(headers)
    return tuple([(header_name(name), None if value is None else as_bytes(value)) for name, value in headers])


cdef bytes encode_headers(headers, Py_ssize_t *count):
    """The bytes of the headers, without their count."""
    cdef bytearray out = bytearray()
    cdef uint8_t number[10]
    cdef bytes part
    check_headers(headers)
    for name, value in headers:
        part = header_name(name)
        out += number[:put_varlong(number, PyBytes_GET_SIZE(part))]
        out += part
        count[0] += 1
        if value is None:
            out += number[:put_varlong(number, -1)]
        else:
            part = as_bytes(value)
            out += number[:put_varlong(number, PyBytes_GET_SIZE(part))]
            out += part
    return bytes(out)


cdef inline uint8_t *put_nullable(uint8_t *p, const char *data, Py_ssize_t size) noexcept nogil:
    """Write a size and its bytes; the caller has allocated the memory."""
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
    cdef uint8_t *p
    if headers is not None and len(headers):
        header_bytes = encode_headers(headers, &headers_count)
        headers_size = PyBytes_GET_SIZE(header_bytes)
    p = begin_record(b, timestamp, key, key_size, value, value_size, headers_count, headers_size)
    if p == NULL:
        return -1
    if headers_size:
        memcpy(p, PyBytes_AS_STRING(header_bytes), headers_size)
    return b.records_count - 1


cdef uint8_t *begin_record(
    Builder b, int64_t timestamp,
    const char *key, Py_ssize_t key_size, const char *value, Py_ssize_t value_size,
    Py_ssize_t headers_count, Py_ssize_t headers_size,
) except? NULL:
    """Add a record; return where the caller writes its headers, or NULL if the record does not fit."""
    cdef int64_t timestamp_delta = 0
    cdef Py_ssize_t body
    cdef Py_ssize_t whole
    cdef uint8_t *p
    if b.records_count:
        timestamp_delta = <int64_t> (<uint64_t> timestamp - <uint64_t> b.base_timestamp)
    body = (
        1 + varint_size(zigzag(timestamp_delta)) + varint_size(zigzag(b.records_count))
        + varint_size(zigzag(key_size)) + max(key_size, 0) + varint_size(zigzag(value_size)) + max(value_size, 0)
        + varint_size(zigzag(headers_count)) + headers_size
    )
    whole = body + varint_size(zigzag(body))
    if whole > b.size_max - b.size and b.records_count:
        return NULL
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
    if not b.records_count:
        b.base_timestamp = timestamp
        b.max_timestamp = timestamp
    elif timestamp > b.max_timestamp:
        b.max_timestamp = timestamp
    b.size += whole
    b.records_count += 1
    return p
