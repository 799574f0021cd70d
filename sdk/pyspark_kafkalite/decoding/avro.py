"""Avro through fastavro: `pip install 'kafkalite[avro]'`."""

import io
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import fastavro
import pyarrow
from kafkalite_sdk.registry import Schema
from kafkalite_sdk.registry.avro_logical import NESTED, decode_defaults, valid_logical_type

from pyspark_kafkalite.decoding.errors import SchemaMisfitError
from pyspark_kafkalite.decoding.registered import Reader
from pyspark_kafkalite.tables.ddl import SIMPLE

PRIMITIVES = {
    "null": pyarrow.string(),
    "boolean": pyarrow.bool_(),
    "int": pyarrow.int32(),
    "long": pyarrow.int64(),
    "float": pyarrow.float32(),
    "double": pyarrow.float64(),
    "bytes": pyarrow.binary(),
    "string": pyarrow.string(),
}
LOGICAL = {
    "date": SIMPLE["date"],
    "timestamp-millis": SIMPLE["timestamp"],
    "timestamp-micros": SIMPLE["timestamp"],
    "local-timestamp-millis": SIMPLE["timestamp_ntz"],
    "local-timestamp-micros": SIMPLE["timestamp_ntz"],
}
"""Other logical types are read as the type below them, as Spark does."""

PREFIX = "kafkalite-"
"""Begins the names of logical types whose values are read as numbers: a datetime of Python ends with the year 9999."""

READERS = {
    "int-date": lambda days, *_: days,
    "long-timestamp-millis": lambda milliseconds, *_: milliseconds * 1000,
    "long-timestamp-micros": lambda microseconds, *_: microseconds,
    "long-local-timestamp-millis": lambda milliseconds, *_: milliseconds * 1000,
    "long-local-timestamp-micros": lambda microseconds, *_: microseconds,
}
"""Functions from a value to the number in the column, by the type below and the logical type."""

fastavro.read.LOGICAL_READERS.update({each.replace("-", f"-{PREFIX}", 1): read for each, read in READERS.items()})

NUMBERS = {"int", "long", "float", "double"}
WIDENED = ({"int", "long"}, "long"), ({"float", "double"}, "double")


class Avro:
    """Avro with the writer's schema of a registry, or with one schema for all values.

    Arguments:
        schema: JSON text of the reader's schema; None = that of the writer.

    Raises:
        ValueError: the schema is not valid.
    """

    cause = "avro"
    indexes = False

    def __init__(self, schema: str | None) -> None:
        self._reader: Any = None
        self._type: pyarrow.DataType | None = None
        self._named: dict[str, Any] = {}
        self._plain: Any = None
        if schema is not None:
            try:
                self._plain, _ = _parsed(schema, {}, {})
                self._reader, self._type = _parsed(schema, {}, self._named)
                decode_defaults(self._reader, self._named)
            except (SchemaMisfitError, fastavro.schema.SchemaParseException) as error:
                raise ValueError(str(error)) from error

    def declared_reader(self) -> Reader | None:
        """The reader of values of the declared schema."""
        return None if self._type is None else Reader(self._type, partial(_read, self._plain, None))

    def reader(self, schema: Schema, indexes: tuple[int, ...]) -> Reader:
        """The reader of values of a writer. Raises SchemaMisfitError."""
        named: dict[str, Any] = {}
        try:
            writer, data_type = _parsed(schema.text, dict(schema.references), named)
        except (ValueError, fastavro.schema.SchemaParseException) as error:
            raise SchemaMisfitError(f"the schema of a writer is not one of Avro: {error}") from error
        if self._type is None:
            return Reader(data_type, partial(_read, writer, None))
        if writer == self._plain:
            return Reader(self._type, partial(_read, writer, None))
        _check_times(writer, self._reader, (named, self._named))
        return Reader(self._type, partial(_read, writer, self._reader))


def _read(writer: Any, reader: Any, data: bytes) -> Any:
    stream = io.BytesIO(data)
    value = fastavro.schemaless_reader(stream, writer, reader)
    if stream.tell() != len(data):
        raise ValueError(f"{len(data) - stream.tell()} bytes follow the value")
    return value


def _parsed(text: str, references: dict[str, str], named: dict[str, Any]) -> tuple[Any, pyarrow.DataType]:
    """Parse a schema after those that it refers to, and add its named types."""
    for each in references.values():
        fastavro.parse_schema(_supported(json.loads(each)), named_schemas=named)
    parsed = fastavro.parse_schema(_supported(json.loads(text)), named_schemas=named)
    return parsed, _type(parsed, named, ())


