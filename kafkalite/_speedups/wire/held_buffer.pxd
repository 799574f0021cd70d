"""A buffer that an object holds for its lifetime.

Cython shows `obj` of a Py_buffer attribute to the garbage collector, not of one in a struct. If it were shown, a
memoryview in a cycle of garbage could be cleared while the object still holds its buffer, and the process would crash
when the object releases it (`memory_clear` in memoryobject.c of CPython). Bytes and memoryviews of them are in no cycle
by themselves, so nothing is kept for ever.
"""


cdef struct HeldBuffer:
    Py_buffer view
