"""Record batches v2 as the broker meets them: inspected and patched in place; never built or taken apart.

1. Batches travel whole. `inspect` reads, it changes nothing; patches touch header fields and the CRC only.
2. Every byte is bounded before it is read (`wire.pxd`, `records/record_walk.pxd`); a bad batch is an answer, not an
   exception.
3. The CRC is the `crc32c` package's, one call per batch. The GIL is kept while the work is short: handing it over and
   getting it back beside a busy thread costs more than checking a batch. No copy keeps it for a millisecond.
4. Compressed records are decompressed by the functions that `kafkalite.records` hands in through `use_codecs`.

Sources: DefaultRecordBatch.java, DefaultRecord.java, LogValidator.java, UnifiedLog.java, ProduceRequest.java.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from kafkalite._speedups.records.record_walk cimport (
    FAULT_FRAMING_LAST,
    FAULT_HEADERS,
    FAULT_LENGTH,
    FAULT_MISSING,
    FAULT_NO_KEY,
    FAULT_NONE,
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
    BASE_OFFSET_AT,
    BATCH_LENGTH_AT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_AT,
    HEADER_SIZE,
    HEADER_SIZE_TO_MAGIC,
    LEADER_EPOCH_AT,
    LEGACY_OVERHEAD,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    BatchHeader,
    load_u16,
    load_u32,
    load_u64,
    read_batch_header,
    store_u16,
    store_u32,
    store_u64,
)

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

from kafkalite._speedups.wire.concat import gathered


cdef extern from "Python.h":
    int PyBUF_READ

cdef enum:
    CODEC_NONE = 0
    CODEC_ZSTD = 4
    RECORD_ERRORS_MAX = 1000      # told per batch; the rest share the batch's error
    WALK_WITHOUT_GIL = 262144     # bytes: beyond it the walk takes long enough for others to run meanwhile
    CRC_WITHOUT_GIL = 1048576     # likewise
    DECOMPRESSED_RATIO = 16
    DECOMPRESSED_FLOOR = 16777216

cdef object _decompress = None
cdef object _compress = None
cdef object _crc32c = None        # loaded with the first batch


class BatchError(ValueError):
    """A batch that cannot be read or built: `code` is Kafka's error code, the text is for humans."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def use_codecs(compress, decompress):
    """Hand in `compress(codec, data, level) -> bytes` and `decompress(codec, data, size_max) -> bytes`."""
    global _compress, _decompress
    _compress = compress
    _decompress = decompress


def codecs_in_use():
    """`(compress, decompress)` as handed in by `use_codecs`."""
    if _decompress is None:
        raise RuntimeError("no codecs are known: import kafkalite.records first")
    return _compress, _decompress


cdef int64_t decompressed_limit(int64_t asked, int64_t size_max) noexcept nogil:
    """Bytes that records may decompress to: what was asked for, else 16 times the largest batch, at least 16 MiB."""
    if asked > 0:
        return asked
    if size_max > INT64_MAX // DECOMPRESSED_RATIO:
        return INT64_MAX
    return max(size_max * DECOMPRESSED_RATIO, DECOMPRESSED_FLOOR)


cdef object load_crc32c():
    """The function of the `crc32c` package, by the package's extension module alone.

    Importing the package imports 49 modules (importlib.metadata, argparse) in 23 ms, for its version and its command.
    The extension module takes 0.7 ms, on the loop with the first batch of a process. A version of the package without
    this module is imported.
    """
    package = find_spec("crc32c")
    search_path = None if package is None else package.submodule_search_locations
    found = PathFinder.find_spec("crc32c._crc32c", search_path)
    if found is None:
        from crc32c import crc32c
        return crc32c
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module.crc32c


cdef int64_t crc_of(const uint8_t *p, Py_ssize_t size) except -1:
    """CRC-32C of what the batch's checksum covers: attributes to end. The caller has proven size >= HEADER_SIZE."""
    global _crc32c
    if _crc32c is None:
        _crc32c = load_crc32c()
    view = PyMemoryView_FromMemory(<char *> p + ATTRIBUTES_AT, size - ATTRIBUTES_AT, PyBUF_READ)
    return <uint32_t> _crc32c(view, 0, 1 if size > CRC_WITHOUT_GIL else 0)


cdef bytes decompressed(int codec, const uint8_t *p, Py_ssize_t size, int64_t size_max):
    view = PyMemoryView_FromMemory(<char *> p, size, PyBUF_READ)
    return codecs_in_use()[1](codec, view, size_max)