def _supported(schema: Any) -> Any:
    """Return a schema with our names of the logical types, without those that are not valid or have no equivalent."""
    if isinstance(schema, list):
        return [_supported(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _supported(each) if name in NESTED else each for name, each in schema.items()}
    kept.pop("logicalType", None)
    logical = valid_logical_type(schema)
    if logical in LOGICAL:
        kept["logicalType"] = PREFIX + logical
    elif logical == "decimal":
        kept["logicalType"] = logical
    return kept


def _check_times(writer: Any, reader: Any, named: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Raise SchemaMisfitError: a date, a timestamp or a number of the writer is another of them for the reader."""
    for one in _branches(writer, named[0]):
        for other in _branches(reader, named[1]):
            if {one["type"], other["type"]} <= NUMBERS and _meaning(one) != _meaning(other):
                raise SchemaMisfitError(
                    f"a {_meaning(one)} of the writer is a {_meaning(other)} of the declared schema"
                )
            for below in _pairs(one, other):
                _check_times(*below, named)


def _branches(schema: Any, named: dict[str, Any]) -> list[dict[str, Any]]:
    """The branches of a union, or the schema alone, with definitions instead of names."""
    if isinstance(schema, list):
        return [found for each in schema for found in _branches(each, named)]
    if isinstance(schema, str):
        return _branches(named[schema], named) if schema in named else [{"type": schema}]
    form = schema["type"]
    return [schema] if isinstance(form, str) and form not in named else _branches(form, named)


def _meaning(schema: dict[str, Any]) -> str:
    logical = schema.get("logicalType", "").removeprefix(PREFIX)
    if logical not in LOGICAL:
        return "number"
    return "date" if logical == "date" else "timestamp"


def _pairs(one: dict[str, Any], other: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the schemas in a writer's, each with the one in the reader's that its values are read as."""
    for name in ("items", "values"):
        if name in one and name in other:
            yield one[name], other[name]
    fields = other.get("fields", ())
    types = {alias: each["type"] for each in fields for alias in each.get("aliases", ())}
    types |= {each["name"]: each["type"] for each in fields}
    for each in one.get("fields", ()):
        if each["name"] in types:
            yield each["type"], types[each["name"]]


def _type(schema: Any, named: dict[str, Any], outer: tuple[str, ...]) -> pyarrow.DataType:
    """The Arrow type of a parsed schema. Raises SchemaMisfitError: there is none."""
    if isinstance(schema, list):
        return _union(schema, named, outer)
    if isinstance(schema, str):
        if schema in PRIMITIVES:
            return PRIMITIVES[schema]
        schema = named[schema]
    form = schema["type"]
    logical = schema.get("logicalType", "")
    if logical.startswith(PREFIX):
        return LOGICAL[logical.removeprefix(PREFIX)]
    if logical == "decimal":
        return pyarrow.decimal128(schema["precision"], schema.get("scale", 0))
    if form == "record":
        if schema["name"] in outer:
            raise SchemaMisfitError(f"record {schema['name']} of Avro contains itself; a column cannot")
        below = (*outer, schema["name"])
        return pyarrow.struct([(each["name"], _type(each["type"], named, below)) for each in schema["fields"]])
    if form == "array":
        if _is_empty(schema["items"], named, ()):
            raise SchemaMisfitError(
                "the items of an array of Avro have no bytes, so a value of a few bytes may have any number of them; "
                "declare them with at least one field"
            )
        return pyarrow.list_(_type(schema["items"], named, outer))
    if form == "map":
        return pyarrow.map_(pyarrow.string(), _type(schema["values"], named, outer))
    if form in ("enum", "fixed"):
        return pyarrow.string() if form == "enum" else pyarrow.binary()
    return _type(form, named, outer)


def _is_empty(schema: Any, named: dict[str, Any], outer: tuple[str, ...]) -> bool:
    """Whether values of a parsed schema have no bytes."""
    if isinstance(schema, list):
        return False  # the number of the branch
    if isinstance(schema, str):
        return schema == "null" or (schema in named and _is_empty(named[schema], named, outer))
    if schema["type"] in ("record", "error"):
        if schema["name"] in outer:
            return False  # it contains itself, which is another error
        below = (*outer, schema["name"])
        return all(_is_empty(each["type"], named, below) for each in schema["fields"])
    if schema["type"] == "fixed":
        return bool(schema["size"] == 0)
    return bool(schema["type"] == "null")


def _union(schema: list[Any], named: dict[str, Any], outer: tuple[str, ...]) -> pyarrow.DataType:
    """The type of a union: of its only branch beside null, or of numbers the widest."""
    branches = [each for each in schema if each != "null"]
    if len(branches) == 1:
        return _type(branches[0], named, outer)
    names = {each if isinstance(each, str) else str(each["type"]) for each in branches}
    for numbers, widest in WIDENED:
        if branches and all(isinstance(each, str) for each in branches) and names <= numbers:
            return PRIMITIVES[widest]
    raise SchemaMisfitError(
        f"a union of Avro has the branches {', '.join(sorted(names))}, but a column has one type; declare a schema of "
        "the reader without them"
    )
