"""Checks of what users pass to the hot paths."""

from libc.stdint cimport int64_t


cdef str as_text(value, str name)
cdef int64_t as_integer(value, str name) except? -1
