"""Checks of what users pass to the hot paths, and the exact types in place of their subclasses."""

from cpython.number cimport PyNumber_Index
from cpython.unicode cimport PyUnicode_FromObject
from libc.stdint cimport int64_t

from kafkalite._speedups.records.batch_builder cimport as_bytes

__all__ = ["nullable_bytes"]


cdef str as_text(value, str name):
    """An exact str; a value of a subclass, such as StrEnum, is converted. Raises TypeError for another type."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, expected a str")
    return PyUnicode_FromObject(value)


cdef int64_t as_integer(value, str name) except? -1:
    """An integer of 64 bits. Raises TypeError for another type, ValueError for a larger number."""
    try:
        return PyNumber_Index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, expected an integer") from None
    except OverflowError:
        raise ValueError(f"{name} is {value}, expected an integer of 64 bits") from None


def nullable_bytes(value):
    """The bytes of a key or value; see arguments.pyi."""
    return None if value is None else as_bytes(value)
