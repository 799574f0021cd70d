"""Encodes Kafka messages.

1. Each value is checked before it is written: type, range, length, null. An invalid value raises an EncodeError with
   the path of its field.
2. Small messages are built on the stack, larger ones in one growing allocation, which every exit frees.
3. A tagged field with its default value is omitted, as in Kafka.
4. `encode_parts` does not read file regions. A region is an object with `length` and `read()` that is not bytes-like.
5. An array of structs may consist of `Encoded` objects: elements that were encoded earlier, for the same version.
"""

cimport cython

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from kafkalite._speedups.codec.layouts cimport (
    ARRAY,
    BINARY,
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    INT64,
    Op,
    MessagePath,
    CompiledLayout,
    RECORDS,
    STRING,
    STRUCT,
    UINT16,
    UINT32,
    UUID,
    enter,
    kind_name,
    path_of,
    compiled_layout,
    slot_at,
)
from kafkalite._speedups.wire.strings cimport STRING_MAX
from kafkalite._speedups.wire.wire cimport put_uvarint, store_u16, store_u32, store_u64, uvarint_size

from kafkalite.errors import EncodeError

cdef extern from *:
    """
    static uint64_t kl_from_double(double d) { uint64_t v; memcpy(&v, &d, 8); return v; }
    """
    uint64_t from_double "kl_from_double"(double d) noexcept

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *n) except NULL
    bint PyUnicode_Check(object o)
    bint PyLong_Check(object o)
    bint PyFloat_Check(object o)
    long long PyLong_AsLongLongAndOverflow(object o, int *overflow) except? -1
    double PyFloat_AsDouble(object o) except? -1.0

cdef enum:
    STACK_BYTES = 1024             # larger messages move to the heap
    PART_MIN = 16384              # a smaller record batch is copied, a larger one is a part of its own
    SIZE_MAX_ = 2147483646        # of values other than strings: a 32-bit length, plus one in flexible versions


cdef struct Writer:
    uint8_t *data
    Py_ssize_t size, capacity
    uint8_t *heap                 # NULL while `data` is on the stack
    PyObject *parts               # list of regions and large batches; NULL = one bytes object
    bint tagged                   # in a tagged field, which is one bytes object
    MessagePath path


cdef int fail(Writer *w, str detail) except -1:
    raise EncodeError(detail, path_of(&w.path))


cdef int grow(Writer *w, Py_ssize_t n) except -1:
    cdef Py_ssize_t capacity = w.capacity * 2 if w.capacity * 2 > w.size + n else w.size + n
    cdef uint8_t *moved = <uint8_t *> (malloc(capacity) if w.heap == NULL else realloc(w.heap, capacity))
    if moved == NULL:
        raise MemoryError
    if w.heap == NULL:
        memcpy(moved, w.data, w.size)
    w.heap = w.data = moved
    w.capacity = capacity
    return 0


cdef inline uint8_t *reserve(Writer *w, Py_ssize_t n) except NULL:
    """Address of the next `n` bytes, which count as written."""
    if w.capacity - w.size < n:
        grow(w, n)
    w.size += n
    return w.data + w.size - n


cdef int write_uvarint(Writer *w, uint64_t value) except -1:
    cdef uint8_t *p
    if value < 0x80:
        reserve(w, 1)[0] = <uint8_t> value
        return 0
    p = reserve(w, uvarint_size(value))
    put_uvarint(p, value)
    return 0


cdef int write_size(Writer *w, int code, bint flexible, int64_t n) except -1:
    """Write a length; -1 = null."""
    if n > SIZE_MAX_ or (code == STRING and n > STRING_MAX):
        fail(w, f"{n} bytes or elements are too many for a {kind_name(code)}")
    if flexible:
        write_uvarint(w, <uint64_t> (n + 1))
    elif code == STRING:
        store_u16(reserve(w, 2), <uint32_t> n & 0xffff)
    else:
        store_u32(reserve(w, 4), <uint32_t> n)
    return 0


cdef int64_t integer(Writer *w, object value, int code, int64_t low, int64_t high) except? -1:
    cdef int overflow = 0
    cdef int64_t number
    if not PyLong_Check(value):
        wrong_type(w, value, code)
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or number < low or number > high:
        fail(w, f"{value} does not fit into {kind_name(code)}")
    return number


cdef int wrong_type(Writer *w, object value, int code) except -1:
    fail(w, f"a {type(value).__name__} is not a {kind_name(code)}")


