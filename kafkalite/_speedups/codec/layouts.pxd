"""Compiled layouts of message classes, used by decoder and encoder; see layouts.pyx."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, uint32_t

cdef enum:
    BOOLEAN = 1
    INT8
    INT16
    UINT16
    INT32
    UINT32
    INT64
    FLOAT64
    UUID
    STRING
    BINARY
    RECORDS
    ARRAY
    STRUCT

    DEPTH_MAX = 8                 # structs inside structs; Kafka's own messages need 4
    TAGS_MAX = 64                 # tagged fields of one struct; Kafka's own messages need 5
    IN_TAGS = 1 << 20             # the tag section itself, instead of the index of a field


cdef struct Op:
    int code
    int element                   # of an array: the code of its elements
    bint nullable
    int tag
    Py_ssize_t offset             # of the slot in the object
    Py_ssize_t element_min        # of an array: smallest size of an element in bytes
    PyObject *layout              # of a struct, or of an array of structs; owned by CompiledLayout.keep
    PyObject *fallback            # default; owned by CompiledLayout.keep


cdef struct MessagePath:
    # The current field, for the path in an error. All pointers are borrowed.
    int depth
    PyObject *layout[DEPTH_MAX]
    int at[DEPTH_MAX]                # index of the field, -1 - index for a tagged one, IN_TAGS
    Py_ssize_t element[DEPTH_MAX]    # index in the array, -1 if in none


cdef class CompiledLayout:
    cdef object cls
    cdef bint flexible
    cdef bint has_arrays          # among its untagged fields
    cdef int count, tagged_count, absent_count
    cdef Op *ops
    cdef Op *tagged
    cdef Op *absent
    cdef tuple names, tagged_names
    cdef list keep
    cdef int set_op(self, Op *op, name, fallback) except -1
    cdef Op *compile(self, slots, int depth) except NULL


cdef class StructBase:
    pass


cdef CompiledLayout compiled_layout(cls, int version)
cdef str path_of(const MessagePath *path)
cdef str kind_name(int code)


cdef inline PyObject **slot_at(object owner, Py_ssize_t offset) noexcept:
    return <PyObject **> (<char *> <PyObject *> owner + offset)


cdef inline int put(object owner, Py_ssize_t offset, object value) noexcept:
    cdef PyObject **slot = slot_at(owner, offset)
    cdef PyObject *old = slot[0]
    Py_INCREF(value)
    slot[0] = <PyObject *> value
    Py_XDECREF(old)
    return 0


cdef inline int enter(MessagePath *path, CompiledLayout layout) noexcept:
    """Enter a struct; return its level. Layouts are not nested deeper than DEPTH_MAX."""
    cdef int level = path.depth
    path.layout[level] = <PyObject *> layout
    path.at[level] = 0
    path.element[level] = -1
    path.depth = level + 1
    return level