@cython.final
@cython.freelist(64)
cdef class Inspection:
    """What `inspect` found. `error` 0 means that the batch may be appended."""

    @property
    def record_errors(self):
        return [] if self._record_errors is None else self._record_errors

    def __repr__(self):
        verdict = f"error {self.error}: {self.message}" if self.error else f"{self.records_count} records"
        return f"<Inspection {self.size} bytes, {verdict}>"

    def refresh(self, batch):
        """Read the header again after our own patches or `recompress`; what the walk found stays. No checks."""
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

    cdef Inspection refuse(self, int error, str message):
        self.error = error
        self.message = message
        return self


cdef InspectRules inspect_rules(int64_t size_max) noexcept nogil:
    cdef InspectRules rules
    rules.size_max = size_max
    rules.decompressed_max = 0
    rules.timestamp_min = INT64_MIN
    rules.timestamp_max = INT64_MAX
    rules.compacted = False
    rules.walk_compressed = True
    rules.zstd_allowed = True
    rules.control_allowed = False
    return rules


def inspect(
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
    """Check one client batch completely (DESIGN law 1), in Kafka's order; see the .pyi for arguments."""
    cdef Py_buffer view
    cdef InspectRules rules = inspect_rules(size_max)
    rules.compacted = compacted
    rules.decompressed_max = decompressed_max
    rules.walk_compressed = walk_compressed
    rules.zstd_allowed = zstd_allowed
    rules.control_allowed = control_allowed
    rules.timestamp_min = timestamp_min
    rules.timestamp_max = timestamp_max
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        return inspect_batch(<const uint8_t *> view.buf, view.len, &rules)
    finally:
        PyBuffer_Release(&view)


cdef Inspection inspect_batch(const uint8_t *p, Py_ssize_t size, const InspectRules *rules):
    """`inspect` for callers that hold the bytes already."""
    cdef Inspection found = Inspection.__new__(Inspection)
    cdef BatchHeader header
    if not check_framing(found, p, size):
        return found
    if read_batch_header(p, size, &header) != 0:
        return found
    fill(found, &header)
    if not check_header(found, &header, size, rules):
        return found
    if crc_of(p, size) != header.crc:
        return found.refuse(CORRUPT_MESSAGE, f"the batch is corrupt: its CRC is not {header.crc:#010x}")
    if not check_counts(found, &header, rules):
        return found
    if found.codec == CODEC_NONE:
        walk_records(found, p + HEADER_SIZE, size - HEADER_SIZE, rules)
    elif rules.walk_compressed:
        walk_compressed_records(found, p, size, rules)
    return found


cdef bint check_framing(Inspection found, const uint8_t *p, Py_ssize_t size) except -1:
    """Exactly one whole batch of magic 2 (ByteBufferLogInputStream.java, ProduceRequest.validateRecords)."""
    cdef int64_t length
    found.size = <int32_t> min(size, 0x7fffffff)
    if size < HEADER_SIZE_TO_MAGIC:
        found.refuse(INVALID_RECORD, "there must be exactly one record batch per partition, and here is none")
        return False
    length = <int32_t> load_u32(p + BATCH_LENGTH_AT)
    if length < LEGACY_OVERHEAD:
        found.refuse(CORRUPT_MESSAGE, f"the batch length {length} is less than the smallest header")
    elif p[MAGIC_AT] > 2:
        found.refuse(CORRUPT_MESSAGE, f"the batch has magic {p[MAGIC_AT]}, which does not exist")
    elif p[MAGIC_AT] < 2:
        found.refuse(INVALID_RECORD, f"the batch has magic {p[MAGIC_AT]}, only magic 2 is taken")
    elif length + LENGTH_OVERHEAD > size:
        found.refuse(INVALID_RECORD, f"the batch claims {length + LENGTH_OVERHEAD} bytes, only {size} are here")
    elif length + LENGTH_OVERHEAD < size:
        found.refuse(INVALID_RECORD, "there must be exactly one record batch per partition, and here is more")
    elif size < HEADER_SIZE:
        found.refuse(CORRUPT_MESSAGE, f"the batch length {length} is less than the smallest header")
    return found.error == 0


cdef void fill(Inspection found, const BatchHeader *header) noexcept:
    found.base_offset = header.base_offset
    found.last_offset_delta = header.last_offset_delta
    found.records_count = header.records_count
    found.base_timestamp = header.base_timestamp
    found.max_timestamp = header.max_timestamp
    found.header_max_timestamp = header.max_timestamp
    found.offset_of_max_timestamp = header.last_offset_delta
    found.attributes = header.attributes
    found.codec = header.attributes & CODEC_MASK
    found.producer_id = header.producer_id
    found.producer_epoch = header.producer_epoch
    found.base_sequence = header.base_sequence
    found.leader_epoch = header.leader_epoch


cdef bint check_header(
    Inspection found, const BatchHeader *header, Py_ssize_t size, const InspectRules *rules
) except -1:
    """What Kafka checks before the CRC (ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords)."""
    if found.codec > CODEC_ZSTD:
        found.refuse(UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression type {found.codec}")
    elif found.codec == CODEC_ZSTD and not rules.zstd_allowed:
        found.refuse(UNSUPPORTED_COMPRESSION_TYPE, "zstd needs version 7 of Produce")
    elif header.base_offset != 0:
        found.refuse(INVALID_RECORD, f"the base offset must be 0, but it is {header.base_offset}")
    elif size > rules.size_max:
        found.refuse(MESSAGE_TOO_LARGE, f"the batch is {size} bytes, the topic takes {rules.size_max}")
    return found.error == 0


cdef bint check_counts(Inspection found, const BatchHeader *header, const InspectRules *rules) except -1:
    """LogValidator.validateBatch."""
    if header.last_offset_delta < 0:
        found.refuse(INVALID_RECORD, f"the last offset delta {header.last_offset_delta} is negative")
    elif header.records_count <= 0:
        found.refuse(INVALID_RECORD, f"the batch claims {header.records_count} records")
    elif <int64_t> header.last_offset_delta + 1 != header.records_count:
        found.refuse(
            INVALID_RECORD,
            f"the last offset delta {header.last_offset_delta} does not fit {header.records_count} records",
        )
    elif header.attributes & CONTROL_BIT and not rules.control_allowed:
        found.refuse(INVALID_RECORD, "clients may not write control batches")
    elif header.producer_id >= 0 and header.base_sequence < 0 and not header.attributes & CONTROL_BIT:
        found.refuse(INVALID_RECORD, f"producer {header.producer_id} sent the sequence {header.base_sequence}")
    elif header.attributes & LOG_APPEND_TIME_BIT:
        found.refuse(INVALID_TIMESTAMP, "a producer may not set the timestamp type LogAppendTime")
    return found.error == 0


cdef int walk_compressed_records(
    Inspection found, const uint8_t *p, Py_ssize_t size, const InspectRules *rules
) except -1:
    cdef bytes plain
    try:
        plain = decompressed(
            found.codec, p + HEADER_SIZE, size - HEADER_SIZE, decompressed_limit(rules.decompressed_max, rules.size_max)
        )
    except BatchError as error:
        found.refuse(error.code, str(error))
        return 0
    found.decompressed_bytes = PyBytes_GET_SIZE(plain)
    return walk_records(found, <const uint8_t *> PyBytes_AS_STRING(plain), PyBytes_GET_SIZE(plain), rules)


cdef int walk_records(Inspection found, const uint8_t *p, Py_ssize_t size, const InspectRules *rules) except -1:
    """Walk the plain records; record faults become `record_errors`, the first broken framing ends the walk."""
    cdef Walk w
    cdef int fault
    walk_begin(&w, p, size, found.records_count, found.base_timestamp)
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
        add_record_error(found, &w, fault)
        if fault <= FAULT_FRAMING_LAST or len(found._record_errors) >= RECORD_ERRORS_MAX:
            break
    if not found.error:
        found.walked = True
        found.max_timestamp = w.max_timestamp
        found.offset_of_max_timestamp = w.max_timestamp_at if w.max_timestamp_at >= 0 else found.last_offset_delta
    return 0


cdef int add_record_error(Inspection found, const Walk *w, int fault) except -1:
    """Timestamps win over all other faults, as in LogValidator.processRecordErrors."""
    cdef str text = fault_text(w, fault)
    if found._record_errors is None:
        found._record_errors = []
    found._record_errors.append((max(w.index - 1, 0), text))
    if fault == FAULT_TIMESTAMP:
        found.refuse(INVALID_TIMESTAMP, "records were refused for their timestamps: " + text)
    elif not found.error:
        found.refuse(INVALID_RECORD, "records were refused: " + text)
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


# Patches. All take one whole batch; `size` is its size.

cdef int patch_max_timestamp(uint8_t *p, Py_ssize_t size, int64_t timestamp, bint log_append_time) except -1:
    """Timestamp type and max timestamp, and the CRC if one of them changed (DefaultRecordBatch.setMaxTimestamp)."""
    cdef uint16_t attributes = load_u16(p + ATTRIBUTES_AT)
    cdef uint16_t wanted = attributes | LOG_APPEND_TIME_BIT if log_append_time else attributes & ~LOG_APPEND_TIME_BIT
    if wanted == attributes and <int64_t> load_u64(p + MAX_TIMESTAMP_AT) == timestamp:
        return 0
    store_u16(p + ATTRIBUTES_AT, wanted)
    store_u64(p + MAX_TIMESTAMP_AT, <uint64_t> timestamp)
    store_u32(p + CRC_AT, <uint32_t> crc_of(p, size))
    return 1


cdef uint8_t *writable(batch, Py_buffer *view) except NULL:
    PyObject_GetBuffer(batch, view, PyBUF_WRITABLE)
    if view.len < HEADER_SIZE:
        PyBuffer_Release(view)
        raise BatchError(CORRUPT_MESSAGE, f"{view.len} bytes are no batch")
    return <uint8_t *> view.buf


def set_base_offset(batch, int64_t base_offset):
    cdef Py_buffer view
    store_u64(writable(batch, &view) + BASE_OFFSET_AT, <uint64_t> base_offset)
    PyBuffer_Release(&view)


def set_leader_epoch(batch, int32_t leader_epoch):
    cdef Py_buffer view
    store_u32(writable(batch, &view) + LEADER_EPOCH_AT, <uint32_t> leader_epoch)
    PyBuffer_Release(&view)


def set_max_timestamp(batch, int64_t timestamp):
    """CreateTime with this max timestamp; answers whether anything changed."""
    return _set_timestamp(batch, timestamp, False)


def set_log_append_time(batch, int64_t timestamp):
    """LogAppendTime at `timestamp`; answers whether anything changed."""
    return _set_timestamp(batch, timestamp, True)


cdef bint _set_timestamp(batch, int64_t timestamp, bint log_append_time) except -1:
    cdef Py_buffer view
    cdef uint8_t *p = writable(batch, &view)
    try:
        return patch_max_timestamp(p, view.len, timestamp, log_append_time)
    finally:
        PyBuffer_Release(&view)


def recompress(batch, int codec, level=None, int64_t decompressed_max=0):
    """One whole batch again with another codec; header fields stay, length, attributes and CRC follow."""
    cdef Py_buffer view
    cdef bytes out
    cdef uint8_t *p
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        p = <uint8_t *> view.buf
        if view.len < HEADER_SIZE:
            raise BatchError(CORRUPT_MESSAGE, f"{view.len} bytes are no batch")
        records = plain_records(p, view.len, decompressed_limit(decompressed_max, 0))
        if codec != CODEC_NONE:
            records = codecs_in_use()[0](codec, records, level)
        out = gathered([PyMemoryView_FromMemory(<char *> p, HEADER_SIZE, PyBUF_READ), records])
    finally:
        PyBuffer_Release(&view)
    p = <uint8_t *> PyBytes_AS_STRING(out)
    store_u32(p + BATCH_LENGTH_AT, <uint32_t> (PyBytes_GET_SIZE(out) - LENGTH_OVERHEAD))
    store_u16(p + ATTRIBUTES_AT, (load_u16(p + ATTRIBUTES_AT) & ~CODEC_MASK) | codec)
    store_u32(p + CRC_AT, <uint32_t> crc_of(p, PyBytes_GET_SIZE(out)))
    return out


cdef object plain_records(const uint8_t *p, Py_ssize_t size, int64_t limit):
    """The records of a whole batch, decompressed: bytes, or a view that is valid as long as the batch."""
    cdef int codec = load_u16(p + ATTRIBUTES_AT) & CODEC_MASK
    if codec == CODEC_NONE:
        return PyMemoryView_FromMemory(<char *> p + HEADER_SIZE, size - HEADER_SIZE, PyBUF_READ)
    return decompressed(codec, p + HEADER_SIZE, size - HEADER_SIZE, limit)