cdef int write_bytes(Writer *w, object value, int code, bint flexible) except -1:
    """Write a bytes-like object with its length; a large one may become a part of its own."""
    cdef Py_buffer buffer
    if PyBytes_CheckExact(value):
        write_size(w, code, flexible, PyBytes_GET_SIZE(value))
        write_raw(w, value)
        return 0
    if not PyObject_CheckBuffer(value):
        wrong_type(w, value, code)
    PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE)
    try:
        write_size(w, code, flexible, buffer.len)
        memcpy(reserve(w, buffer.len), buffer.buf, buffer.len)
    finally:
        PyBuffer_Release(&buffer)
    return 0


cdef int write_raw(Writer *w, bytes value) except -1:
    cdef Py_ssize_t n = PyBytes_GET_SIZE(value)
    if n >= PART_MIN and w.parts != NULL and not w.tagged:
        add_part(w, value)
    else:
        memcpy(reserve(w, n), PyBytes_AS_STRING(value), n)
    return 0


cdef int add_part(Writer *w, object part) except -1:
    if w.size:
        (<list> w.parts).append(PyBytes_FromStringAndSize(<char *> w.data, w.size))
        w.size = 0
    (<list> w.parts).append(part)
    return 0


cdef int write_records(Writer *w, object value, bint flexible) except -1:
    """Write batches: bytes-like, a file region, or a list of both."""
    cdef int64_t total = 0
    if PyBytes_CheckExact(value) or (not PyList_CheckExact(value) and PyObject_CheckBuffer(value)):
        return write_bytes(w, value, RECORDS, flexible)
    pieces = tuple(value) if PyList_CheckExact(value) else (value,)
    for piece in pieces:
        total += piece_length(w, piece)
    write_size(w, RECORDS, flexible, total)
    for piece in pieces:
        write_piece(w, piece)
    return 0


cdef int64_t piece_length(Writer *w, object piece) except -1:
    if PyObject_CheckBuffer(piece):
        return memoryview(piece).nbytes
    length = getattr(piece, "length", None)
    if not PyLong_Check(length) or length < 0:
        wrong_type(w, piece, RECORDS)
    return length


cdef int write_piece(Writer *w, object piece) except -1:
    if PyObject_CheckBuffer(piece):
        return write_raw(w, bytes(piece))
    if w.parts != NULL and not w.tagged:
        return add_part(w, piece) if piece.length else 0
    content = piece.read()
    if len(content) != piece.length:
        fail(w, f"a file region of {piece.length} bytes gave {len(content)}")
    return write_raw(w, content)


cdef int write_string(Writer *w, object value, bint flexible) except -1:
    cdef Py_ssize_t n
    cdef const char *p
    if not PyUnicode_Check(value):
        wrong_type(w, value, STRING)
    try:
        p = PyUnicode_AsUTF8AndSize(value, &n)
    except UnicodeEncodeError as error:
        raise EncodeError(f"the string cannot be UTF-8: {error.reason}", path_of(&w.path)) from None
    write_size(w, STRING, flexible, n)
    memcpy(reserve(w, n), p, n)
    return 0


@cython.final
cdef class Encoded:
    """Encoded elements of an array; see encoder.pyi."""
    cdef readonly Py_ssize_t count
    cdef CompiledLayout layout
    cdef list parts


cdef int write_encoded(Writer *w, const Op *op, list pieces, bint flexible) except -1:
    cdef Py_ssize_t count = 0
    for piece in pieces:
        if type(piece) is not Encoded or op.layout == NULL or (
            (<Encoded> piece).layout is not <CompiledLayout> op.layout
        ):
            fail(w, "encoded elements of another struct or version stand in an array")
        count += (<Encoded> piece).count
    write_size(w, ARRAY, flexible, count)
    for piece in pieces:
        for part in (<Encoded> piece).parts:
            write_piece(w, part)
    return 0


cdef int write_array(Writer *w, const Op *op, object value, bint flexible) except -1:
    cdef int level = w.path.depth - 1
    cdef Py_ssize_t i
    cdef list found
    if not PyList_CheckExact(value):
        if not isinstance(value, (list, tuple)):
            wrong_type(w, value, ARRAY)
        value = list(value)
    found = <list> value
    if PyList_GET_SIZE(found) and type(found[0]) is Encoded:
        return write_encoded(w, op, found, flexible)
    write_size(w, ARRAY, flexible, PyList_GET_SIZE(found))
    for i in range(PyList_GET_SIZE(found)):
        w.path.element[level] = i
        write_value(w, op, op.element, found[i], flexible)
    w.path.element[level] = -1
    return 0


