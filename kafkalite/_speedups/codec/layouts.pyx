"""Compiles message classes into C arrays, one per version, and defines the base class of all structs.

1. A layout is compiled on first use from the `Layout` of `protocol/schema.py` and kept until the process ends.
2. Slots are accessed by the offset of their member descriptor, taken from a slot of exactly this class. Decoder and
   encoder check `type(x) is layout.cls` before they access one.
"""

cimport cython

from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyTypeObject
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE, PyList_New
from libc.stdlib cimport calloc, free

from types import MemberDescriptorType

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject *cls, Py_ssize_t n)

cdef extern from *:
    """
    #include <structmember.h>
    static Py_ssize_t kl_slot_offset(PyObject *d) { return ((PyMemberDescrObject *) d)->d_member->offset; }
    """
    Py_ssize_t slot_offset "kl_slot_offset"(object descriptor) noexcept

KINDS = {
    "boolean": BOOLEAN, "int8": INT8, "int16": INT16, "uint16": UINT16, "int32": INT32, "uint32": UINT32,
    "int64": INT64, "float64": FLOAT64, "uuid": UUID, "string": STRING, "binary": BINARY, "records": RECORDS,
    "array": ARRAY, "struct": STRUCT,
}
KIND_NAMES = {code: name for name, code in KINDS.items()}


cdef str kind_name(int code):
    return <str> KIND_NAMES[code]


cdef Py_ssize_t offset_of(cls, name) except -1:
    descriptor = getattr(cls, name)
    if type(descriptor) is not MemberDescriptorType:
        raise TypeError(f"{cls.__qualname__}.{name} is not a slot")
    return slot_offset(descriptor)


@cython.final
cdef class CompiledLayout:
    """The fields of one struct in one version, in wire order."""

    def __cinit__(self, layout, int depth=0):
        if depth >= DEPTH_MAX:
            raise TypeError(f"{layout.cls.__qualname__}: structs are nested deeper than {DEPTH_MAX}")
        if len(layout.tagged) > TAGS_MAX:
            raise TypeError(f"{layout.cls.__qualname__}: more than {TAGS_MAX} tagged fields")
        self.cls = layout.cls
        if not issubclass(self.cls, StructBase):
            raise TypeError(f"{self.cls!r} is no struct")
        self.flexible = layout.flexible
        self.keep = []
        self.names = tuple([slot.name for slot in layout.fields])
        self.tagged_names = tuple([slot.name for slot in layout.tagged])
        self.ops = self.compile(layout.fields, depth)
        self.count = len(layout.fields)
        self.has_arrays = any([slot.wire.element is not None for slot in layout.fields])
        self.tagged = self.compile(layout.tagged, depth)
        self.tagged_count = len(layout.tagged)
        self.absent = <Op *> calloc(len(layout.absent) + 1, sizeof(Op))
        if self.absent == NULL:
            raise MemoryError
        for name, value in layout.absent:
            self.set_op(&self.absent[self.absent_count], name, value)
            self.absent_count += 1

    def __dealloc__(self):
        free(self.ops)
        free(self.tagged)
        free(self.absent)

    cdef int set_op(self, Op *op, name, fallback) except -1:
        op.offset = offset_of(self.cls, name)
        self.keep.append(fallback)
        op.fallback = <PyObject *> fallback
        return 0

    cdef Op *compile(self, slots, int depth) except NULL:
        cdef Op *ops = <Op *> calloc(len(slots) + 1, sizeof(Op))
        cdef int i
        if ops == NULL:
            raise MemoryError
        try:
            for i, slot in enumerate(slots):
                self.set_op(&ops[i], slot.name, slot.default)
                ops[i].code = KINDS[slot.wire.kind]
                ops[i].nullable = slot.nullable
                ops[i].tag = slot.tag
                ops[i].element_min = slot.element_size_min
                if slot.wire.element is not None:
                    ops[i].element = KINDS[slot.wire.element.kind]
                if slot.struct is not None:
                    layout = CompiledLayout(slot.struct, depth + 1)
                    self.keep.append(layout)
                    ops[i].layout = <PyObject *> layout
        except BaseException:
            free(ops)
            raise
        return ops


cdef dict layouts = {}          # message class -> list of CompiledLayout or None, indexed by version


cdef CompiledLayout compiled_layout(cls, int version):
    """The layout of a message in a version; None if it has no such version."""
    cdef PyObject *found = PyDict_GetItem(layouts, cls)
    cdef list by_version
    if found != NULL:
        by_version = <list> found
        if 0 <= version < PyList_GET_SIZE(by_version) and by_version[version] is not None:
            return <CompiledLayout> by_version[version]
    declared = cls.__layout__(version)
    if declared is None:
        return None
    by_version = layouts.setdefault(cls, [None] * (cls.versions[1] + 1))
    layout = CompiledLayout(declared)
    by_version[version] = layout
    return layout


cdef str path_of(const MessagePath *path):
    """The path of the current field, such as `topics[3].partitions[0].records`."""
    cdef int i
    cdef list steps = []
    for i in range(path.depth):
        layout = <CompiledLayout> path.layout[i]
        if path.at[i] == IN_TAGS:
            steps.append("tags")
            continue
        step = layout.names[path.at[i]] if path.at[i] >= 0 else layout.tagged_names[-1 - path.at[i]]
        steps.append(f"{step}[{path.element[i]}]" if path.element[i] >= 0 else step)
    return ".".join(steps)


cdef dict shapes = {}         # struct class -> list of (name, slot offset, default)


cdef list shape_of(cls):
    cdef PyObject *found = PyDict_GetItem(shapes, cls)
    if found != NULL:
        return <list> found
    shape = [(each.name, offset_of(cls, each.name), each.default) for each in cls.__fields__]
    shapes[cls] = shape
    return shape


cdef class StructBase:
    """Base class of all structs: construction from keywords with defaults, comparison by value."""

    def __init__(self, **values):
        cdef Py_ssize_t used = 0
        cdef tuple each
        cdef list shape = shape_of(type(self))
        cdef PyObject *given
        for each in shape:
            given = PyDict_GetItem(values, each[0])
            if given != NULL:
                used += 1
                put(self, <Py_ssize_t> each[1], <object> given)
            elif PyList_CheckExact(each[2]):
                put(self, <Py_ssize_t> each[1], PyList_New(0))
            else:
                put(self, <Py_ssize_t> each[1], each[2])
        if used != len(values):
            unknown = ", ".join(sorted(set(values) - {each[0] for each in shape}))
            raise TypeError(f"{type(self).__qualname__} has no field {unknown}")

    @classmethod
    def of(cls, *values):
        """Build a struct from all its values in order; see layouts.pyi."""
        cdef list shape = shape_of(cls)
        cdef object built
        cdef Py_ssize_t i
        if len(values) != len(shape):
            raise TypeError(f"{cls.__qualname__} has {len(shape)} fields, not {len(values)}")
        built = PyType_GenericAlloc(<PyTypeObject *> cls, 0)
        for i in range(len(values)):
            put(built, <Py_ssize_t> (<tuple> shape[i])[1], values[i])
        return built

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        return all([getattr(self, each[0]) == getattr(other, each[0]) for each in shape_of(type(self))])

    __hash__ = None

    def __reduce__(self):
        return rebuild, (type(self), [getattr(self, each[0]) for each in shape_of(type(self))])


def rebuild(cls, list values):
    """Build a struct from all its values in order; for copying and pickling."""
    return cls(**{each[0]: value for each, value in zip(shape_of(cls), values, strict=True)})
