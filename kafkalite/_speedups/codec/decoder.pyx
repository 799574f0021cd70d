"""Decodes Kafka messages and headers of requests and responses.

1. Every byte is read through `need`, `need_uvarint` and `need_size`, which raise a DecodeError with the rule, the
   position and the field. A length is compared with the bytes left before memory is allocated for it.
2. `records` are memoryview slices of the input; all other values are copies, so that the input may be reused.
3. Unknown tagged fields are skipped; all tagged fields count as elements. Bytes behind the message are an error unless
   the caller allows them.
4. An error leaks nothing: a Python variable owns each object under construction.

The pure twin is `tests/oracles/codec.py`.
"""

cimport cython

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_CheckExact, PyList_New, PyList_SET_ITEM
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_FromObject
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkalite._speedups.codec.layouts cimport (
    ARRAY,
    BINARY,
    BOOLEAN,
    IN_TAGS,
    INT8,
    INT16,
    INT32,
    INT64,
    Op,
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
    put,
)
from kafkalite._speedups.wire.strings cimport STRING_MAX
from kafkalite._speedups.wire.wire cimport load_u16, load_u32, load_u64, store_u32, take, take_uvarint

from kafkalite.errors import DecodeError

cdef extern from *:
    """
    static double kl_to_double(uint64_t v) { double d; memcpy(&d, &v, 8); return d; }
    """
    double to_double "kl_to_double"(uint64_t v) noexcept

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject *cls, Py_ssize_t n)
    object PyUnicode_DecodeUTF8(const char *p, Py_ssize_t n, const char *errors)
    object PyLong_FromLong(long v)
    object PyLong_FromLongLong(long long v)
    object PyFloat_FromDouble(double v)
    object PySlice_New(object start, object stop, object step)
    object PyObject_GetItem(object o, object key)

cdef enum:
    HEADER_TAGS_MAX = 1000                     # of a request; Apache Kafka 4.3 defines one

cdef Py_ssize_t elements_limit = 4_000_000     # of a message, if the caller sets no limit


def set_elements_max(Py_ssize_t count):
    """Set how many array elements one message may hold in all (default 4 million); more are an error when decoding."""
    global elements_limit
    elements_limit = count


cdef int fail(Reader *r, str kind, str detail) except -1:
    path = path_of(&r.path) if r.header == NULL else <object> r.header
    raise DecodeError(kind, detail, r.span.at - r.start, path)


cdef inline const uint8_t *need(Reader *r, Py_ssize_t n) except NULL:
    """Consume `n` bytes, 0 <= n."""
    cdef Py_ssize_t left = r.span.left
    cdef const uint8_t *p = take(&r.span, n)
    if p == NULL:
        r.span.left = left
        fail(r, "truncated", f"{n} bytes are needed, {left} are left")
    return p


cdef inline uint32_t need_uvarint(Reader *r) except? 0xffffffff:
    cdef const uint8_t *at = r.span.at
    cdef Py_ssize_t left = r.span.left
    cdef uint64_t value
    if left > 0 and at[0] < 0x80:  # one byte, the common case
        return take(&r.span, 1)[0]
    value = take_uvarint(&r.span, 5)
    if r.span.left < 0:
        r.span.left = left
        if left < 5:
            fail(r, "truncated", "the bytes end inside a varint")
        fail(r, "varint", "a varint is longer than 5 bytes")
    if value > 0xffffffff:
        r.span.at = at
        r.span.left = left
        fail(r, "varint", "a varint exceeds 32 bits")
    return <uint32_t> value


cdef Py_ssize_t need_size(Reader *r, int code, bint flexible, bint nullable) except -2:
    """Read a length; -1 = null. Fails for a null that is not allowed."""
    cdef int64_t n
    if flexible:
        n = <int64_t> need_uvarint(r) - 1
    elif code == STRING:
        n = <int16_t> load_u16(need(r, 2))
    else:
        n = <int32_t> load_u32(need(r, 4))
    if n < -1:
        fail(r, "negative length", f"a {kind_name(code)} has length {n}")
    if n == -1 and not nullable:
        fail(r, "null", f"a {kind_name(code)} that may not be null is null")
    if n > STRING_MAX and code == STRING:
        fail(r, "string length", f"a string of {n} bytes is too long")
    return n


