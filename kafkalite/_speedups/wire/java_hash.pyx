"""The hash by which Kafka assigns group ids to the partitions of `__consumer_offsets`.

Source: String.hashCode of Java, and Utils.abs of Apache Kafka.
"""

from libc.stdint cimport INT32_MAX, int32_t, uint32_t

cdef extern from "Python.h":
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    uint32_t PyUnicode_READ_CHAR(object text, Py_ssize_t index)

cdef enum:
    SURROGATES = 0x10000


def java_hash(str text not None):
    """String.hashCode of Java: a signed 32-bit number. See the .pyi."""
    cdef uint32_t total = 0, unit
    cdef Py_ssize_t i
    for i in range(PyUnicode_GET_LENGTH(text)):
        unit = PyUnicode_READ_CHAR(text, i)
        if unit >= SURROGATES:
            unit -= SURROGATES
            total = total * 31 + (0xD800 | unit >> 10)
            unit = 0xDC00 | (unit & 0x3FF)
        total = total * 31 + unit
    return 0 if total == <uint32_t> INT32_MAX + 1 else <int32_t> total
