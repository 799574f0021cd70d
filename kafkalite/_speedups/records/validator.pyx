"""Validates record batches of clients: header, CRC, size, counts and the framing of the records.

1. `validate_batch` changes nothing. An invalid batch is a result, not an exception.
2. Every byte is bounded before it is read (`wire.pxd`, `records/record_walk.pxd`).
3. The CRC is computed by the `crc32c` package, one call per batch. The GIL is kept while the work is short: releasing
   and acquiring it beside a busy thread costs more than validating a batch.
4. Compressed records are decompressed by the functions that `kafkalite.records` registers with `use_codecs`.

Sources: DefaultRecordBatch.java, DefaultRecord.java, LogValidator.java, UnifiedLog.java, ProduceRequest.java.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t

from kafkalite._speedups.records.record_walk cimport (
    FAULT_FRAMING_LAST,
    FAULT_HEADERS,
    FAULT_LENGTH,
    FAULT_MISSING,
    FAULT_NONE,
    FAULT_NO_KEY,
    FAULT_OFFSET,
    FAULT_TIMESTAMP,
    FAULT_TRAILING,
    Walk,
    walk,
    walk_begin,
)
from kafkalite._speedups.wire.error_codes cimport (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from kafkalite._speedups.wire.wire cimport (
    ATTRIBUTES_AT,
    BATCH_LENGTH_AT,
    BatchHeader,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    HEADER_SIZE_TO_MAGIC,
    LEGACY_OVERHEAD,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    load_u32,
    read_batch_header,
)

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec


cdef extern from "Python.h":
    int PyBUF_READ

cdef enum:
    RECORD_ERRORS_MAX = 1000      # reported per batch; further faults are not
    WALK_WITHOUT_GIL = 262144     # bytes: a longer walk releases the GIL
    CRC_WITHOUT_GIL = 1048576     # bytes: a longer CRC releases the GIL
    DECOMPRESSED_RATIO = 16
    DECOMPRESSED_FLOOR = 16777216
    LZ4 = 3
    LZ4_FLAGS = 4                 # index of the flags in a frame, behind the magic number
    LZ4_INDEPENDENT_BLOCKS = 0x20
    LZ4_RESERVED = 0x03

cdef object _decompress = None
cdef object _decompress_appended = None
cdef object _compress = None
cdef object _crc32c = None        # imported with the first batch


class BatchError(ValueError):
    """A batch that cannot be read or built; see the .pyi."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def use_codecs(compress, decompress, decompress_appended):
    """Register `compress(codec, data, level) -> bytes`, `decompress(codec, data, size_max, frames_max) -> bytes`, and
    the stricter one for lz4 in validation.
    """
    global _compress, _decompress, _decompress_appended
    _compress = compress
    _decompress = decompress
    _decompress_appended = decompress_appended


def codecs_in_use():
    """The registered `(compress, decompress)`."""
    if _decompress is None:
        raise RuntimeError("no codecs are registered: import kafkalite.records first")
    return _compress, _decompress


cdef int64_t decompressed_limit(int64_t asked, int64_t size_max) noexcept nogil:
    """Limit of decompressed records in bytes: `asked`, or if 0 16 times the largest batch, at least 16 MiB."""
    if asked > 0:
        return asked
    if size_max > INT64_MAX // DECOMPRESSED_RATIO:
        return INT64_MAX
    return max(size_max * DECOMPRESSED_RATIO, DECOMPRESSED_FLOOR)


cdef object load_crc32c():
    """Import the function of the `crc32c` package from its extension module, without the package.

    Importing the package imports 49 modules (importlib.metadata, argparse) in 23 ms, for its version and its command.
    The extension module takes 0.7 ms, on the loop, with the first batch of a process. A version of the package that
    has no such module is imported.
    """
    package = find_spec("crc32c")
    search_path = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec("crc32c._crc32c", search_path)
    if spec is None:
        from crc32c import crc32c
        return crc32c
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.crc32c