cdef int write_value(Writer *w, const Op *op, int code, object value, bint flexible) except -1:
    """Write a value that is not null."""
    if code == INT32:
        store_u32(reserve(w, 4), <uint32_t> integer(w, value, code, -0x80000000, 0x7fffffff))
    elif code == INT64:
        store_u64(reserve(w, 8), <uint64_t> integer(w, value, code, INT64_MIN, INT64_MAX))
    elif code == INT16:
        store_u16(reserve(w, 2), <uint32_t> integer(w, value, code, -0x8000, 0x7fff) & 0xffff)
    elif code == STRING:
        write_string(w, value, flexible)
    elif code == ARRAY:
        write_array(w, op, value, flexible)
    elif code == STRUCT:
        write_struct(w, <CompiledLayout> op.layout, value)
    elif code == RECORDS:
        write_records(w, value, flexible)
    elif code == INT8:
        reserve(w, 1)[0] = <uint8_t> (integer(w, value, code, -0x80, 0x7f) & 0xff)
    elif code == BOOLEAN:
        if value is not True and value is not False:
            wrong_type(w, value, code)
        reserve(w, 1)[0] = value is True
    elif code == UUID:
        if not PyBytes_CheckExact(value) or PyBytes_GET_SIZE(value) != 16:
            fail(w, "a uuid is a bytes object of length 16")
        memcpy(reserve(w, 16), PyBytes_AS_STRING(value), 16)
    elif code == BINARY:
        write_bytes(w, value, code, flexible)
    elif code == UINT16:
        store_u16(reserve(w, 2), <uint32_t> integer(w, value, code, 0, 0xffff))
    elif code == UINT32:
        store_u32(reserve(w, 4), <uint32_t> integer(w, value, code, 0, 0xffffffff))
    else:
        if not PyFloat_Check(value) and not PyLong_Check(value):
            wrong_type(w, value, code)
        store_u64(reserve(w, 8), from_double(PyFloat_AsDouble(value)))
    return 0


cdef int write_field(Writer *w, const Op *op, object value, bint flexible) except -1:
    if value is None:
        if not op.nullable:
            fail(w, f"null is not allowed for this {kind_name(op.code)} in this version")
        if op.code == STRUCT:
            reserve(w, 1)[0] = 0xff
        else:
            write_size(w, op.code, flexible, -1)
        return 0
    if op.code == STRUCT and op.nullable:
        reserve(w, 1)[0] = 1
    return write_value(w, op, op.code, value, flexible)


cdef object get(Writer *w, object owner, const Op *op):
    cdef PyObject *value = slot_at(owner, op.offset)[0]
    if value == NULL:
        fail(w, "the field was deleted")
    return <object> value


cdef int write_struct(Writer *w, CompiledLayout layout, object owner) except -1:
    cdef int i, level
    cdef Op *op
    if type(owner) is not layout.cls:
        fail(w, f"a {type(owner).__qualname__} is not a {layout.cls.__qualname__}")
    level = enter(&w.path, layout)
    for i in range(layout.count):
        op = &layout.ops[i]
        w.path.at[level] = i
        write_field(w, op, get(w, owner, op), layout.flexible)
    if layout.flexible:
        if layout.tagged_count == 0:
            reserve(w, 1)[0] = 0
        else:
            write_tags(w, layout, owner, level)
    w.path.depth = level
    return 0


cdef bint is_default(const Op *op, object value) except -1:
    if op.code == STRUCT and op.nullable:
        return value is not None and value == (<CompiledLayout> op.layout).cls()
    if value is <object> op.fallback:
        return True
    if op.code == STRUCT:
        return value is not None and value == (<CompiledLayout> op.layout).cls()
    return type(value) is not type(None) and value == <object> op.fallback


cdef int write_tags(Writer *w, CompiledLayout layout, object owner, int level) except -1:
    cdef uint64_t sent = 0        # one bit per tagged field
    cdef int i, count = 0
    for i in range(layout.tagged_count):
        w.path.at[level] = -1 - i
        if not is_default(&layout.tagged[i], get(w, owner, &layout.tagged[i])):
            sent |= <uint64_t> 1 << i
            count += 1
    write_uvarint(w, count)
    if count:
        for i in range(layout.tagged_count):
            if sent >> i & 1:
                w.path.at[level] = -1 - i
                write_tagged(w, &layout.tagged[i], get(w, owner, &layout.tagged[i]))
    return 0


