"""Reads strings of messages and stored records: a length, then UTF-8.

Source: KIP-482 (compact strings), `MessageUtil` and the generated readers of Apache Kafka.
"""

from libc.stdint cimport uint8_t

from kafkalite._speedups.wire.wire cimport Span, take, take_i16, take_uvarint

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char *p, Py_ssize_t n, const char *errors)

cdef enum:
    STRING_MAX = 32767            # bytes, in all versions as in Kafka: a string that was read can be written


cdef struct Text:
    const uint8_t *at             # in the bytes that were read; NULL = null
    Py_ssize_t size               # -1 = null


cdef inline Text take_text(Span *span, bint compact) noexcept nogil:
    """A nullable string. A length above the bytes left or STRING_MAX fails the span."""
    cdef Text text
    text.size = <Py_ssize_t> take_uvarint(span, 5) - 1 if compact else take_i16(span)
    text.at = NULL
    if text.size < -1 or text.size > STRING_MAX:
        span.left = -1
    elif text.size >= 0:
        text.at = take(span, text.size)
    if span.left < 0:
        text.size = -1
    return text


cdef inline str decoded(Text text):
    """The characters, None for null. Raises UnicodeDecodeError."""
    return None if text.at == NULL else PyUnicode_DecodeUTF8(<const char *> text.at, text.size, NULL)
