"""Validates decoded arrays before they are written: a value that its type cannot contain is bad, not another value.

Readers of formats are libraries, and some of them return arrays whose values exceed their type. A writer of Parquet
cuts such a value to the length of the type.
"""

from collections.abc import Iterator

import numpy
import pyarrow
import pyarrow.compute

from pyspark_kafkalite.decoding.values import BadValue, ValueDecoder, Values, mask_without

GROUP_ROWS = 256
"""Rows of an array with an invalid value are validated again in groups of this size."""


class ValidatedDecoder:
    """Decodes values with another decoder, and validates them.

    Arguments:
        decoder: of a format.
        finite: whether NaN and infinite numbers are bad. JSON has none (RFC 8259); what a reader returns as infinite
            was too large for its type.
    """

    def __init__(self, decoder: ValueDecoder, *, finite: bool = False) -> None:
        self._decoder = decoder
        self._finite = finite

    @property
    def type(self) -> pyarrow.DataType | None:
        """The type of the values; None = it is not known yet."""
        return self._decoder.type

    def decode(self, values: pyarrow.Array, headers: pyarrow.Array) -> Values:
        """Decode values. See `ValueDecoder.decode`."""
        found = self._decoder.decode(values, headers)
        invalid = dict(invalid_rows(found.array, self._finite))
        if not invalid:
            return found
        count = len(found.array)
        valid = mask_without(invalid, count)
        rows = pyarrow.compute.if_else(valid, pyarrow.array(numpy.arange(count)), pyarrow.scalar(None, pyarrow.int64()))
        bad = [*found.bad, *(BadValue(row, "type", detail) for row, detail in invalid.items())]
        return Values(found.array.take(rows), sorted(bad))


def invalid_rows(array: pyarrow.Array, finite: bool) -> Iterator[tuple[int, str]]:
    """Yield the rows of an array that its type cannot contain, in order, and what is wrong with each.

    Arguments:
        array: decoded values.
        finite: whether NaN and infinite numbers are invalid.
    """
    if defect(array, finite) is None:
        return
    pending = [(each, min(each + GROUP_ROWS, len(array))) for each in range(0, len(array), GROUP_ROWS)][::-1]
    while pending:
        first, end = pending.pop()
        # A slice of structs shares its children, which are validated as a whole; `take` copies.
        found = defect(array.take(pyarrow.array(range(first, end))), finite)
        if found is not None and end - first == 1:
            yield first, found
        elif found is not None:
            middle = (first + end) // 2
            pending += [(middle, end), (first, middle)]


def defect(array: pyarrow.Array, finite: bool) -> str | None:
    """Return what is wrong with an array, with the path of the field; None = nothing."""
    try:
        array.validate(full=True)
    except pyarrow.ArrowInvalid as error:
        return f"{_field(array)}{str(error).rpartition('Invalid: ')[2]}"
    return _infinite(array, "") if finite else None


def _field(array: pyarrow.Array) -> str:
    """The path of the first field that is invalid, for a message."""
    path: list[str] = []
    while (below := _invalid_child(array)) is not None:
        array, name = below
        path.append(name)
    return f"field {'.'.join(path)}: ".replace(".[", "[") if path else ""


def _invalid_child(array: pyarrow.Array) -> tuple[pyarrow.Array, str] | None:
    for child, name in _children(array):
        try:
            child.validate(full=True)
        except pyarrow.ArrowInvalid:
            return child, name
    return None


def _infinite(array: pyarrow.Array, path: str) -> str | None:
    if pyarrow.types.is_floating(array.type):
        good = pyarrow.compute.all(pyarrow.compute.is_finite(array), min_count=0).as_py()
        return None if good else f"field {path or '.'}: not a finite number of type {array.type}"
    for child, name in _children(array):
        below = f"{path}{name}" if name.startswith("[") or not path else f"{path}.{name}"
        if (found := _infinite(child, below)) is not None:
            return found
    return None


def _children(array: pyarrow.Array) -> list[tuple[pyarrow.Array, str]]:
    if pyarrow.types.is_struct(array.type):
        return [(child, each.name) for child, each in zip(array.flatten(), array.type, strict=True)]
    if pyarrow.types.is_list(array.type):
        return [(array.flatten(), "[]")]
    if pyarrow.types.is_map(array.type):  # its keys and items have the values of null rows and other slices, too
        entries = array.cast(pyarrow.list_(pyarrow.struct([array.type.key_field, array.type.item_field]))).flatten()
        keys, items = entries.flatten()
        return [(keys, "[key]"), (items, "[value]")]
    return []