cdef int write_tagged(Writer *w, const Op *op, object value) except -1:
    """Write tag, size and value. The size is known after the value; mostly it takes one byte."""
    cdef bint outer = w.tagged
    cdef Py_ssize_t start, n
    cdef int size
    write_uvarint(w, op.tag)
    reserve(w, 1)
    start = w.size
    w.tagged = True
    if value is None and op.code == STRUCT and op.nullable:
        reserve(w, 1)[0] = 0
    else:
        write_field(w, op, value, True)
    w.tagged = outer
    n = w.size - start
    size = uvarint_size(n)
    reserve(w, size - 1)
    memmove(w.data + start - 1 + size, w.data + start, n)
    put_uvarint(w.data + start - 1, n)
    return 0


cdef object write_message(Writer *w, object message, int version, bytes header):
    cdef CompiledLayout layout = compiled_layout(type(message), version)
    if layout is None:
        raise EncodeError(f"{type(message).__name__} has no version {version}")
    memcpy(reserve(w, PyBytes_GET_SIZE(header)), PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header))
    write_struct(w, layout, message)
    return None


cdef int start_writing(Writer *w, uint8_t *capacity) except -1:
    w.data = capacity
    w.capacity = STACK_BYTES
    w.size = 0
    w.heap = NULL
    w.parts = NULL
    w.tagged = False
    w.path.depth = 0
    return 0


def encode(message, int version, bytes header=b""):
    """Encode a message into one bytes object; see encoder.pyi."""
    cdef Writer w
    cdef uint8_t capacity[STACK_BYTES]
    start_writing(&w, capacity)
    try:
        write_message(&w, message, version, header)
        return PyBytes_FromStringAndSize(<char *> w.data, w.size)
    finally:
        free(w.heap)


def encode_parts(message, int version, bytes header=b""):
    """Encode a message into parts; see encoder.pyi."""
    cdef Writer w
    cdef uint8_t capacity[STACK_BYTES]
    cdef list parts = []
    start_writing(&w, capacity)
    w.parts = <PyObject *> parts
    try:
        write_message(&w, message, version, header)
        if w.size or not parts:
            parts.append(PyBytes_FromStringAndSize(<char *> w.data, w.size))
        return parts
    finally:
        free(w.heap)


cdef CompiledLayout plan_inside(CompiledLayout layout, cls):
    """The layout of a struct class in a message; None if the message has no such struct."""
    cdef int i
    for i in range(layout.count):
        if layout.ops[i].layout != NULL:
            inner = <CompiledLayout> layout.ops[i].layout
            if (<CompiledLayout> inner).cls is not cls:
                inner = plan_inside(<CompiledLayout> inner, cls)
            if inner is not None:
                return <CompiledLayout> inner
    return None


def encode_elements(list elements, message, int version):
    """Encode elements of an array of a message; see encoder.pyi."""
    cdef Writer w
    cdef uint8_t capacity[STACK_BYTES]
    cdef CompiledLayout outer = compiled_layout(message, version)
    cdef Encoded encoded = Encoded.__new__(Encoded)
    encoded.layout = None if outer is None or not elements else plan_inside(outer, type(elements[0]))
    if encoded.layout is None:
        raise EncodeError(f"{message.__name__} v{version} has no array of such elements, or there are none")
    encoded.count = len(elements)
    encoded.parts = []
    start_writing(&w, capacity)
    w.parts = <PyObject *> encoded.parts
    try:
        for element in elements:
            write_struct(&w, encoded.layout, element)
        if w.size:
            encoded.parts.append(PyBytes_FromStringAndSize(<char *> w.data, w.size))
        return encoded
    finally:
        free(w.heap)


cdef bytes request_header(cls, int version, int correlation_id, client_id):
    cdef bytes name
    cdef uint8_t header[10]
    try:
        name = b"" if client_id is None else client_id.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"the string cannot be UTF-8: {error.reason}", "client_id") from None
    if len(name) > STRING_MAX:
        raise EncodeError(f"{len(name)} bytes are too many for a string", "client_id")
    store_u16(header, <uint32_t> cls.api_key & 0xffff)
    store_u16(header + 2, version & 0xffff)
    store_u32(header + 4, <uint32_t> correlation_id)
    store_u16(header + 8, 0xffff if client_id is None else <uint32_t> len(name))
    return PyBytes_FromStringAndSize(<char *> header, 10) + name + (b"\x00" if version >= cls.flexible else b"")


def encode_request(message, int version, int correlation_id, client_id):
    """Encode a request with its header; see encoder.pyi."""
    return encode(message, version, request_header(type(message), version, correlation_id, client_id))


def encode_request_parts(message, int version, int correlation_id, client_id):
    """Encode a request with its header into parts; see encoder.pyi."""
    return encode_parts(message, version, request_header(type(message), version, correlation_id, client_id))