cdef object read_records(Reader *r, Py_ssize_t n):
    cdef Py_ssize_t begin = r.span.at - r.start
    need(r, n)
    if r.view == NULL:
        view = <object> r.source
        if not PyMemoryView_Check(view):
            view = PyMemoryView_FromObject(view)
        Py_INCREF(view)
        r.view = <PyObject *> view
    return PyObject_GetItem(<object> r.view, PySlice_New(begin, begin + n, None))


cdef object read_string(Reader *r, Py_ssize_t n):
    cdef Py_ssize_t left = r.span.left
    cdef const uint8_t *p = need(r, n)
    try:
        return PyUnicode_DecodeUTF8(<const char *> p, n, NULL)
    except UnicodeDecodeError as error:
        r.span.at = p
        r.span.left = left
        fail(r, "utf-8", f"byte {error.start} of the string is not UTF-8")


cdef Py_ssize_t array_size(Reader *r, const Op *op, bint flexible) except -2:
    """Read the number of elements of an array and count them; -1 = null."""
    cdef Py_ssize_t n = need_size(r, ARRAY, flexible, op.nullable)
    if n < 0:
        return n
    if n > r.span.left // op.element_min:
        fail(r, "array length", f"{n} elements do not fit into the {r.span.left} bytes left")
    if n > r.elements_left:
        fail(r, "array length", "the message has more array elements than allowed")
    r.elements_left -= n
    return n


cdef object read_array(Reader *r, const Op *op, bint flexible):
    cdef Py_ssize_t n = array_size(r, op, flexible)
    cdef Py_ssize_t i
    cdef int level = r.path.depth - 1
    cdef list found
    if n < 0:
        return None
    found = PyList_New(n)
    for i in range(n):
        r.path.element[level] = i
        value = read_value(r, op, op.element, flexible, False)
        Py_INCREF(value)
        PyList_SET_ITEM(found, i, value)
    r.path.element[level] = -1
    return found


cdef object read_value(Reader *r, const Op *op, int code, bint flexible, bint nullable):
    cdef Py_ssize_t n
    cdef int presence
    if code == INT32:
        return PyLong_FromLong(<int32_t> load_u32(need(r, 4)))
    elif code == INT64:
        return PyLong_FromLongLong(<int64_t> load_u64(need(r, 8)))
    elif code == INT16:
        return PyLong_FromLong(<int16_t> load_u16(need(r, 2)))
    elif code == STRING:
        n = need_size(r, code, flexible, nullable)
        return None if n < 0 else read_string(r, n)
    elif code == ARRAY:
        return read_array(r, op, flexible)
    elif code == STRUCT:
        if nullable:
            presence = <signed char> need(r, 1)[0]
            if presence == -1:
                return None
            if presence != 1:
                fail(r, "presence", f"a nullable struct begins with {presence}, not with -1 or 1")
        return read_struct(r, <CompiledLayout> op.layout)
    elif code == RECORDS:
        n = need_size(r, code, flexible, nullable)
        return None if n < 0 else read_records(r, n)
    elif code == INT8:
        return PyLong_FromLong(<signed char> need(r, 1)[0])
    elif code == BOOLEAN:
        return need(r, 1)[0] != 0
    elif code == UUID:
        return PyBytes_FromStringAndSize(<const char *> need(r, 16), 16)
    elif code == BINARY:
        n = need_size(r, code, flexible, nullable)
        return None if n < 0 else PyBytes_FromStringAndSize(<const char *> need(r, n), n)
    elif code == UINT16:
        return PyLong_FromLong(load_u16(need(r, 2)))
    elif code == UINT32:
        return PyLong_FromLongLong(load_u32(need(r, 4)))
    else:
        return PyFloat_FromDouble(to_double(load_u64(need(r, 8))))


