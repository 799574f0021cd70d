"""The memory of a column batch: one reference count for all its buffers, shared by the arrays that are exported."""

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    KEY_COLUMN = 0
    VALUE_COLUMN = 1
    TOPIC_COLUMN = 2
    PARTITION_COLUMN = 3
    OFFSET_COLUMN = 4
    TIMESTAMP_COLUMN = 5
    TIMESTAMP_TYPE_COLUMN = 6
    HEADERS_COLUMN = 7
    COLUMNS_COUNT = 8


cdef struct Buffer:
    uint8_t *at
    Py_ssize_t size
    Py_ssize_t capacity


cdef struct BinaryColumn:
    # A column of bytes or text in Arrow's layout.
    Buffer valid              # a bit per value, 1 = not null
    Buffer offsets            # int32, one more than values
    Buffer data
    int64_t nulls


cdef struct ColumnMemory:
    int references
    int columns_count
    uint8_t order[8]          # the column number of each position
    bint wanted[8]            # by column number
    bint microseconds
    int64_t rows
    int64_t nbytes            # of the records
    int64_t headers_count
    BinaryColumn key
    BinaryColumn value
    BinaryColumn topic
    BinaryColumn header_key
    BinaryColumn header_value
    Buffer partition
    Buffer offset
    Buffer timestamp
    Buffer timestamp_type
    Buffer headers            # int32 offsets


cdef ColumnMemory *new_memory(tuple columns, bint microseconds) except NULL
cdef void release_memory(ColumnMemory *memory) noexcept nogil
cdef tuple column_names(const ColumnMemory *memory)


cdef class ColumnBatch:
    cdef ColumnMemory *memory
