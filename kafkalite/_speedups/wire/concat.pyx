"""Pieces of bytes made one: what came out of a decompressor in steps, a header before its records.

Laws: small copies keep the interpreter's lock, as giving it away and getting it back beside a busy thread costs more;
large ones do not, so that none keeps the loop waiting. 16 MiB take 4 ms: the memory is touched for the first time.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.string cimport memcpy

cdef enum:
    WITHOUT_GIL = 262144  # bytes from which on a copy takes long enough for others to run meanwhile


def gathered(pieces):
    """The bytes of all pieces, one after the other."""
    cdef Py_ssize_t count = len(pieces), held = 0, total = 0, i
    cdef Py_buffer *views
    cdef char *target
    if count == 1 and type(pieces[0]) is bytes:
        return pieces[0]
    views = <Py_buffer *> PyMem_Malloc(max(count, 1) * sizeof(Py_buffer))
    if views == NULL:
        raise MemoryError()
    try:
        for i in range(count):
            PyObject_GetBuffer(pieces[i], &views[i], PyBUF_SIMPLE)
            held += 1
            total += views[i].len
        out = PyBytes_FromStringAndSize(NULL, total)
        target = PyBytes_AS_STRING(out)  # nobody else has it yet
        if total > WITHOUT_GIL:
            with nogil:
                copy_all(target, views, count)
        else:
            copy_all(target, views, count)
    finally:
        for i in range(held):
            PyBuffer_Release(&views[i])
        PyMem_Free(views)
    return out


cdef void copy_all(char *target, Py_buffer *views, Py_ssize_t count) noexcept nogil:
    """Copy each behind the one before; the caller has made room for all."""
    cdef Py_ssize_t i
    for i in range(count):
        memcpy(target, views[i].buf, views[i].len)
        target += views[i].len
