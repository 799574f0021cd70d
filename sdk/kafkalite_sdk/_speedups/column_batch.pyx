# cython: nonecheck=True
"""Batches of columns, exported through the Arrow PyCapsule interface without an Arrow library.

Invariants:
1. The buffers of a batch have one reference count. Each exported array, and each of its children, has one reference:
   a consumer may move a child out of its parent, and release them in any order and in any thread.
2. An export copies nothing. A batch never changes.
3. Everything that belongs to an exported structure is allocated before it is returned: a capsule that is never used
   releases it.

Source: https://arrow.apache.org/docs/format/CDataInterface.html.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from kafkalite_sdk._speedups.arrow cimport ARROW_FLAG_NULLABLE, ArrowArray, ArrowArrayStream, ArrowSchema

__all__ = ["COLUMNS", "ColumnBatch"]

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

cdef extern from *:
    """
    static inline void kl_reference(int *count) { __atomic_add_fetch(count, 1, __ATOMIC_RELAXED); }
    static inline int kl_dereference(int *count) { return __atomic_sub_fetch(count, 1, __ATOMIC_ACQ_REL); }
    """
    void reference "kl_reference"(int *count) noexcept nogil
    int dereference "kl_dereference"(int *count) noexcept nogil


cdef char *EMPTY = b""
cdef const char *NAMES[8]
cdef const char *FORMATS[8]
NAMES[:] = [b"key", b"value", b"topic", b"partition", b"offset", b"timestamp", b"timestampType", b"headers"]
FORMATS[:] = [b"z", b"z", b"u", b"i", b"l", b"tsm:UTC", b"i", b"+l"]


cdef struct SchemaNode:       # private_data of an ArrowSchema
    ArrowSchema *children[8]
    ArrowSchema schemas[8]


cdef struct ArrayNode:        # private_data of an ArrowArray
    ColumnMemory *memory
    const void *buffers[3]
    ArrowArray *children[8]
    ArrowArray arrays[8]


cdef struct StreamNode:       # private_data of an ArrowArrayStream
    ColumnMemory *memory
    bint ended


cdef ColumnMemory *new_memory(tuple columns, bint microseconds) except NULL:
    """Empty memory with one reference."""
    cdef ColumnMemory *memory
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown or not columns or len(set(columns)) != len(columns):
        raise ValueError(f"columns is {columns!r}, expected different names of {', '.join(COLUMNS)}")
    memory = <ColumnMemory *> calloc(1, sizeof(ColumnMemory))
    if memory == NULL:
        raise MemoryError
    memory.references = 1
    memory.columns_count = len(columns)
    memory.microseconds = microseconds
    for position, name in enumerate(columns):
        number = COLUMNS.index(name)
        memory.order[<int> position] = number
        memory.wanted[<int> number] = True
    return memory


cdef tuple column_names(const ColumnMemory *memory):
    return tuple([COLUMNS[memory.order[position]] for position in range(memory.columns_count)])


cdef void free_binary(BinaryColumn *column) noexcept nogil:
    free(column.valid.at)
    free(column.offsets.at)
    free(column.data.at)


cdef void release_memory(ColumnMemory *memory) noexcept nogil:
    """Give back one reference; the last one frees the buffers."""
    if memory == NULL or dereference(&memory.references):
        return
    free_binary(&memory.key)
    free_binary(&memory.value)
    free_binary(&memory.topic)
    free_binary(&memory.header_key)
    free_binary(&memory.header_value)
    free(memory.partition.at)
    free(memory.offset.at)
    free(memory.timestamp.at)
    free(memory.timestamp_type.at)
    free(memory.headers.at)
    free(memory)


# ---- schemas --------------------------------------------------------------------------------------------------------


cdef void release_schema(ArrowSchema *schema) noexcept nogil:
    cdef ArrowSchema *child
    cdef int64_t number
    for number in range(schema.n_children):
        child = schema.children[number]
        if child.release != NULL:
            child.release(child)
    free(schema.private_data)
    schema.release = NULL


cdef SchemaNode *begin_schema(ArrowSchema *out, const char *name, const char *format, int64_t flags) noexcept nogil:
    """Fill a schema without children; NULL = no memory. The caller adds the children."""
    cdef SchemaNode *node = <SchemaNode *> calloc(1, sizeof(SchemaNode))
    cdef int number
    if node == NULL:
        return NULL
    for number in range(8):
        node.children[number] = &node.schemas[number]
    out.format = format
    out.name = name
    out.metadata = NULL
    out.flags = flags
    out.n_children = 0
    out.children = node.children
    out.dictionary = NULL
    out.release = release_schema
    out.private_data = node
    return node


cdef SchemaNode *add_schema(ArrowSchema *parent, const char *name, const char *format) noexcept nogil:
    """Add a nullable child; NULL = no memory, and the parent is released."""
    cdef SchemaNode *node = begin_schema(parent.children[parent.n_children], name, format, ARROW_FLAG_NULLABLE)
    if node == NULL:
        parent.release(parent)
        return NULL
    parent.n_children += 1
    return node


cdef int export_schema(const ColumnMemory *memory, ArrowSchema *out) noexcept nogil:
    """Fill the schema of a batch; -1 = no memory, and nothing to release."""
    cdef int position
    cdef int column
    cdef const char *format
    if begin_schema(out, b"", b"+s", 0) == NULL:
        return -1
    for position in range(memory.columns_count):
        column = memory.order[position]
        format = FORMATS[column]
        if column == TIMESTAMP_COLUMN and memory.microseconds:
            format = b"tsu:UTC"
        if add_schema(out, NAMES[column], format) == NULL:
            return -1
        if column == HEADERS_COLUMN and export_headers_schema(out.children[position]):
            out.release(out)
            return -1
    return 0


cdef int export_headers_schema(ArrowSchema *out) noexcept nogil:
    if add_schema(out, b"element", b"+s") == NULL or add_schema(out.children[0], b"key", b"u") == NULL:
        return -1
    return 0 if add_schema(out.children[0], b"value", b"z") != NULL else -1


# ---- arrays ---------------------------------------------------------------------------------------------------------


cdef void release_array(ArrowArray *array) noexcept nogil:
    cdef ArrayNode *node = <ArrayNode *> array.private_data
    cdef ArrowArray *child
    cdef int64_t number
    for number in range(array.n_children):
        child = array.children[number]
        if child.release != NULL:  # else it was moved
            child.release(child)
    release_memory(node.memory)
    free(node)
    array.release = NULL


cdef ArrayNode *begin_array(ArrowArray *out, ColumnMemory *memory, int64_t length, int buffers) noexcept nogil:
    """Fill an array without children; NULL = no memory. The caller sets the buffers behind the validity bitmap."""
    cdef ArrayNode *node = <ArrayNode *> calloc(1, sizeof(ArrayNode))
    cdef int number
    if node == NULL:
        return NULL
    reference(&memory.references)
    node.memory = memory
    for number in range(8):
        node.children[number] = &node.arrays[number]
    out.length = length
    out.null_count = 0
    out.offset = 0
    out.n_buffers = buffers
    out.n_children = 0
    out.buffers = node.buffers
    out.children = node.children
    out.dictionary = NULL
    out.release = release_array
    out.private_data = node
    return node


cdef ArrayNode *add_array(ArrowArray *parent, ColumnMemory *memory, int64_t length, int buffers) noexcept nogil:
    cdef ArrayNode *node = begin_array(parent.children[parent.n_children], memory, length, buffers)
    if node != NULL:
        parent.n_children += 1
    return node


cdef int add_binary(
    ArrowArray *parent, ColumnMemory *memory, int64_t length, const BinaryColumn *column
) noexcept nogil:
    cdef ArrayNode *node = add_array(parent, memory, length, 3)
    if node == NULL:
        return -1
    parent.children[parent.n_children - 1].null_count = column.nulls
    node.buffers[0] = column.valid.at if column.nulls else NULL
    node.buffers[1] = column.offsets.at
    node.buffers[2] = column.data.at
    return 0


cdef int add_numbers(ArrowArray *parent, ColumnMemory *memory, const Buffer *numbers) noexcept nogil:
    cdef ArrayNode *node = add_array(parent, memory, memory.rows, 2)
    if node == NULL:
        return -1
    node.buffers[1] = numbers.at
    return 0


cdef int add_headers(ArrowArray *parent, ColumnMemory *memory) noexcept nogil:
    cdef ArrayNode *node = add_array(parent, memory, memory.rows, 2)
    cdef ArrowArray *headers
    if node == NULL:
        return -1
    node.buffers[1] = memory.headers.at
    headers = parent.children[parent.n_children - 1]
    if add_array(headers, memory, memory.headers_count, 1) == NULL:
        return -1
    if add_binary(headers.children[0], memory, memory.headers_count, &memory.header_key):
        return -1
    return add_binary(headers.children[0], memory, memory.headers_count, &memory.header_value)


cdef int add_column(ArrowArray *parent, ColumnMemory *memory, int column) noexcept nogil:
    if column == KEY_COLUMN:
        return add_binary(parent, memory, memory.rows, &memory.key)
    if column == VALUE_COLUMN:
        return add_binary(parent, memory, memory.rows, &memory.value)
    if column == TOPIC_COLUMN:
        return add_binary(parent, memory, memory.rows, &memory.topic)
    if column == PARTITION_COLUMN:
        return add_numbers(parent, memory, &memory.partition)
    if column == OFFSET_COLUMN:
        return add_numbers(parent, memory, &memory.offset)
    if column == TIMESTAMP_COLUMN:
        return add_numbers(parent, memory, &memory.timestamp)
    if column == TIMESTAMP_TYPE_COLUMN:
        return add_numbers(parent, memory, &memory.timestamp_type)
    return add_headers(parent, memory)


cdef int export_array(ColumnMemory *memory, ArrowArray *out) noexcept nogil:
    """Fill the array of a batch; -1 = no memory, and nothing to release."""
    cdef int position
    if begin_array(out, memory, memory.rows, 1) == NULL:
        return -1
    for position in range(memory.columns_count):
        if add_column(out, memory, memory.order[position]):
            out.release(out)
            return -1
    return 0


# ---- streams --------------------------------------------------------------------------------------------------------


cdef int stream_schema(ArrowArrayStream *stream, ArrowSchema *out) noexcept nogil:
    return ENOMEM if export_schema((<StreamNode *> stream.private_data).memory, out) else 0


cdef int stream_next(ArrowArrayStream *stream, ArrowArray *out) noexcept nogil:
    cdef StreamNode *node = <StreamNode *> stream.private_data
    if node.ended:
        out.release = NULL
        return 0
    if export_array(node.memory, out):
        return ENOMEM
    node.ended = True
    return 0


cdef const char *stream_error(ArrowArrayStream *_stream) noexcept nogil:
    return NULL


cdef void release_stream(ArrowArrayStream *stream) noexcept nogil:
    release_memory((<StreamNode *> stream.private_data).memory)
    free(stream.private_data)
    stream.release = NULL


cdef int export_stream(ColumnMemory *memory, ArrowArrayStream *out) noexcept nogil:
    """Fill a stream of one batch; -1 = no memory, and nothing to release."""
    cdef StreamNode *node = <StreamNode *> calloc(1, sizeof(StreamNode))
    if node == NULL:
        return -1
    reference(&memory.references)
    node.memory = memory
    out.get_schema = stream_schema
    out.get_next = stream_next
    out.get_last_error = stream_error
    out.release = release_stream
    out.private_data = node
    return 0


# ---- capsules -------------------------------------------------------------------------------------------------------


cdef void end_schema_capsule(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *> PyCapsule_GetPointer(capsule, b"arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef void end_array_capsule(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *> PyCapsule_GetPointer(capsule, b"arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


cdef void end_stream_capsule(object capsule) noexcept:
    cdef ArrowArrayStream *stream = <ArrowArrayStream *> PyCapsule_GetPointer(capsule, b"arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


cdef void *allocated(size_t size) except NULL:
    cdef void *memory = calloc(1, size)
    if memory == NULL:
        raise MemoryError
    return memory


@cython.final
cdef class ColumnBatch:
    """Records as Arrow columns; see column_batch.pyi."""

    def __init__(self, *args, **kwargs):
        raise TypeError("a ColumnBatch comes from poll_columns, a ColumnReader or ColumnBuilder.finish")

    def __dealloc__(self):
        release_memory(self.memory)

    def __len__(self):
        return self.memory.rows

    @property
    def num_rows(self):
        return self.memory.rows

    @property
    def nbytes(self):
        return self.memory.nbytes

    @property
    def column_names(self):
        return column_names(self.memory)

    @property
    def value_bytes(self):
        return PyMemoryView_FromObject(self)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        cdef Buffer *data = &self.memory.value.data
        PyBuffer_FillInfo(buffer, self, data.at if data.size else EMPTY, data.size, True, flags)

    def __repr__(self):
        return f"<ColumnBatch of {self.memory.rows} records: {', '.join(self.column_names)}>"

    def __arrow_c_schema__(self):
        cdef ArrowSchema *schema = <ArrowSchema *> allocated(sizeof(ArrowSchema))
        capsule = PyCapsule_New(schema, b"arrow_schema", end_schema_capsule)
        if export_schema(self.memory, schema):
            raise MemoryError
        return capsule

    def __arrow_c_array__(self, requested_schema=None):
        cdef ArrowArray *array
        schema_capsule = self.__arrow_c_schema__()
        array = <ArrowArray *> allocated(sizeof(ArrowArray))
        capsule = PyCapsule_New(array, b"arrow_array", end_array_capsule)
        if export_array(self.memory, array):
            raise MemoryError
        return schema_capsule, capsule

    def __arrow_c_stream__(self, requested_schema=None):
        cdef ArrowArrayStream *stream = <ArrowArrayStream *> allocated(sizeof(ArrowArrayStream))
        capsule = PyCapsule_New(stream, b"arrow_array_stream", end_stream_capsule)
        if export_stream(self.memory, stream):
            raise MemoryError
        return capsule
