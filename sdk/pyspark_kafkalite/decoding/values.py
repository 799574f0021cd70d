"""The result of a decoder of one format, and the simplest decoders. Needs pyarrow."""

from collections.abc import Collection
from typing import NamedTuple, Protocol

import numpy
import pyarrow

GROUP_ROWS = 256
"""Values among which one is bad are decoded again in groups of this size."""


class BadValue(NamedTuple):
    """A value that cannot be decoded.

    Attributes:
        row: of the batch.
        cause: a word for counts: "utf8", "json", "type", "framing", "avro", "protobuf" or "schema".
        detail: what is wrong.
    """

    row: int
    cause: str
    detail: str


class Values(NamedTuple):
    """The decoded values of a batch.

    Attributes:
        array: as many as in the batch; null for null and for bad values.
        bad: in the order of their rows.
    """

    array: pyarrow.Array
    bad: list[BadValue]


class ValueDecoder(Protocol):
    """Decodes the keys or values of batches. Its type may grow between batches."""

    @property
    def type(self) -> pyarrow.DataType | None:
        """The type of the values; None = it is not known yet."""
        ...

    def decode(self, values: pyarrow.Array, headers: pyarrow.Array) -> Values:
        """Decode values.

        Arguments:
            values: binary.
            headers: of their records.

        Raises:
            SchemaMisfitError: a schema does not fit that of the table.
        """
        ...


class RawDecoder:
    """Leaves values as they are."""

    type = pyarrow.binary()

    def decode(self, values: pyarrow.Array, headers: pyarrow.Array) -> Values:
        """Return the values."""
        return Values(values, [])


class TextDecoder:
    """Decodes UTF-8."""

    type = pyarrow.string()

    def decode(self, values: pyarrow.Array, headers: pyarrow.Array) -> Values:
        """Return text; a value that is not UTF-8 is bad."""
        return decode_text(values)


def decode_text(values: pyarrow.Array) -> Values:
    """Return binary values as text.

    Arguments:
        values: binary.
    """
    try:
        return Values(values.cast(pyarrow.string()), [])
    except pyarrow.ArrowInvalid:
        groups = [_decode_group(values, first) for first in range(0, len(values), GROUP_ROWS)]
        return Values(pyarrow.concat_arrays([each for each, _ in groups]), [each for _, bad in groups for each in bad])


def mask_without(rows: Collection[int], count: int) -> pyarrow.BooleanArray:
    """Return a mask that is false at some rows.

    Arguments:
        rows: where it is false.
        count: length of the mask.
    """
    mask = numpy.ones(count, numpy.bool_)
    mask[numpy.fromiter(rows, numpy.int64, len(rows))] = False
    return pyarrow.array(mask)


def _decode_group(values: pyarrow.Array, first: int) -> Values:
    """Decode the values from a row on, one by one if one of them is bad."""
    group = values.slice(first, GROUP_ROWS)
    try:
        return Values(group.cast(pyarrow.string()), [])
    except pyarrow.ArrowInvalid:
        return _decode_each(group, first)


def _decode_each(values: pyarrow.Array, first: int) -> Values:
    texts: list[str | None] = []
    bad = []
    for row, value in enumerate(values.to_pylist(), first):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError as error:
            bad.append(BadValue(row, "utf8", str(error)))
            texts.append(None)
    return Values(pyarrow.array(texts, pyarrow.string()), bad)
