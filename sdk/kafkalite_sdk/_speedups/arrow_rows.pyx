# cython: nonecheck=True
"""Reads tables that are passed through the Arrow PyCapsule interface, row by row, without an Arrow library.

Invariants:
1. The types of all columns are checked before the first row, all rows before the first one is sent. An error names the
   column and the row.
2. An imported array is released exactly once, with the object that refers to it. A structure that another import has
   taken, as its capsule was passed twice, is rejected: its memory may be freed.

The content of the buffers is trusted, as the C data interface demands. Source:
https://arrow.apache.org/docs/format/CDataInterface.html, Columnar.html.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kafkalite._speedups.wire.wire cimport put_varlong, uvarint_size
from kafkalite_sdk._speedups.arrow cimport ARROW_FLAG_NULLABLE, ArrowArray, ArrowArrayStream, ArrowSchema

from kafkalite.errors import KafkaErrorCode, error_for

__all__ = ["ArrowRows", "import_rows"]

cdef enum:
    NOTHING = 0               # the column does not exist, or has the type null
    OFFSETS_32 = 1
    OFFSETS_64 = 2
    VIEWS = 3
    FIXED_SIZE = 4
    SIGNED = 5
    UNSIGNED = 6
    INLINE_MAX = 12           # bytes of a view that has no buffer
    VIEW_SIZE = 16

BINARY = {"z": OFFSETS_32, "u": OFFSETS_32, "Z": OFFSETS_64, "U": OFFSETS_64, "vz": VIEWS, "vu": VIEWS, "n": NOTHING}
INTEGERS = {
    "c": (SIGNED, 1), "s": (SIGNED, 2), "i": (SIGNED, 4), "l": (SIGNED, 8),
    "C": (UNSIGNED, 1), "S": (UNSIGNED, 2), "I": (UNSIGNED, 4), "L": (UNSIGNED, 8), "n": (NOTHING, 0),
}  # fmt: skip
TIMES = {"tss": (1000, 1), "tsm": (1, 1), "tsu": (1, 1000), "tsn": (1, 1_000_000)}
LISTS = {"+l": OFFSETS_32, "+L": OFFSETS_64, "+m": OFFSETS_32, "n": NOTHING}
COLUMNS = ("key", "value", "headers", "partition", "timestamp")
LARGEST_ROWS = 1 << 40


cdef inline bint is_valid(const ArrowColumn *column, int64_t row) noexcept nogil:
    """Whether a row is not null."""
    cdef int64_t at = row + column.offset
    if column.form == NOTHING:
        return False
    return column.valid == NULL or column.valid[at >> 3] >> (at & 7) & 1


cdef const uint8_t *bytes_at(const ArrowColumn *column, int64_t row, int64_t *size) noexcept nogil:
    """The bytes of a row; their size is -1 for null."""
    cdef int64_t at = row + column.offset
    cdef const uint8_t *view
    cdef int64_t begin
    size[0] = -1
    if not is_valid(column, row):
        return NULL
    if column.form == OFFSETS_32:
        begin = (<const int32_t *> column.offsets)[at]
        size[0] = (<const int32_t *> column.offsets)[at + 1] - begin
        return column.data + begin
    if column.form == OFFSETS_64:
        begin = (<const int64_t *> column.offsets)[at]
        size[0] = (<const int64_t *> column.offsets)[at + 1] - begin
        return column.data + begin
    if column.form == FIXED_SIZE:
        size[0] = column.width
        return column.offsets + at * column.width
    view = column.offsets + at * VIEW_SIZE
    size[0] = (<const int32_t *> view)[0]
    if size[0] <= INLINE_MAX:
        return view + 4
    return <const uint8_t *> column.buffers[2 + (<const int32_t *> view)[2]] + (<const int32_t *> view)[3]


cdef bint integer_at(const ArrowColumn *column, int64_t row, int64_t *value) noexcept nogil:
    """Read an integer or a time in ms; False = null."""
    cdef int64_t at = row + column.offset
    cdef const uint8_t *p = column.offsets + at * column.width
    if not is_valid(column, row):
        return False
    if column.width == 8:
        value[0] = (<const int64_t *> p)[0]
    elif column.width == 4:
        value[0] = (<const int32_t *> p)[0] if column.form == SIGNED else <int64_t> (<const uint32_t *> p)[0]
    elif column.width == 2:
        value[0] = (<const int16_t *> p)[0] if column.form == SIGNED else <int64_t> (<const uint16_t *> p)[0]
    else:
        value[0] = (<const int8_t *> p)[0] if column.form == SIGNED else <int64_t> p[0]
    if column.divisor > 1:
        value[0] = value[0] // column.divisor - (value[0] % column.divisor < 0)  # towards the past
    elif column.multiplier > 1:
        value[0] = <int64_t> (<uint64_t> value[0] * <uint64_t> column.multiplier)
    return True


cdef bint time_fits(const ArrowColumn *column, int64_t row) noexcept nogil:
    """Whether the time of a row in ms is an integer of 64 bits."""
    cdef int64_t value
    if column.width != 8 or not is_valid(column, row):
        return True
    value = (<const int64_t *> column.offsets)[row + column.offset]
    if column.form == UNSIGNED:
        return value >= 0
    return column.multiplier == 1 or INT64_MIN // column.multiplier < value <= INT64_MAX // column.multiplier


cdef str time_text(const ArrowColumn *column, int64_t row):
    """The number in the column, and its unit."""
    cdef int64_t value = (<const int64_t *> column.offsets)[row + column.offset]
    return f"{value} s" if column.multiplier > 1 else f"{<uint64_t> value} ms"


cdef inline Py_ssize_t varlong_size(int64_t value) noexcept nogil:
    return uvarint_size((<uint64_t> value << 1) ^ <uint64_t> (value >> 63))


cdef inline uint8_t *put_sized(uint8_t *p, const uint8_t *data, int64_t size) noexcept nogil:
    p += put_varlong(p, size)
    if size > 0:
        memcpy(p, data, size)
        p += size
    return p


# ---- copies ---------------------------------------------------------------------------------------------------------


cdef uint8_t *new_memory(list memory, Py_ssize_t size) except NULL:
    """Memory filled with zeros that is freed with the list."""
    cdef bytearray allocated = bytearray(max(size, 1))
    memory.append(allocated)
    return <uint8_t *> PyByteArray_AS_STRING(allocated)


cdef ArrowColumn keep_valid(const ArrowColumn *column, int64_t first, int64_t count, list memory) except *:
    """A column of OFFSETS_64 without values, with the nulls of `count` rows from `first` on."""
    cdef ArrowColumn kept
    cdef uint8_t *valid
    cdef int64_t row
    memset(&kept, 0, sizeof(kept))
    if column.form == NOTHING:
        return kept
    valid = new_memory(memory, (count + 7) // 8)
    for row in range(count):
        if is_valid(column, first + row):
            valid[row >> 3] |= 1 << (row & 7)
    kept.form = OFFSETS_64
    kept.required = column.required
    kept.multiplier = kept.divisor = 1
    kept.valid = valid
    return kept


cdef ArrowColumn keep_bytes(const ArrowColumn *column, int64_t first, int64_t count, list memory) except *:
    """A copy of a column of bytes."""
    cdef ArrowColumn kept = keep_valid(column, first, count, memory)
    cdef int64_t *offsets
    cdef uint8_t *data
    cdef const uint8_t *value
    cdef int64_t row
    cdef int64_t size
    if kept.form == NOTHING:
        return kept
    offsets = <int64_t *> new_memory(memory, (count + 1) * sizeof(int64_t))
    for row in range(count):
        bytes_at(column, first + row, &size)
        offsets[row + 1] = offsets[row] + max(size, 0)
    data = new_memory(memory, offsets[count])
    for row in range(count):
        value = bytes_at(column, first + row, &size)
        if size > 0:
            memcpy(data + offsets[row], value, size)
    kept.offsets = <const uint8_t *> offsets
    kept.data = data
    return kept


cdef ArrowColumn keep_integers(const ArrowColumn *column, int64_t count, list memory) except *:
    """A copy of a column of integers, times in ms."""
    cdef ArrowColumn kept = keep_valid(column, 0, count, memory)
    cdef int64_t *values
    cdef int64_t row
    if kept.form == NOTHING:
        return kept
    values = <int64_t *> new_memory(memory, count * sizeof(int64_t))
    for row in range(count):
        integer_at(column, row, &values[row])
    kept.form = SIGNED
    kept.width = sizeof(int64_t)
    kept.offsets = <const uint8_t *> values
    return kept


cdef ArrowColumn keep_ranges(const ArrowColumn *column, int64_t count, int64_t *first, list memory) except *:
    """A copy of the offsets of a list column, from 0 on; `first` becomes the item that had the first of them."""
    cdef ArrowColumn kept = keep_valid(column, 0, count, memory)
    cdef int64_t *offsets
    cdef int64_t row
    cdef int64_t at
    if kept.form == NOTHING:
        return kept
    offsets = <int64_t *> new_memory(memory, (count + 1) * sizeof(int64_t))
    for row in range(count + 1):
        at = row + column.offset
        if column.form == OFFSETS_32:
            offsets[row] = (<const int32_t *> column.offsets)[at]
        else:
            offsets[row] = (<const int64_t *> column.offsets)[at]
    first[0] = offsets[0]
    for row in range(count + 1):
        offsets[row] -= first[0]
    kept.offsets = <const uint8_t *> offsets
    return kept


# ---- rows -----------------------------------------------------------------------------------------------------------


@cython.final
cdef class ArrowRows:
    """Rows of one Arrow array; see arrow_rows.pyi."""

    def __dealloc__(self):
        if self.array.release != NULL:
            self.array.release(&self.array)

    def __len__(self):
        return self.count

    cdef int64_t header_range(self, int64_t row, int64_t *begin) noexcept nogil:
        """The number of headers of a row, and the first one."""
        cdef int64_t at = row + self.headers.offset
        if not is_valid(&self.headers, row):
            return 0
        if self.headers.form == OFFSETS_32:
            begin[0] = (<const int32_t *> self.headers.offsets)[at]
            return (<const int32_t *> self.headers.offsets)[at + 1] - begin[0]
        begin[0] = (<const int64_t *> self.headers.offsets)[at]
        return (<const int64_t *> self.headers.offsets)[at + 1] - begin[0]

    cdef Py_ssize_t headers_size(self, int64_t begin, int64_t count) noexcept nogil:
        """Encoded size of headers, without their number."""
        cdef Py_ssize_t total = 0
        cdef int64_t at
        cdef int64_t size
        for at in range(begin, begin + count):
            bytes_at(&self.header_key, at, &size)
            total += varlong_size(size) + size
            bytes_at(&self.header_value, at, &size)
            total += varlong_size(size) + max(size, 0)
        return total

    cdef uint8_t *put_headers(self, uint8_t *p, int64_t begin, int64_t count) noexcept nogil:
        """Encode headers into memory that is reserved."""
        cdef const uint8_t *data
        cdef int64_t at
        cdef int64_t size
        for at in range(begin, begin + count):
            data = bytes_at(&self.header_key, at, &size)
            p = put_sized(p, data, size)
            data = bytes_at(&self.header_value, at, &size)
            p = put_sized(p, data, size)
        return p

    cdef ArrowRows kept(self):
        """A copy of the rows in memory of their own."""
        cdef ArrowRows rows = ArrowRows.__new__(ArrowRows)
        cdef int64_t first = 0
        cdef int64_t count = self.count
        rows.count = count
        rows.memory = []
        rows.key = keep_bytes(&self.key, 0, count, rows.memory)
        rows.value = keep_bytes(&self.value, 0, count, rows.memory)
        rows.partition = keep_integers(&self.partition, count, rows.memory)
        rows.timestamp = keep_integers(&self.timestamp, count, rows.memory)
        rows.headers = keep_ranges(&self.headers, count, &first, rows.memory)
        if rows.headers.form != NOTHING:
            count = (<const int64_t *> rows.headers.offsets)[count]
            rows.header_key = keep_bytes(&self.header_key, first, count, rows.memory)
            rows.header_value = keep_bytes(&self.header_value, first, count, rows.memory)
        return rows

    def check(self, int64_t first_row=0, *, bint require_key=False, int64_t size_max=INT32_MAX):
        """Check all rows; see arrow_rows.pyi."""
        cdef int64_t row
        cdef int64_t size
        cdef int64_t total = 0
        self.key.required |= require_key
        for row in range(self.count):
            size = self.check_row(row, first_row + row)
            if size > size_max:
                text = f"row {first_row + row}: a record of {size} bytes; max_request_size and buffer_memory allow "
                raise error_for(KafkaErrorCode.MESSAGE_TOO_LARGE, text + str(size_max))
            total += size
        return total

    cdef int64_t check_row(self, int64_t row, int64_t number) except -1:
        """Check a row; return a bound of its encoded size."""
        cdef int64_t key_size
        cdef int64_t value_size
        cdef int64_t begin
        cdef int64_t size
        cdef int64_t at
        cdef int64_t total = 40
        bytes_at(&self.key, row, &key_size)
        bytes_at(&self.value, row, &value_size)
        if key_size > INT32_MAX or (key_size < 0 and self.key.required):
            raise unsuitable("key", number, key_size)
        if value_size > INT32_MAX or (value_size < 0 and self.value.required):
            raise unsuitable("value", number, value_size)
        if integer_at(&self.partition, row, &at) and not 0 <= at <= INT32_MAX:
            raise ValueError(f"column partition, row {number}: {at} is no partition")
        if not time_fits(&self.timestamp, row):
            raise ValueError(f"column timestamp, row {number}: {time_text(&self.timestamp, row)} exceeds 64 bits in ms")
        if self.headers.required and not is_valid(&self.headers, row):
            raise unsuitable("headers", number, -1)
        count = self.header_range(row, &begin)
        for at in range(begin, begin + count):
            bytes_at(&self.header_key, at, &size)
            if not 0 <= size <= INT32_MAX:
                raise unsuitable("headers.key", number, size)
            bytes_at(&self.header_value, at, &size)
            if size > INT32_MAX:
                raise unsuitable("headers.value", number, size)
        if count:
            total += self.headers_size(begin, count)
        return total + max(key_size, 0) + max(value_size, 0)


cdef object unsuitable(str column, int64_t row, int64_t size):
    if size < 0:
        return ValueError(f"column {column}, row {row}: null is not allowed")
    return ValueError(f"column {column}, row {row}: {size} bytes, the largest size is {INT32_MAX}")


# ---- import ---------------------------------------------------------------------------------------------------------


cdef int open_column(
    ArrowColumn *column, str name, const ArrowSchema *schema, ArrowArray *array, int64_t offset
) except -1:
    """What columns of all types have in common."""
    if schema.dictionary != NULL:
        raise TypeError(f"column {name} is dictionary-encoded; cast it to its values")
    column.offset = array.offset + offset
    column.required = not schema.flags & ARROW_FLAG_NULLABLE
    column.multiplier = column.divisor = 1
    if array.n_buffers > 0:
        column.valid = <const uint8_t *> array.buffers[0]
    if array.n_buffers > 1:
        column.offsets = <const uint8_t *> array.buffers[1]
    if array.n_buffers > 2:
        column.data = <const uint8_t *> array.buffers[2]
    column.buffers = array.buffers
    return 0


cdef int open_binary(
    ArrowColumn *column, str name, const ArrowSchema *schema, ArrowArray *array, int64_t offset
) except -1:
    cdef str format = schema.format.decode()
    open_column(column, name, schema, array, offset)
    if format in BINARY:
        column.form = BINARY[format]
    elif format.startswith("w:"):
        column.form = FIXED_SIZE
        column.width = int(format[2:])
    else:
        raise TypeError(f"column {name} has the Arrow type {format!r}, expected binary or a string")
    return 0


cdef int open_integers(
    ArrowColumn *column, str name, const ArrowSchema *schema, ArrowArray *array, int64_t offset
) except -1:
    cdef str format = schema.format.decode()
    open_column(column, name, schema, array, offset)
    if name == "timestamp" and format[:3] in TIMES and format[3:4] == ":":
        column.multiplier, column.divisor = TIMES[format[:3]]
        format = "l"
    if format not in INTEGERS:
        expected = "integers" if name == "partition" else "a timestamp, or integers in ms"
        raise TypeError(f"column {name} has the Arrow type {format!r}, expected {expected}")
    column.form, column.width = INTEGERS[format]
    return 0


cdef int open_headers(ArrowRows rows, const ArrowSchema *schema, ArrowArray *array, int64_t offset) except -1:
    cdef str format = schema.format.decode()
    cdef const ArrowSchema *pairs
    cdef ArrowArray *items
    open_column(&rows.headers, "headers", schema, array, offset)
    if format not in LISTS:
        raise TypeError(f"column headers has the Arrow type {format!r}, expected a list of structs (key, value)")
    rows.headers.form = LISTS[format]
    if rows.headers.form == NOTHING:
        return 0
    pairs, items = schema.children[0], array.children[0]
    names = [pairs.children[at].name.decode() for at in range(pairs.n_children)]
    if pairs.format != b"+s" or (names != ["key", "value"] and format != "+m"):
        raise TypeError(f"column headers has items with the fields {names}, expected structs (key, value)")
    open_binary(&rows.header_key, "headers.key", pairs.children[0], items.children[0], items.offset)
    open_binary(&rows.header_value, "headers.value", pairs.children[1], items.children[1], items.offset)
    return 0


cdef ArrowRows opened(const ArrowSchema *schema, ArrowArray *array):
    """Move an array into an object, and find its columns."""
    cdef ArrowRows rows = ArrowRows.__new__(ArrowRows)
    cdef const ArrowSchema *child
    check_unused(schema.release != NULL and array.release != NULL)
    rows.array = array[0]
    array.release = NULL
    if schema.format != b"+s":
        raise TypeError(f"the Arrow type is {schema.format.decode()!r}, expected a table with columns")
    if rows.array.null_count > 0:
        raise ValueError("rows of the table are null; only their fields may be null")
    rows.count = rows.array.length
    if rows.count > LARGEST_ROWS:
        raise ValueError(f"the table has {rows.count} rows")
    seen = set()
    for at in range(schema.n_children):
        child = schema.children[at]
        name = child.name.decode()
        if name not in COLUMNS or name in seen:
            raise ValueError(f"column {name!r} cannot be sent, only {', '.join(COLUMNS)}, once each; select them")
        seen.add(name)
        open_named(rows, name, child, rows.array.children[at])
    return rows


cdef int open_named(ArrowRows rows, str name, const ArrowSchema *schema, ArrowArray *array) except -1:
    cdef int64_t offset = rows.array.offset
    if name == "key":
        return open_binary(&rows.key, name, schema, array, offset)
    if name == "value":
        return open_binary(&rows.value, name, schema, array, offset)
    if name == "headers":
        return open_headers(rows, schema, array, offset)
    return open_integers(&rows.partition if name == "partition" else &rows.timestamp, name, schema, array, offset)


cdef int check_unused(bint unused) except -1:
    if not unused:
        raise ValueError("the Arrow capsule was used before; export the table again")
    return 0


cdef list stream_rows(ArrowArrayStream *stream):
    """The arrays of a stream."""
    cdef ArrowSchema schema
    cdef ArrowArray array
    cdef list found = []
    check_unused(stream.release != NULL)
    check_stream(stream, stream.get_schema(stream, &schema))
    try:
        while True:
            array.release = NULL
            check_stream(stream, stream.get_next(stream, &array))
            if array.release == NULL:
                return found
            found.append(opened(&schema, &array))
    finally:
        schema.release(&schema)


cdef int check_stream(ArrowArrayStream *stream, int code) except -1:
    if code:
        reason = stream.get_last_error(stream)
        text = reason.decode() if reason != NULL else "no reason"
        raise ValueError(f"the Arrow stream fails with error {code}: {text}")
    return 0


def import_rows(table):
    """Import a table; see arrow_rows.pyi."""
    if hasattr(table, "__arrow_c_stream__"):
        capsule = table.__arrow_c_stream__()
        return stream_rows(<ArrowArrayStream *> PyCapsule_GetPointer(capsule, b"arrow_array_stream"))
    if hasattr(table, "__arrow_c_array__"):
        schema, array = table.__arrow_c_array__()
        return [
            opened(
                <const ArrowSchema *> PyCapsule_GetPointer(schema, b"arrow_schema"),
                <ArrowArray *> PyCapsule_GetPointer(array, b"arrow_array"),
            )
        ]
    raise TypeError(f"{type(table).__name__} has no Arrow PyCapsule interface; pass a table or batch of Arrow columns")