cdef inline int put_default(object owner, const Op *op) except -1:
    cdef object value = <object> op.fallback
    if PyList_CheckExact(value):
        value = PyList_New(0)
    elif op.nullable and op.code == STRUCT:
        value = (<CompiledLayout> op.layout).cls()
    return put(owner, op.offset, value)


cdef object read_struct(Reader *r, CompiledLayout layout):
    cdef object owner = PyType_GenericAlloc(<PyTypeObject *> layout.cls, 0)
    cdef int level = enter(&r.path, layout)
    cdef int i
    cdef Op *op
    for i in range(layout.count):
        op = &layout.ops[i]
        r.path.at[level] = i
        put(owner, op.offset, read_value(r, op, op.code, layout.flexible, op.nullable))
    end_struct(r, layout, owner, level)
    return owner


cdef int end_struct(Reader *r, CompiledLayout layout, object owner, int level) except -1:
    """Read the tag section of a struct, and return to the struct around it."""
    cdef int i
    for i in range(layout.absent_count):
        put_default(owner, &layout.absent[i])
    if layout.flexible:
        for i in range(layout.tagged_count):
            put_default(owner, &layout.tagged[i])
        r.path.at[level] = IN_TAGS
        if r.span.left > 0 and r.span.at[0] == 0:
            take(&r.span, 1)
        else:
            read_tags(r, layout, owner, level)
    r.path.depth = level
    return 0


cdef int read_tags(Reader *r, CompiledLayout layout, object owner, int level) except -1:
    """Read a tag section; unknown tags are skipped. In a header, layout and owner are None."""
    cdef uint32_t count = need_uvarint(r)
    cdef int64_t previous = -1
    cdef uint32_t tag, size
    cdef int i
    if count > r.elements_left:
        fail(r, "tag count", f"{count} tagged fields are more than allowed")
    r.elements_left -= count
    while count:
        count -= 1
        tag = need_uvarint(r)
        if <int64_t> tag <= previous:
            fail(r, "tag order", f"tag {tag} follows tag {previous}")
        previous = tag
        size = need_uvarint(r)
        if size > r.span.left:
            fail(r, "truncated", f"tag {tag} has {size} bytes, {r.span.left} are left")
        i = tag_index(layout, tag)
        if i < 0:
            need(r, size)
        else:
            r.path.at[level] = -1 - i
            read_tagged(r, &layout.tagged[i], owner, size)
            r.path.at[level] = IN_TAGS
    return 0


cdef int tag_index(CompiledLayout layout, uint32_t tag) noexcept:
    cdef int i
    if layout is not None:
        for i in range(layout.tagged_count):
            if <uint32_t> layout.tagged[i].tag == tag:
                return i
    return -1


cdef int read_tagged(Reader *r, const Op *op, object owner, Py_ssize_t size) except -1:
    """Read one known tagged field of exactly `size` bytes; the caller has checked them."""
    cdef Py_ssize_t after = r.span.left - size
    r.span.left = size
    if op.code == STRUCT and op.nullable:
        put(owner, op.offset, read_tagged_struct(r, op))
    else:
        put(owner, op.offset, read_value(r, op, op.code, True, op.nullable))
    if r.span.left:
        fail(r, "tag size", f"{r.span.left} of {size} bytes are left over")
    r.span.left = after
    return 0


cdef object read_tagged_struct(Reader *r, const Op *op):
    """A nullable tagged struct: its presence is a varint, 0 = null."""
    cdef uint32_t presence = need_uvarint(r)
    if presence == 0:
        return None
    if presence != 1:
        fail(r, "presence", f"a nullable tagged struct begins with {presence}, not with 0 or 1")
    return read_struct(r, <CompiledLayout> op.layout)


