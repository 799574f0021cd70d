# cython: nonecheck=True
"""Writes records into Arrow buffers.

Invariants:
1. A record is appended completely or not at all: its memory is reserved before the first byte is written.
2. A batch ends with the record that reaches `bytes_max`; its buffers double as they grow. No buffer has more than
   2 GiB, as its offsets have 32 bits.
3. Null keys, values and header values are null; a record without headers has an empty list.
4. Names of headers are valid UTF-8: invalid bytes become U+FFFD, as in `Record.headers`.
5. A time that microseconds of 64 bits cannot represent is an error that names the record, never another time.
6. The value of a line is the key and the separator if keys are wanted, the value and the line end; null is empty.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy

from kafkalite._speedups.records.record_walk cimport (
    FAULT_HEADERS,
    FAULT_NONE,
    FAULT_OFFSET,
    RecordFields,
    read_record,
    short_varint,
)
from kafkalite._speedups.wire.error_codes cimport INVALID_TIMESTAMP
from kafkalite._speedups.wire.wire cimport Span, take
from kafkalite_sdk._speedups.column_batch cimport (
    HEADERS_COLUMN,
    KEY_COLUMN,
    OFFSET_COLUMN,
    PARTITION_COLUMN,
    TIMESTAMP_COLUMN,
    TIMESTAMP_TYPE_COLUMN,
    TOPIC_COLUMN,
    VALUE_COLUMN,
    BinaryColumn,
    Buffer,
    ColumnBatch,
    ColumnMemory,
    new_memory,
    release_memory,
)
from kafkalite_sdk._speedups.consumer_records cimport BY_LOG_APPEND_TIME, Record
from kafkalite_sdk._speedups.utf8 cimport sequence_of

from kafkalite.errors import CorruptRecordError
from kafkalite_sdk._speedups.column_batch import COLUMNS

__all__ = ["ColumnBuilder"]

cdef enum:
    BUFFER_MIN = 64
    ROWS_FIRST = 64
    TRIMMED_MIN = 65536       # a smaller buffer is not trimmed
    BYTES_MAX = 1 << 30       # beyond, a large record after it would exceed 2 GiB
    REPLACED_MAX = 3          # bytes of U+FFFD, which replaces one invalid byte or more

cdef int64_t MILLISECONDS_MAX = INT64_MAX // 1000  # that microseconds represent, before and after 1970

cdef struct Common:
    # What the records of a batch have in common.
    const uint8_t *topic
    int32_t topic_size
    int32_t partition
    int32_t timestamp_type
    bint with_keys            # of lines
    const uint8_t *separator
    Py_ssize_t separator_size
    const uint8_t *line_end
    Py_ssize_t line_end_size


cdef Py_ssize_t FIXED_BYTES[8]
FIXED_BYTES[:] = [4, 4, 4, 4, 8, 8, 4, 4]


# ---- buffers --------------------------------------------------------------------------------------------------------


cdef inline int reserve(Buffer *buffer, Py_ssize_t n) noexcept nogil:
    """Allocate memory for `n` bytes after `size`; -1 = there is none."""
    cdef Py_ssize_t capacity
    cdef void *grown
    if n <= buffer.capacity - buffer.size and buffer.at != NULL:
        return 0
    capacity = max(buffer.size + n, 2 * buffer.capacity, BUFFER_MIN)
    grown = realloc(buffer.at, capacity)
    if grown == NULL:
        return -1
    buffer.at = <uint8_t *> grown
    buffer.capacity = capacity
    return 0


cdef inline int reserve_to(Buffer *buffer, Py_ssize_t n) noexcept nogil:
    """Allocate memory for `n` bytes in all; -1 = there is none."""
    return reserve(buffer, max(0, n - buffer.size))


cdef void trim(Buffer *buffer) noexcept nogil:
    """Give back memory that is not used, if it is more than half."""
    cdef void *smaller
    if buffer.size < buffer.capacity // 2 and buffer.capacity > TRIMMED_MIN:
        smaller = realloc(buffer.at, max(buffer.size, BUFFER_MIN))
        if smaller != NULL:
            buffer.at = <uint8_t *> smaller
            buffer.capacity = max(buffer.size, BUFFER_MIN)


cdef inline int reserve_offsets(Buffer *offsets, Py_ssize_t count) noexcept nogil:
    """Allocate memory for the offsets of `count` values; the first offset is 0."""
    if reserve_to(offsets, 4 * (count + 1)):
        return -1
    if offsets.size == 0:
        (<int32_t *> offsets.at)[0] = 0
        offsets.size = 4
    return 0


cdef inline int reserve_values(BinaryColumn *column, Py_ssize_t count) noexcept nogil:
    """Allocate memory for the offsets and null bits of `count` values."""
    if reserve_offsets(&column.offsets, count) or reserve(&column.data, 0):
        return -1
    return reserve_to(&column.valid, (count + 7) >> 3)


cdef inline void put_bit(uint8_t *bits, int64_t at, bint bit) noexcept nogil:
    """Set a bit; those behind it in its byte become 0."""
    cdef uint8_t mask = <uint8_t> (1 << (at & 7))
    if at & 7 == 0:
        bits[at >> 3] = bit
    elif bit:
        bits[at >> 3] |= mask


cdef inline void end_value(BinaryColumn *column, int64_t at) noexcept nogil:
    """The bytes of a value have been written."""
    (<int32_t *> column.offsets.at)[at + 1] = <int32_t> column.data.size


cdef inline void put_value(BinaryColumn *column, int64_t at, const uint8_t *data, int32_t size) noexcept nogil:
    """Write a value or null into memory that is reserved."""
    if size > 0:
        memcpy(column.data.at + column.data.size, data, size)
        column.data.size += size
    put_bit(column.valid.at, at, size >= 0)
    column.nulls += size < 0
    end_value(column, at)


cdef inline void add_bytes(Buffer *buffer, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    if size > 0:
        memcpy(buffer.at + buffer.size, data, size)
        buffer.size += size


cdef inline void put_line(
    BinaryColumn *column, int64_t at, const RecordFields *fields, const Common *common
) noexcept nogil:
    """Write a record as a line into memory that is reserved."""
    if common.with_keys:
        add_bytes(&column.data, fields.key, fields.key_size)
        add_bytes(&column.data, common.separator, common.separator_size)
    add_bytes(&column.data, fields.value, fields.value_size)
    add_bytes(&column.data, common.line_end, common.line_end_size)
    put_bit(column.valid.at, at, True)
    end_value(column, at)


# ---- names of headers -----------------------------------------------------------------------------------------------


cdef void put_text(BinaryColumn *column, int64_t at, const uint8_t *p, Py_ssize_t left) noexcept nogil:
    """Write UTF-8 into memory that is reserved for three times its size."""
    cdef uint8_t *out = column.data.at + column.data.size
    cdef bint valid
    cdef int length
    while left > 0:
        length = sequence_of(p, left, &valid)
        if valid:
            memcpy(out, p, length)
            out += length
        else:
            memcpy(out, b"\xef\xbf\xbd", 3)
            out += 3
        p += length
        left -= length
    column.data.size = out - column.data.at
    end_value(column, at)


# ---- records --------------------------------------------------------------------------------------------------------


cdef int reserve_rows(ColumnMemory *memory, Py_ssize_t rows) noexcept nogil:
    """Allocate memory for the columns of fixed size; -1 = there is none."""
    if memory.wanted[KEY_COLUMN] and reserve_values(&memory.key, rows):
        return -1
    if memory.wanted[VALUE_COLUMN] and reserve_values(&memory.value, rows):
        return -1
    if memory.wanted[TOPIC_COLUMN] and reserve_values(&memory.topic, rows):
        return -1
    if memory.wanted[PARTITION_COLUMN] and reserve_to(&memory.partition, 4 * rows):
        return -1
    if memory.wanted[OFFSET_COLUMN] and reserve_to(&memory.offset, 8 * rows):
        return -1
    if memory.wanted[TIMESTAMP_COLUMN] and reserve_to(&memory.timestamp, 8 * rows):
        return -1
    if memory.wanted[TIMESTAMP_TYPE_COLUMN] and reserve_to(&memory.timestamp_type, 4 * rows):
        return -1
    if not memory.wanted[HEADERS_COLUMN]:
        return 0
    return -1 if reserve_offsets(&memory.headers, rows) or reserve_headers(memory, 0, 0) else 0


cdef int reserve_headers(ColumnMemory *memory, Py_ssize_t count, Py_ssize_t size) noexcept nogil:
    """Allocate memory for headers with `size` bytes; -1 = there is none."""
    if reserve_offsets(&memory.header_key.offsets, memory.headers_count + count):
        return -1
    if reserve(&memory.header_key.data, REPLACED_MAX * size) or reserve(&memory.header_value.data, size):
        return -1
    return reserve_values(&memory.header_value, memory.headers_count + count)


cdef inline bint fits(ColumnMemory *memory, const RecordFields *fields) noexcept nogil:
    """Whether no buffer exceeds what its offsets can address."""
    if memory.wanted[HEADERS_COLUMN] and fields.headers_count:
        if memory.header_key.data.size > INT32_MAX - REPLACED_MAX * fields.headers.left:
            return False
        if memory.header_value.data.size > INT32_MAX - fields.headers.left:
            return False
    if memory.key.data.size > INT32_MAX - max(fields.key_size, 0):
        return False
    return memory.value.data.size <= INT32_MAX - max(fields.value_size, 0)


cdef inline Py_ssize_t line_size(const RecordFields *fields, const Common *common) noexcept nogil:
    cdef Py_ssize_t size = max(fields.value_size, 0) + common.line_end_size
    return size + max(fields.key_size, 0) + common.separator_size if common.with_keys else size


cdef inline bint line_fits(ColumnMemory *memory, const RecordFields *fields, const Common *common) noexcept nogil:
    return memory.value.data.size <= INT32_MAX - line_size(fields, common)


cdef void put_headers(ColumnMemory *memory, Span span, int32_t count) noexcept nogil:
    """Write headers whose framing `read_record` has checked into memory that is reserved."""
    cdef const uint8_t *data
    cdef int32_t size
    cdef int32_t _i
    for _i in range(count):
        size = short_varint(&span)
        data = take(&span, size)
        put_text(&memory.header_key, memory.headers_count, data, size)
        size = short_varint(&span)
        data = take(&span, max(size, 0))
        put_value(&memory.header_value, memory.headers_count, data, size)
        memory.headers_count += 1


cdef inline bint time_fits(const ColumnMemory *memory, int64_t milliseconds) noexcept nogil:
    """Whether the unit of the column can represent a time."""
    if not memory.microseconds or not memory.wanted[TIMESTAMP_COLUMN]:
        return True
    return -MILLISECONDS_MAX <= milliseconds <= MILLISECONDS_MAX


@cython.final
cdef class ColumnBuilder:
    """Collects records in columns; see column_builder.pyi."""

    def __cinit__(
        self,
        columns=COLUMNS,
        *,
        Py_ssize_t rows_max=INT32_MAX,
        Py_ssize_t bytes_max=8 << 20,
        timestamp_unit="ms",
        bytes line_end=None,
        bytes key_separator=None,
    ):
        if rows_max < 1:
            raise ValueError(f"the number of records is {rows_max}, expected a number above 0")
        if not 0 < bytes_max <= BYTES_MAX:
            raise ValueError(f"the number of bytes is {bytes_max}, expected 1 to {BYTES_MAX}")
        if timestamp_unit not in ("ms", "us"):
            raise ValueError(f"timestamp_unit is {timestamp_unit!r}, expected 'ms' or 'us'")
        if isinstance(columns, str):
            raise TypeError(f"columns is {columns!r}, expected a list of names")
        self.columns = ("value",) if line_end is not None else tuple(columns)
        self.lines = line_end is not None
        self.line_end = line_end or b""
        self.with_keys = key_separator is not None
        self.separator = key_separator or b""
        self.microseconds = timestamp_unit == "us"
        self.rows_max = min(rows_max, INT32_MAX)
        self.bytes_max = bytes_max
        self.row_bytes = sum([FIXED_BYTES[COLUMNS.index(name)] for name in self.columns if name in COLUMNS])
        self.memory = new_memory(self.columns, self.microseconds)

    def __dealloc__(self):
        release_memory(self.memory)

    def __len__(self):
        return self.memory.rows

    @property
    def nbytes(self):
        return self.memory.nbytes

    @property
    def full(self):
        return self.is_full()

    cdef bint is_full(self) noexcept nogil:
        return self.memory.nbytes >= self.bytes_max or self.memory.rows >= self.rows_max

    cdef int expect(self, Py_ssize_t bytes_left) except -1:
        """Allocate memory for the values of a new batch at once: growing it step by step takes twice the time."""
        cdef Py_ssize_t expected = min(max(bytes_left, self.values_before), self.bytes_max)
        if self.memory.wanted[VALUE_COLUMN] and not self.memory.rows and reserve_to(&self.memory.value.data, expected):
            raise MemoryError
        return 0

    cdef int append_records(self, RecordCursor *cursor, str topic, int32_t partition) except? -9:
        """Append records until the batch of records or this batch ends; 0, a RecordFault or a ColumnsEnd."""
        cdef Common common
        cdef bytes name = topic.encode()
        cdef int found
        common.topic = <const uint8_t *> PyBytes_AS_STRING(name)
        common.topic_size = <int32_t> PyBytes_GET_SIZE(name)
        common.partition = partition
        common.timestamp_type = cursor.timestamp_type
        common.with_keys = self.with_keys
        common.separator = <const uint8_t *> PyBytes_AS_STRING(self.separator)
        common.separator_size = PyBytes_GET_SIZE(self.separator)
        common.line_end = <const uint8_t *> PyBytes_AS_STRING(self.line_end)
        common.line_end_size = PyBytes_GET_SIZE(self.line_end)
        with nogil:
            found = append_all(self, cursor, &common)
        if found != COLUMNS_NO_MEMORY:
            return found
        if not self.memory.rows:
            raise MemoryError
        return COLUMNS_FULL

    def add(self, Record record not None):
        """Append a record that was read before; see column_builder.pyi."""
        cdef RecordCursor cursor
        cdef int found
        cursor.span.at = record.batch.records + record.at
        cursor.span.left = record.batch.size - record.at
        cursor.left = 1
        cursor.base_offset = record.batch.base_offset
        cursor.last_offset = cursor.position = record.offset
        cursor.before = record.offset - 1
        cursor.end = INT64_MAX
        cursor.base_timestamp = record.batch.base_timestamp
        cursor.append_timestamp = record.batch.append_timestamp
        cursor.timestamp_type = record.batch.timestamp_type
        found = self.append_records(&cursor, record.batch.topic, record.batch.partition)
        if found == COLUMNS_TIME and not self.memory.rows:
            raise self.time_error(record.batch.topic, record.batch.partition, record.offset, cursor.time_ms)
        return not found

    cdef object time_error(self, str topic, int32_t partition, int64_t offset, int64_t time_ms):
        """The error of a record whose time the unit cannot represent."""
        reason = f"its time is {time_ms} ms, but timestamp_unit 'us' ends at {MILLISECONDS_MAX} ms; read it in 'ms'"
        return CorruptRecordError(INVALID_TIMESTAMP, topic, partition, offset, offset + 1, reason)

    def finish(self):
        """Return the records as a batch, and begin another one; see column_builder.pyi."""
        cdef ColumnBatch batch
        cdef ColumnMemory *memory = new_memory(self.columns, self.microseconds)
        if reserve_rows(self.memory, self.memory.rows):  # offsets of a batch without records
            release_memory(memory)
            raise MemoryError
        trim(&self.memory.value.data)
        self.values_before = self.memory.value.data.size
        batch = ColumnBatch.__new__(ColumnBatch)
        batch.memory = self.memory
        self.memory = memory
        self.rows_capacity = 0
        return batch


cdef int append_all(ColumnBuilder builder, RecordCursor *cursor, const Common *common) noexcept nogil:
    """Append records until one of the batches ends; 0, a RecordFault or a ColumnsEnd."""
    cdef RecordFields fields
    cdef Span start
    cdef int64_t offset
    cdef int64_t timestamp
    cdef int found
    while cursor.left:
        if builder.is_full():
            return COLUMNS_FULL
        start = cursor.span
        found = read_record(&cursor.span, &fields)
        if found:
            return found
        offset = <int64_t> (<uint64_t> cursor.base_offset + <uint64_t> <int64_t> fields.offset_delta)
        if offset <= cursor.before or offset > cursor.last_offset:
            return FAULT_OFFSET
        if offset >= cursor.end:
            cursor.span = start
            return COLUMNS_END
        if offset >= cursor.position:
            timestamp = <int64_t> (<uint64_t> cursor.base_timestamp + <uint64_t> fields.timestamp_delta)
            if common.timestamp_type == BY_LOG_APPEND_TIME:
                timestamp = cursor.append_timestamp
            found = append(builder, &fields, common, offset, timestamp)
            if found:
                cursor.span = start
                if found == COLUMNS_TIME:
                    cursor.time_ms = timestamp
                    cursor.position = offset
                return found
            cursor.position = offset + 1
        cursor.left -= 1
        cursor.before = offset
    return FAULT_NONE


cdef inline int append(
    ColumnBuilder builder, const RecordFields *fields, const Common *common, int64_t offset, int64_t timestamp
) noexcept nogil:
    """Append a record; 0, a RecordFault or a ColumnsEnd."""
    cdef ColumnMemory *memory = builder.memory
    cdef int64_t row = memory.rows
    if not time_fits(memory, timestamp):
        return COLUMNS_TIME
    if not fits(memory, fields) or (builder.lines and not line_fits(memory, fields, common)):
        return <int> COLUMNS_FULL if row else <int> FAULT_HEADERS
    if reserve_record(builder, fields, common):
        return COLUMNS_NO_MEMORY
    if memory.wanted[KEY_COLUMN]:
        put_value(&memory.key, row, fields.key, fields.key_size)
        memory.nbytes += max(fields.key_size, 0)
    if builder.lines:
        put_line(&memory.value, row, fields, common)
        memory.nbytes += line_size(fields, common)
    elif memory.wanted[VALUE_COLUMN]:
        put_value(&memory.value, row, fields.value, fields.value_size)
        memory.nbytes += max(fields.value_size, 0)
    if memory.wanted[TOPIC_COLUMN]:
        put_value(&memory.topic, row, common.topic, common.topic_size)
        memory.nbytes += common.topic_size
    if memory.wanted[PARTITION_COLUMN]:
        (<int32_t *> memory.partition.at)[row] = common.partition
    if memory.wanted[OFFSET_COLUMN]:
        (<int64_t *> memory.offset.at)[row] = offset
    if memory.wanted[TIMESTAMP_COLUMN]:
        (<int64_t *> memory.timestamp.at)[row] = timestamp * 1000 if memory.microseconds else timestamp
    if memory.wanted[TIMESTAMP_TYPE_COLUMN]:
        (<int32_t *> memory.timestamp_type.at)[row] = common.timestamp_type
    if memory.wanted[HEADERS_COLUMN]:
        put_headers(memory, fields.headers, fields.headers_count)
        (<int32_t *> memory.headers.at)[row + 1] = <int32_t> memory.headers_count
        memory.nbytes += 8 * fields.headers_count + fields.headers.left
    memory.nbytes += builder.row_bytes
    memory.rows = row + 1
    return 0


cdef inline int reserve_record(ColumnBuilder builder, const RecordFields *fields, const Common *common) noexcept nogil:
    """Allocate memory for a record; -1 = there is none."""
    cdef ColumnMemory *memory = builder.memory
    cdef Py_ssize_t rows
    if memory.rows >= builder.rows_capacity:
        rows = max(2 * builder.rows_capacity, ROWS_FIRST)
        if reserve_rows(memory, rows):
            return -1
        builder.rows_capacity = rows
    if memory.wanted[KEY_COLUMN] and reserve(&memory.key.data, max(fields.key_size, 0)):
        return -1
    if memory.wanted[VALUE_COLUMN]:
        if reserve(&memory.value.data, line_size(fields, common) if builder.lines else max(fields.value_size, 0)):
            return -1
    if memory.wanted[TOPIC_COLUMN] and reserve(&memory.topic.data, common.topic_size):
        return -1
    if memory.wanted[HEADERS_COLUMN] and fields.headers_count:
        return reserve_headers(memory, fields.headers_count, fields.headers.left)
    return 0
