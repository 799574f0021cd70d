"""Finds the characters of UTF-8, and the bytes that are none."""

from libc.stdint cimport uint8_t


cdef inline bint is_continuation(uint8_t byte) noexcept nogil:
    return byte & 0xc0 == 0x80


cdef inline int sequence_of(const uint8_t *p, Py_ssize_t left, bint *valid) noexcept nogil:
    """Length of the character at `p`, or of the invalid bytes that become one U+FFFD (Unicode 15, section 3.9)."""
    cdef uint8_t lead = p[0]
    cdef uint8_t low = 0x80
    cdef uint8_t high = 0xbf
    cdef int length
    cdef int at
    valid[0] = True
    if lead < 0x80:
        return 1
    length = 2 if lead < 0xe0 else 3 if lead < 0xf0 else 4
    if lead == 0xe0:
        low = 0xa0
    elif lead == 0xed:
        high = 0x9f
    elif lead == 0xf0:
        low = 0x90
    elif lead == 0xf4:
        high = 0x8f
    if lead < 0xc2 or lead > 0xf4 or left < 2 or not low <= p[1] <= high:
        valid[0] = False
        return 1
    for at in range(2, length):
        if at >= left or not is_continuation(p[at]):
            valid[0] = False
            return at
    return length