cdef int start_reading(Reader *r, Py_buffer *buffer, object source, Py_ssize_t elements_max) except -1:
    PyObject_GetBuffer(source, buffer, PyBUF_SIMPLE)
    r.span.at = r.start = <const uint8_t *> buffer.buf
    r.span.left = buffer.len
    r.elements_left = elements_max if elements_max >= 0 else elements_limit
    r.source = <PyObject *> source
    r.view = NULL
    r.header = NULL
    r.path.depth = 0
    return 0


cdef CompiledLayout layout_for(cls, int version):
    """The layout of a message in a version. Raises DecodeError for an unknown version."""
    cdef CompiledLayout layout = compiled_layout(cls, version)
    if layout is None:
        raise DecodeError("version", f"{cls.__name__} has no version {version}")
    return layout


cdef int end_message(Reader *r, cls, int version, bint exact) except -1:
    if exact and r.span.left:
        fail(r, "trailing bytes", f"{r.span.left} bytes follow the end of {cls.__name__} v{version}")
    return 0


cpdef object decode(cls, int version, body, bint exact=True, Py_ssize_t elements_max=-1):
    """Decode a whole message; see decoder.pyi."""
    cdef Reader r
    cdef Py_buffer buffer
    cdef CompiledLayout layout = layout_for(cls, version)
    start_reading(&r, &buffer, body, elements_max)
    try:
        message = read_struct(&r, layout)
        end_message(&r, cls, version, exact)
        return message
    finally:
        Py_XDECREF(r.view)
        PyBuffer_Release(&buffer)


# ---- headers --------------------------------------------------------------------------------------------------------

cdef dict flexible_since = {}     # API key -> first flexible version of the request


def register_request(int api_key, int flexible):
    """Register the first flexible version of a request: from it on its header has version 2."""
    flexible_since[api_key] = flexible


@cython.final
@cython.freelist(64)
@cython.auto_pickle(False)
cdef class RequestHeader:
    """The header of a request, and its body as a memoryview slice of the frame."""

    cpdef release(self):
        """Drop the body, which keeps the whole frame in memory. See decoder.pyi."""
        self.body = None


cpdef RequestHeader read_request_header(frame):
    """Read header version 1 or 2, according to key and version; see decoder.pyi."""
    cdef Reader r
    cdef Py_buffer buffer
    cdef RequestHeader header = RequestHeader.__new__(RequestHeader)
    cdef Py_ssize_t n
    start_reading(&r, &buffer, frame, HEADER_TAGS_MAX)
    r.header = <PyObject *> "header"
    try:
        header.api_key = <int16_t> load_u16(need(&r, 2))
        header.api_version = <int16_t> load_u16(need(&r, 2))
        header.correlation_id = <int32_t> load_u32(need(&r, 4))
        n = need_size(&r, STRING, False, True)
        header.client_id = None if n < 0 else read_string(&r, n)
        since = flexible_since.get(header.api_key)
        if since is not None and header.api_version >= <int> since:
            read_tags(&r, None, None, 0)
        n = r.span.left
        header.body = read_records(&r, n)
        return header
    finally:
        Py_XDECREF(r.view)
        PyBuffer_Release(&buffer)


cpdef bytes response_header(cls, int version, int correlation_id):
    """The header of a response: version 1 (with an empty tag section) if the class declares it, else version 0."""
    cdef uint8_t header[5]
    store_u32(header, <uint32_t> correlation_id)
    header[4] = 0
    return PyBytes_FromStringAndSize(<char *> header, 5 if version >= <int> cls.header_flexible else 4)


def read_response_header(cls, int version, frame):
    """Read the header of an answer; see decoder.pyi."""
    cdef Reader r
    cdef Py_buffer buffer
    start_reading(&r, &buffer, frame, -1)
    r.header = <PyObject *> "header"
    try:
        correlation_id = <int32_t> load_u32(need(&r, 4))
        if version >= <int> cls.header_flexible:
            read_tags(&r, None, None, 0)
        return correlation_id, read_records(&r, r.span.left)
    finally:
        Py_XDECREF(r.view)
        PyBuffer_Release(&buffer)
