"""Decodes a large message in steps, so that 200,000 elements do not block the event loop for tens of milliseconds.

1. The message, or the error, is that of `decoder.decode` for the same bytes.
2. A step reads one field, one element of an array, or one struct that has no arrays. Fields in tag sections are read in
   one step: no request has large ones.
3. The position is in `Reader.path` instead of on the call stack. For each level, `owners` has the struct under
   construction and `arrays` its current array, or None.
"""

from cpython.buffer cimport PyBuffer_Release
from cpython.object cimport PyTypeObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport uint8_t

from kafkalite._speedups.codec.decoder cimport (
    Reader,
    array_size,
    end_message,
    end_struct,
    layout_for,
    read_value,
    start_reading,
)
from kafkalite._speedups.codec.layouts cimport ARRAY, DEPTH_MAX, Op, CompiledLayout, STRUCT, enter, put
from kafkalite._speedups.wire.held_buffer cimport HeldBuffer

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject *cls, Py_ssize_t n)

cdef enum:
    BYTES_AT_ONCE = 64 << 10      # strings cost time by their length


cdef class IncrementalDecoder:
    """Decodes one message in steps; see incremental_decoder.pyi."""

    cdef Reader reader
    cdef HeldBuffer held
    cdef bint reading             # the buffer is exported
    cdef bint failed              # a step has raised
    cdef bint exact
    cdef object cls
    cdef int version
    cdef list owners, arrays
    cdef Py_ssize_t counts[DEPTH_MAX]
    cdef readonly object message

    def __init__(self, cls, int version, body, bint exact, Py_ssize_t elements_max):
        cdef CompiledLayout layout = layout_for(cls, version)
        if self.reading:
            raise RuntimeError("a decoder reads one message")
        start_reading(&self.reader, &self.held.view, body, elements_max)
        self.reading = True
        self.cls, self.version, self.exact = cls, version, exact
        self.owners, self.arrays = [], []
        self.begin_struct(layout)

    def __dealloc__(self):
        if self.reading:
            Py_XDECREF(self.reader.view)
            PyBuffer_Release(&self.held.view)

    def advance(self, Py_ssize_t steps):
        """Take up to `steps` steps; see incremental_decoder.pyi."""
        cdef const uint8_t *until = self.reader.span.at + BYTES_AT_ONCE
        if self.failed:
            raise RuntimeError("this decoder has failed")
        self.failed = True
        while self.message is None and steps > 0 and self.reader.span.at < until:
            self.step()
            steps -= 1
        self.failed = False
        return self.message is not None

    cdef int step(self) except -1:
        cdef Reader *r = &self.reader
        cdef int level = r.path.depth - 1
        cdef CompiledLayout layout = <CompiledLayout> r.path.layout[level]
        cdef int at = r.path.at[level]
        cdef Op *op = &layout.ops[at]
        if at == layout.count:
            return self.finish_struct(layout, level)
        if self.arrays[level] is not None:
            return self.read_element(layout, op, level)
        if op.code == ARRAY:
            return self.begin_array(layout, op, level)
        put(self.owners[level], op.offset, read_value(r, op, op.code, layout.flexible, op.nullable))
        r.path.at[level] += 1
        return 0

    cdef object begin_struct(self, CompiledLayout layout):
        owner = PyType_GenericAlloc(<PyTypeObject *> layout.cls, 0)
        enter(&self.reader.path, layout)
        self.owners.append(owner)
        self.arrays.append(None)
        return owner

    cdef int finish_struct(self, CompiledLayout layout, int level) except -1:
        owner = self.owners[level]
        end_struct(&self.reader, layout, owner, level)
        self.owners.pop()
        self.arrays.pop()
        if level:
            self.reader.path.element[level - 1] += 1
        else:
            end_message(&self.reader, self.cls, self.version, self.exact)
            self.message = owner
        return 0

    cdef int begin_array(self, CompiledLayout layout, Op *op, int level) except -1:
        cdef Py_ssize_t n = array_size(&self.reader, op, layout.flexible)
        cdef list array = [] if n >= 0 else None
        put(self.owners[level], op.offset, array)
        if n <= 0:
            self.reader.path.at[level] += 1
            return 0
        self.arrays[level] = array
        self.counts[level] = n
        self.reader.path.element[level] = 0
        return 0

    cdef int read_element(self, CompiledLayout layout, Op *op, int level) except -1:
        cdef Reader *r = &self.reader
        cdef list array = self.arrays[level]
        if r.path.element[level] == self.counts[level]:
            r.path.element[level] = -1
            r.path.at[level] += 1
            self.arrays[level] = None
        elif op.element == STRUCT and (<CompiledLayout> op.layout).has_arrays:
            array.append(self.begin_struct(<CompiledLayout> op.layout))
        else:
            array.append(read_value(r, op, op.element, layout.flexible, False))
            r.path.element[level] += 1
        return 0