cdef int64_t crc_of(const uint8_t *p, Py_ssize_t size) except -1:
    """CRC-32C of the batch from its attributes to its end. The caller has checked that size >= HEADER_SIZE."""
    global _crc32c
    if _crc32c is None:
        _crc32c = load_crc32c()
    view = PyMemoryView_FromMemory(<char *> p + ATTRIBUTES_AT, size - ATTRIBUTES_AT, PyBUF_READ)
    return <uint32_t> _crc32c(view, 0, 1 if size > CRC_WITHOUT_GIL else 0)


cdef bint begins_as_lz4_of_kafka(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    """Whether the data begins with the header of an lz4 frame of independent blocks. Other headers are rejected by
    `decompress_appended`, which costs a small batch a tenth of its validation.
    """
    if size <= LZ4_FLAGS or p[0] != 0x04 or p[1] != 0x22 or p[2] != 0x4D or p[3] != 0x18:
        return False
    return p[LZ4_FLAGS] & (LZ4_INDEPENDENT_BLOCKS | LZ4_RESERVED) == LZ4_INDEPENDENT_BLOCKS


cdef bytes decompressed(int codec, const uint8_t *p, Py_ssize_t size, int64_t size_max):
    if _decompress is None:
        codecs_in_use()
    view = PyMemoryView_FromMemory(<char *> p, size, PyBUF_READ)
    if codec != LZ4:
        return _decompress(codec, view, size_max)
    if begins_as_lz4_of_kafka(p, size):
        return _decompress(codec, view, size_max, 1)
    return _decompress_appended(codec, view, size_max)


@cython.final
@cython.freelist(64)
cdef class ValidationResult:
    """The result of `validate_batch`; `error` 0 = the batch may be appended. See the .pyi."""

    @property
    def record_errors(self):
        return [] if self._record_errors is None else self._record_errors

    def __repr__(self):
        verdict = f"error {self.error}: {self.message}" if self.error else f"{self.records_count} records"
        return f"<ValidationResult {self.size} bytes, {verdict}>"

    def refresh(self, batch):
        """Read the header of the patched or recompressed batch again, without validation. See the .pyi."""
        cdef Py_buffer view
        cdef BatchHeader header
        PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
        try:
            if read_batch_header(<const uint8_t *> view.buf, view.len, &header) != 0:
                raise BatchError(CORRUPT_MESSAGE, f"{view.len} bytes are no batch")
            self.size = <int32_t> view.len
        finally:
            PyBuffer_Release(&view)
        self.refreshed(&header)

    cdef void refreshed(self, const BatchHeader *header) noexcept:
        cdef int32_t offset_of_max_timestamp = self.offset_of_max_timestamp
        fill(self, header)
        if self.walked and not header.attributes & LOG_APPEND_TIME_BIT:
            self.offset_of_max_timestamp = offset_of_max_timestamp

    cdef ValidationResult reject(self, int error, str message):
        self.error = error
        self.message = message
        return self


cdef ValidationRules default_rules(int64_t size_max) noexcept nogil:
    cdef ValidationRules rules
    rules.size_max = size_max
    rules.decompressed_max = 0
    rules.timestamp_min = INT64_MIN
    rules.timestamp_max = INT64_MAX
    rules.compacted = False
    rules.walk_compressed = True
    rules.zstd_allowed = True
    rules.control_allowed = False
    return rules


def validate_batch(
    batch,
    *,
    bint compacted,
    int64_t size_max,
    int64_t decompressed_max=0,
    bint walk_compressed=True,
    bint zstd_allowed=True,
    bint control_allowed=False,
    int64_t timestamp_min=INT64_MIN,
    int64_t timestamp_max=INT64_MAX,
):
    """Validate one batch of a client, in the order of Kafka's checks. See the .pyi."""
    cdef Py_buffer view
    cdef ValidationRules rules = default_rules(size_max)
    rules.compacted = compacted
    rules.decompressed_max = decompressed_max
    rules.walk_compressed = walk_compressed
    rules.zstd_allowed = zstd_allowed
    rules.control_allowed = control_allowed
    rules.timestamp_min = timestamp_min
    rules.timestamp_max = timestamp_max
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        return validate_bytes(<const uint8_t *> view.buf, view.len, &rules)
    finally:
        PyBuffer_Release(&view)


cdef ValidationResult validate_bytes(const uint8_t *p, Py_ssize_t size, const ValidationRules *rules):
    """`validate_batch` of C callers."""
    cdef ValidationResult result = ValidationResult.__new__(ValidationResult)
    cdef BatchHeader header
    if not check_framing(result, p, size):
        return result
    if read_batch_header(p, size, &header) != 0:
        return result
    fill(result, &header)
    if not check_header(result, &header, size, rules):
        return result
    if crc_of(p, size) != header.crc:
        return result.reject(CORRUPT_MESSAGE, f"the batch is corrupt: its CRC is not {header.crc:#010x}")
    if not check_counts(result, &header, rules):
        return result
    if result.codec == CODEC_NONE:
        walk_records(result, p + HEADER_SIZE, size - HEADER_SIZE, rules)
    elif rules.walk_compressed:
        walk_compressed_records(result, p, size, rules)
    return result


cdef bint check_framing(ValidationResult result, const uint8_t *p, Py_ssize_t size) except -1:
    """Exactly one whole batch of magic 2 (ByteBufferLogInputStream.java, ProduceRequest.validateRecords)."""
    cdef int64_t length
    result.size = <int32_t> min(size, 0x7fffffff)
    if size < HEADER_SIZE_TO_MAGIC:
        result.reject(INVALID_RECORD, "there must be exactly one record batch per partition, this request has none")
        return False
    length = <int32_t> load_u32(p + BATCH_LENGTH_AT)
    if length < LEGACY_OVERHEAD:
        result.reject(CORRUPT_MESSAGE, f"the batch length {length} is less than the smallest header")
    elif p[MAGIC_AT] > 2:
        result.reject(CORRUPT_MESSAGE, f"the batch has magic {p[MAGIC_AT]}, which does not exist")
    elif p[MAGIC_AT] < 2:
        result.reject(INVALID_RECORD, f"the batch has magic {p[MAGIC_AT]}, only magic 2 is supported")
    elif length + LENGTH_OVERHEAD > size:
        result.reject(INVALID_RECORD, f"the batch claims {length + LENGTH_OVERHEAD} bytes, the request has {size}")
    elif length + LENGTH_OVERHEAD < size:
        result.reject(INVALID_RECORD, "there must be exactly one record batch per partition, this request has more")
    elif size < HEADER_SIZE:
        result.reject(CORRUPT_MESSAGE, f"the batch length {length} is less than the smallest header")
    return result.error == 0


cdef void fill(ValidationResult result, const BatchHeader *header) noexcept:
    result.base_offset = header.base_offset
    result.last_offset_delta = header.last_offset_delta
    result.records_count = header.records_count
    result.base_timestamp = header.base_timestamp
    result.max_timestamp = header.max_timestamp
    result.header_max_timestamp = header.max_timestamp
    result.offset_of_max_timestamp = header.last_offset_delta
    result.attributes = header.attributes
    result.codec = header.attributes & CODEC_MASK
    result.producer_id = header.producer_id
    result.producer_epoch = header.producer_epoch
    result.base_sequence = header.base_sequence
    result.leader_epoch = header.leader_epoch


cdef bint check_header(
    ValidationResult result, const BatchHeader *header, Py_ssize_t size, const ValidationRules *rules
) except -1:
    """The checks before the CRC (ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords)."""
    if result.codec > CODEC_ZSTD:
        result.reject(UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression type {result.codec}")
    elif result.codec == CODEC_ZSTD and not rules.zstd_allowed:
        result.reject(UNSUPPORTED_COMPRESSION_TYPE, "zstd needs version 7 of Produce")
    elif header.base_offset != 0:
        result.reject(INVALID_RECORD, f"the base offset must be 0, but it is {header.base_offset}")
    elif size > rules.size_max:
        result.reject(MESSAGE_TOO_LARGE, f"the batch is {size} bytes, max.message.bytes is {rules.size_max}")
    return result.error == 0


cdef bint check_counts(ValidationResult result, const BatchHeader *header, const ValidationRules *rules) except -1:
    """LogValidator.validateBatch."""
    if header.last_offset_delta < 0:
        result.reject(INVALID_RECORD, f"the last offset delta {header.last_offset_delta} is negative")
    elif header.records_count <= 0:
        result.reject(INVALID_RECORD, f"the batch claims {header.records_count} records")
    elif <int64_t> header.last_offset_delta + 1 != header.records_count:
        result.reject(
            INVALID_RECORD,
            f"the last offset delta {header.last_offset_delta} does not fit {header.records_count} records",
        )
    elif header.attributes & CONTROL_BIT and not rules.control_allowed:
        result.reject(INVALID_RECORD, "clients may not write control batches")
    elif header.producer_id >= 0 and header.base_sequence < 0 and not header.attributes & CONTROL_BIT:
        result.reject(INVALID_RECORD, f"producer {header.producer_id} sent the sequence {header.base_sequence}")
    elif header.attributes & LOG_APPEND_TIME_BIT:
        result.reject(INVALID_TIMESTAMP, "a producer may not set the timestamp type LogAppendTime")
    return result.error == 0


cdef int walk_compressed_records(
    ValidationResult result, const uint8_t *p, Py_ssize_t size, const ValidationRules *rules
) except -1:
    cdef bytes plain
    try:
        plain = decompressed(
            result.codec, p + HEADER_SIZE, size - HEADER_SIZE,
            decompressed_limit(rules.decompressed_max, rules.size_max),
        )
    except BatchError as error:
        result.reject(error.code, str(error))
        return 0
    result.decompressed_bytes = PyBytes_GET_SIZE(plain)
    return walk_records(result, <const uint8_t *> PyBytes_AS_STRING(plain), PyBytes_GET_SIZE(plain), rules)


cdef int walk_records(
    ValidationResult result, const uint8_t *p, Py_ssize_t size, const ValidationRules *rules
) except -1:
    """Walk the decompressed records; faults become `record_errors`, the first framing fault ends the walk."""
    cdef Walk w
    cdef int fault
    walk_begin(&w, p, size, result.records_count, result.base_timestamp)
    w.keys_needed = rules.compacted
    w.timestamp_min = rules.timestamp_min
    w.timestamp_max = rules.timestamp_max
    while True:
        if size > WALK_WITHOUT_GIL:
            with nogil:
                fault = walk(&w)
        else:
            fault = walk(&w)
        if fault == FAULT_NONE:
            break
        add_record_error(result, &w, fault)
        if fault <= FAULT_FRAMING_LAST or len(result._record_errors) >= RECORD_ERRORS_MAX:
            break
    if not result.error:
        result.walked = True
        result.max_timestamp = w.max_timestamp
        result.offset_of_max_timestamp = w.max_timestamp_at if w.max_timestamp_at >= 0 else result.last_offset_delta
    return 0


cdef int add_record_error(ValidationResult result, const Walk *w, int fault) except -1:
    """Add a record error. A timestamp fault decides the error of the batch, as in LogValidator.processRecordErrors."""
    cdef str text = fault_text(w, fault)
    if result._record_errors is None:
        result._record_errors = []
    result._record_errors.append((max(w.index - 1, 0), text))
    if fault == FAULT_TIMESTAMP:
        result.reject(INVALID_TIMESTAMP, "records have invalid timestamps: " + text)
    elif not result.error:
        result.reject(INVALID_RECORD, "invalid records: " + text)
    return 0


cdef str fault_text(const Walk *w, int fault):
    if fault == FAULT_NO_KEY:
        return f"record {w.index - 1} has no key, which a compacted topic needs"
    if fault == FAULT_TIMESTAMP:
        return f"timestamp {w.timestamp} of record {w.index - 1} is outside {w.timestamp_min} to {w.timestamp_max}"
    if fault == FAULT_OFFSET:
        return f"record {w.index - 1} has the offset delta {w.offset_delta}"
    if fault == FAULT_MISSING:
        return f"the bytes end after {w.index - 1} of {w.count} records"
    if fault == FAULT_TRAILING:
        return f"{w.span.left} bytes are left after {w.count} records"
    if fault == FAULT_LENGTH:
        return f"the length of record {w.index - 1} reaches past the batch"
    if fault == FAULT_HEADERS:
        return f"a header of record {w.index - 1} is malformed"
    return f"record {w.index - 1} is malformed: its fields do not fill its length"
