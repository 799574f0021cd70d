"""Reads what the Arrow PyCapsule interface exports, through ctypes; it runs on the sanitizer build, too.

Source: https://arrow.apache.org/docs/format/CDataInterface.html.
"""

import ctypes
from collections.abc import Callable
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from itertools import pairwise
from typing import Any


class ArrowSchema(Structure):
    pass


class ArrowArray(Structure):
    pass


class ArrowArrayStream(Structure):
    pass


ArrowSchema._fields_ = [
    ("format", c_char_p),
    ("name", c_char_p),
    ("metadata", c_char_p),
    ("flags", c_int64),
    ("n_children", c_int64),
    ("children", POINTER(POINTER(ArrowSchema))),
    ("dictionary", POINTER(ArrowSchema)),
    ("release", ctypes.CFUNCTYPE(None, POINTER(ArrowSchema))),
    ("private_data", c_void_p),
]
ArrowArray._fields_ = [
    ("length", c_int64),
    ("null_count", c_int64),
    ("offset", c_int64),
    ("n_buffers", c_int64),
    ("n_children", c_int64),
    ("buffers", POINTER(c_void_p)),
    ("children", POINTER(POINTER(ArrowArray))),
    ("dictionary", POINTER(ArrowArray)),
    ("release", ctypes.CFUNCTYPE(None, POINTER(ArrowArray))),
    ("private_data", c_void_p),
]
ArrowArrayStream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(c_int, POINTER(ArrowArrayStream), POINTER(ArrowSchema))),
    ("get_next", ctypes.CFUNCTYPE(c_int, POINTER(ArrowArrayStream), POINTER(ArrowArray))),
    ("get_last_error", ctypes.CFUNCTYPE(c_char_p, POINTER(ArrowArrayStream))),
    ("release", ctypes.CFUNCTYPE(None, POINTER(ArrowArrayStream))),
    ("private_data", c_void_p),
]
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype = c_void_p
pointer_of.argtypes = [ctypes.py_object, c_char_p]


def schema_of(capsule: object) -> ArrowSchema:
    """The structure in a capsule; it is valid as long as the capsule."""
    return ArrowSchema.from_address(pointer_of(capsule, b"arrow_schema"))


def array_of(capsule: object) -> ArrowArray:
    """The structure in a capsule; it is valid as long as the capsule."""
    return ArrowArray.from_address(pointer_of(capsule, b"arrow_array"))


def stream_of(capsule: object) -> ArrowArrayStream:
    """The structure in a capsule; it is valid as long as the capsule."""
    return ArrowArrayStream.from_address(pointer_of(capsule, b"arrow_array_stream"))


def moved(array: ArrowArray) -> ArrowArray:
    """Move an array out of its parent: the copy is to be released, the original counts as released."""
    copy = ArrowArray()
    ctypes.pointer(copy)[0] = array
    ctypes.c_void_p.from_buffer(array, ArrowArray.release.offset).value = None
    return copy


def is_released(array: Any) -> bool:
    return not ctypes.cast(array.release, c_void_p).value


def read_rows(exporter: Any) -> list[tuple[Any, ...]]:
    """The rows of an exporter as tuples, with one item per column."""
    schema_capsule, array_capsule = exporter.__arrow_c_array__()
    schema, array = schema_of(schema_capsule), array_of(array_capsule)
    assert schema.format == b"+s" and array.n_children == schema.n_children
    columns = [_values(schema.children[at].contents, array.children[at].contents) for at in range(array.n_children)]
    assert all(len(column) == array.length for column in columns)
    return list(zip(*columns, strict=True))


def _values(schema: ArrowSchema, array: ArrowArray) -> list[Any]:
    values = READERS[schema.format](schema, array)
    valid = array.buffers[0]
    nulls = [] if valid is None else [at for at in range(array.length) if not _bit(valid, at)]
    assert len(nulls) == array.null_count
    for at in nulls:
        values[at] = None
    return values


def _bit(bits: int, at: int) -> int:
    return ctypes.c_uint8.from_address(bits + at // 8).value >> at % 8 & 1


def _numbers(type_: Any) -> Callable[[ArrowSchema, ArrowArray], list[Any]]:
    return lambda _, array: list((type_ * array.length).from_address(array.buffers[1]))


def _binary(_: ArrowSchema, array: ArrowArray) -> list[Any]:
    offsets = (ctypes.c_int32 * (array.length + 1)).from_address(array.buffers[1])
    assert offsets[0] == 0 and list(offsets) == sorted(offsets)
    return [ctypes.string_at(array.buffers[2] + begin, end - begin) for begin, end in pairwise(offsets)]


def _text(schema: ArrowSchema, array: ArrowArray) -> list[Any]:
    return [value.decode() for value in _binary(schema, array)]


def _lists(schema: ArrowSchema, array: ArrowArray) -> list[Any]:
    offsets = (ctypes.c_int32 * (array.length + 1)).from_address(array.buffers[1])
    items = _values(schema.children[0].contents, array.children[0].contents)
    assert offsets[0] == 0 and offsets[array.length] == len(items)
    return [tuple(items[begin:end]) for begin, end in pairwise(offsets)]


def _structs(schema: ArrowSchema, array: ArrowArray) -> list[Any]:
    fields = [_values(schema.children[at].contents, array.children[at].contents) for at in range(array.n_children)]
    return list(zip(*fields, strict=True))


READERS: dict[bytes, Callable[[ArrowSchema, ArrowArray], list[Any]]] = {
    b"i": _numbers(ctypes.c_int32),
    b"l": _numbers(c_int64),
    b"tsm:UTC": _numbers(c_int64),
    b"tsu:UTC": _numbers(c_int64),
    b"z": _binary,
    b"u": _text,
    b"+l": _lists,
    b"+s": _structs,
}
