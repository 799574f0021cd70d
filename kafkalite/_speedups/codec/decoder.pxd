"""The decoder of messages for other extensions; see decoder.pyx for the invariants."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t

from kafkalite._speedups.codec.layouts cimport Op, MessagePath, CompiledLayout
from kafkalite._speedups.wire.wire cimport Span


cdef struct Reader:
    Span span
    const uint8_t *start
    Py_ssize_t elements_left
    PyObject *source          # what is read from; borrowed
    PyObject *view            # a memoryview of it, made when the first records are met; owned
    PyObject *header          # name of the header being read; NULL in a body
    MessagePath path


cdef class RequestHeader:
    cdef readonly int api_key
    cdef readonly int api_version
    cdef readonly int correlation_id
    cdef readonly str client_id
    cdef readonly object body
    cpdef release(self)


cpdef RequestHeader read_request_header(frame)
cpdef object decode(cls, int version, body, bint exact=*, Py_ssize_t elements_max=*)
cpdef bytes response_header(cls, int version, int correlation_id)

# For `incremental_decoder`, which walks a message with a stack of its own:
cdef int start_reading(Reader *r, Py_buffer *buffer, object source, Py_ssize_t elements_max) except -1
cdef Py_ssize_t array_size(Reader *r, const Op *op, bint flexible) except -2
cdef object read_value(Reader *r, const Op *op, int code, bint flexible, bint nullable)
cdef int end_struct(Reader *r, CompiledLayout layout, object owner, int level) except -1
cdef int end_message(Reader *r, cls, int version, bint exact) except -1
cdef CompiledLayout layout_for(cls, int version)
