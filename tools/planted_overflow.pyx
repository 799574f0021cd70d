"""One heap overflow on purpose, built only with AddressSanitizer: a test proves with it that the sanitizer is loaded."""

from libc.stdlib cimport free, malloc


def read_past_the_end(Py_ssize_t size) -> int:
    """Read the byte behind a block of `size` bytes; the sanitizer ends the process here."""
    cdef char *block = <char *> malloc(size)
    if block == NULL:
        raise MemoryError
    block[0] = 1
    cdef int value = block[size]
    free(block)
    return value
