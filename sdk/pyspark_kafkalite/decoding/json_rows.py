"""Decodes JSON with pyarrow's reader: objects by a declared schema, or any value as text.

Fields beyond the schema are counted while lines are read. pyarrow ends the process on deeply nested ones, so lines with
many brackets are read without them. The same applies where such a field has several types, or a line is bad; the fields
of some values are counted then.
"""

import json
from collections.abc import Iterator

import pyarrow
import pyarrow.compute

from pyspark_kafkalite.decoding.drift import Drift
from pyspark_kafkalite.decoding.json_fields import added_fields, count_fields, differences
from pyspark_kafkalite.decoding.json_lines import (
    UNEXPECTED,
    Part,
    blocks,
    bounded_parts,
    check_text,
    fields_of,
    names_of,
    openers,
    read_objects,
    read_parts,
    suspicious,
)
from pyspark_kafkalite.decoding.values import BadValue, Values, decode_text, mask_without

OPENERS_MAX = 1000
"""Opening brackets of a value up to which its fields beyond the schema are read; pyarrow endures some 8,000."""

SAMPLE = 256
"""Values of a block whose fields are counted where the reader cannot count them."""

DETAIL_CHARACTERS = 500
DECIMAL128_DIGITS = 38


class JsonDecoder:
    """Decodes JSON objects to a struct.

    Arguments:
        schema: of the objects; fields that it lacks are ignored, and counted in `drift`.
        drift: counts differences.

    Attributes:
        type: of the values.
    """

    def __init__(self, schema: pyarrow.Schema, drift: Drift) -> None:
        self.type = pyarrow.struct(list(schema))
        self._read_type = readable(self.type)
        self._fields = fields_of(self.type)
        self._drift = drift

    def decode(self, values: pyarrow.Array, headers: pyarrow.Array) -> Values:
        """Decode values; null and the JSON value null are null. See `Values`."""
        texts, bad = decode_text(values)
        wrong = {each.row: each for each in bad}
        wrong |= {row: each for row in suspicious(texts) if (each := _invalid(texts[row].as_py(), row)) is not None}
        self._drift.values += len(texts) - texts.null_count
        arrays = []
        for row, found in self._parts(_lines(texts, wrong)):
            if isinstance(found, str):
                wrong[row] = self._bad(texts[row].as_py(), row, found)
            arrays.append(pyarrow.nulls(1, self.type) if isinstance(found, str) else found)
        return Values(_concatenated(arrays, self.type), [wrong[row] for row in sorted(wrong)])

    def _parts(self, lines: pyarrow.StringArray) -> Iterator[Part]:
        """Yield the decoded lines in order, each part with its first row, and the errors of bad lines."""
        for start, block in blocks(lines):
            for first, part, bounded in bounded_parts(block, lambda _: self._fields):
                found = self._read_whole(part, "error") if bounded else UNEXPECTED
                if not isinstance(found, str):
                    yield start + first, found
                else:
                    yield from self._parts_with_drift(part, start + first, bad=UNEXPECTED not in found)

    def _parts_with_drift(self, lines: pyarrow.StringArray, start: int, *, bad: bool) -> Iterator[Part]:
        """Return the parts as `_parts` does, where a line has a field beyond the schema, or a bad value.

        Arguments:
            lines: values of JSON.
            start: their first row.
            bad: the first error is about a bad value: to read all of them with fields beyond the schema fails, too.
        """
        for first, part, bounded in bounded_parts(lines, lambda part: self._fields + names_of(part)):
            found = None
            if bounded and not (bad and len(part) == len(lines)):
                found = self._read_whole(part, "infer")
            if found is not None and not isinstance(found, str):
                yield start + first, found
            else:
                yield from self._read_without_drift(part, start + first)

    def _read_without_drift(self, lines: pyarrow.StringArray, start: int) -> Iterator[Part]:
        count_fields(lines.slice(0, SAMPLE), self.type, self._drift)
        for first, part in read_parts(lines, self._read):
            yield start + first, part

    def _read(self, lines: pyarrow.StringArray) -> pyarrow.Array:
        return read_objects(lines, self._read_type, "ignore").cast(self.type)

    def _read_whole(self, lines: pyarrow.StringArray, beyond: str) -> pyarrow.Array | str:
        """Read lines with all of their fields, or return why they cannot be read so.

        Arguments:
            lines: values of JSON.
            beyond: "error" or "infer": what is done with fields beyond the schema.
        """
        if openers(lines, OPENERS_MAX) > OPENERS_MAX:
            return "a value has too many opening brackets"
        try:
            found = read_objects(lines, self._read_type, beyond)
            decoded = found.cast(self.type)
        except pyarrow.ArrowInvalid as error:
            return str(error)
        added_fields(found, self._read_type, self._drift)
        return decoded

    def _bad(self, text: str, row: int, reason: str) -> BadValue:
        """Say what is wrong with a value that the reader rejects."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            return BadValue(row, "json", str(error)[:DETAIL_CHARACTERS])
        found = differences(value, self.type)
        self._drift.differing.update(found)
        details = [f"field {path or '.'} is {declared}, found {other}" for path, declared, other in found]
        return BadValue(row, "type", ("; ".join(details) or reason)[:DETAIL_CHARACTERS])


class JsonTextDecoder:
    """Validates JSON and leaves it as text; `parse_json` of Spark makes VARIANT of it."""

    type = pyarrow.string()

    def decode(self, values: pyarrow.Array, headers: pyarrow.Array) -> Values:
        """Return the text of values; one that is not exactly one value of JSON is bad."""
        texts, bad = decode_text(values)
        wrong = {each.row: each for each in bad}
        for start, block in blocks(_lines(texts, wrong)):
            for first, found in _checked(block):
                row = start + first
                if isinstance(found, str):
                    wrong[row] = _invalid(texts[row].as_py(), row) or BadValue(row, "json", found)
        return Values(_replace(texts, wrong, None), [wrong[row] for row in sorted(wrong)])


def _checked(lines: pyarrow.StringArray) -> Iterator[Part]:
    try:
        yield 0, check_text(lines)
    except pyarrow.ArrowInvalid:
        yield from read_parts(lines, check_text)


def readable(data_type: pyarrow.DataType) -> pyarrow.DataType:
    """Return the type that pyarrow's reader reads instead of a type.

    It reads dates as numbers, and drops the offset of a time without a zone: both are read as strings, and cast. It
    scales a decimal without a look at the digits that it loses: 256 bits have enough for 128.

    Raises:
        ValueError: JSON has no such type here.
    """
    types = pyarrow.types
    if types.is_date(data_type) or (types.is_timestamp(data_type) and data_type.tz is None):
        return pyarrow.string()
    if types.is_decimal(data_type) and data_type.precision + data_type.scale > DECIMAL128_DIGITS:
        return pyarrow.decimal256(data_type.precision, data_type.scale)
    if types.is_struct(data_type):
        return pyarrow.struct([pyarrow.field(each.name, readable(each.type)) for each in data_type])
    if types.is_list(data_type):
        return pyarrow.list_(readable(data_type.value_type))
    if types.is_map(data_type) or types.is_binary(data_type):
        raise ValueError(f"type {data_type} cannot be read from JSON, expected a struct or a string")
    return data_type


def _lines(texts: pyarrow.StringArray, wrong: dict[int, BadValue]) -> pyarrow.StringArray:
    """Return texts with `null` for null and for bad values."""
    return pyarrow.compute.fill_null(_replace(texts, wrong, "null"), "null")


def _replace(texts: pyarrow.StringArray, wrong: dict[int, BadValue], text: str | None) -> pyarrow.StringArray:
    """Return texts with another one at the rows of bad values."""
    if not wrong:
        return texts
    return pyarrow.compute.if_else(mask_without(wrong, len(texts)), texts, pyarrow.scalar(text, pyarrow.string()))


def _invalid(text: str, row: int) -> BadValue | None:
    """Return what is wrong with the syntax of a value; None = nothing."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return BadValue(row, "json", str(error)[:DETAIL_CHARACTERS])
    return None


def _concatenated(arrays: list[pyarrow.Array], data_type: pyarrow.DataType) -> pyarrow.Array:
    return arrays[0] if len(arrays) == 1 else pyarrow.concat_arrays(arrays or [pyarrow.nulls(0, data_type)])
