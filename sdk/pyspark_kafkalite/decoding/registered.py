"""Decodes values whose schema is that of their writer: Avro and Protobuf. Needs pyarrow.

The type grows with the schemas of the writers: a field that only a new schema has is added. In other values it is null.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow
from kafkalite_sdk.registry import Schema, wire
from kafkalite_sdk.registry.client import SchemaNotFoundError

from kafkalite.errors import SchemaError
from pyspark_kafkalite.decoding.errors import SchemaMisfitError
from pyspark_kafkalite.decoding.schemas import merge_schemas
from pyspark_kafkalite.decoding.values import BadValue, Values

DETAIL_CHARACTERS = 500
BLOCK_BYTES = 1 << 20
"""Values become Python objects, then an array, in blocks of this size: objects have up to some 200 times the bytes."""

Headers = Sequence[tuple[str, bytes | None]]


class Reader(NamedTuple):
    """Reads the values of one schema.

    Attributes:
        type: of the values.
        read: from bytes; what it returns converts to the type.
    """

    type: pyarrow.DataType
    read: Callable[[bytes], Any]


class Unread(NamedTuple):
    """A value that is not decoded yet.

    Attributes:
        reader: of its schema.
        data: the value without the reference to the schema.
    """

    reader: Reader
    data: bytes


Framed = Unread | BadValue | None
"""A value, what is wrong with it, or null."""


class Format(Protocol):
    """What differs between Avro and Protobuf."""

    cause: str
    indexes: bool

    def declared_reader(self) -> Reader | None:
        """The reader of a schema file; None = the schemas of the registry decide."""
        ...

    def reader(self, schema: Schema, indexes: tuple[int, ...]) -> Reader:
        """The reader of a schema of the registry. Raises SchemaMisfitError: it has no equivalent in Arrow."""
        ...


class Registered(NamedTuple):
    """Where values have the reference to their schema.

    Attributes:
        schema: returns a schema of the registry.
        key: the values are keys of records.
    """

    schema: Callable[[wire.Key], Schema]
    key: bool


class RegisteredDecoder:
    """Decodes values with the schemas of their writers.

    Arguments:
        form: Avro or Protobuf.
        registered: where schemas are; None = values have no reference, all are of the declared schema.
        known: type in the table; None = the table is empty.
        stops: a schema that does not fit stops the query; else its values are bad.

    Attributes:
        type: of the values; None = not known yet.

    Raises:
        SchemaMisfitError: the declared schema does not fit the table.
    """

    def __init__(
        self, form: Format, registered: Registered | None, known: pyarrow.DataType | None, *, stops: bool
    ) -> None:
        self.type = known
        self._format = form
        self._registered = registered
        self._stops = stops
        self._readers: dict[tuple[Any, ...], Reader | str] = {}
        self._declared = form.declared_reader()
        if self._declared is not None:
            self.type = _grown(known, self._declared.type, "the declared schema")

    def decode(self, values: pyarrow.Array, headers: pyarrow.Array) -> Values:
        """Decode values; see `Values`. Raises SchemaMisfitError; SchemaError: the registry does not respond."""
        pairs = enumerate(zip(values.to_pylist(), _headers(headers), strict=True))
        # The type is known after the schemas of all values.
        framed = [None if value is None else self._framed(row, value, named) for row, (value, named) in pairs]
        data_type = self.type
        if data_type is None:
            return Values(
                pyarrow.nulls(len(framed), pyarrow.struct([])), [each for each in framed if isinstance(each, BadValue)]
            )
        blocks = [self._block(start, block, data_type) for start, block in _blocks(framed)]
        arrays = [each.array for each in blocks] or [pyarrow.nulls(0, data_type)]
        return Values(pyarrow.concat_arrays(arrays), [bad for each in blocks for bad in each.bad])

    def _block(self, start: int, framed: Sequence[Framed], data_type: pyarrow.DataType) -> Values:
        """Decode and convert values, the first of which is row `start`."""
        found: list[Any] = []
        bad: list[BadValue] = []
        for row, each in enumerate(framed, start):
            result = self._read(row, *each) if isinstance(each, Unread) else each
            if isinstance(result, BadValue):
                bad.append(result)
                result = None
            found.append(result)
        return self._converted(start, found, data_type, bad)

    def _converted(self, start: int, found: list[Any], data_type: pyarrow.DataType, bad: list[BadValue]) -> Values:
        try:
            return Values(pyarrow.array(found, data_type), bad)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError):
            return self._converted_each(start, found, data_type, bad)

    def _converted_each(self, start: int, found: list[Any], data_type: pyarrow.DataType, bad: list[BadValue]) -> Values:
        """Convert value by value, since one of them does not fit."""
        wrong = {each.row: each for each in bad}
        for row, value in enumerate(found, start):
            try:
                pyarrow.array([value], data_type)
            except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError) as error:
                wrong[row] = BadValue(row, "type", str(error)[:DETAIL_CHARACTERS])
                found[row - start] = None
        return Values(pyarrow.array(found, data_type), [wrong[row] for row in sorted(wrong)])

    def _framed(self, row: int, value: bytes, headers: Headers) -> Unread | BadValue:
        """The value with the reader of its schema, or what is wrong with it."""
        reader: Reader | str | None = self._declared
        if self._registered is not None:
            try:
                framed = wire.read(value, headers, key=self._registered.key, indexes=self._format.indexes)
            except SchemaError as error:
                return BadValue(row, "framing", str(error)[:DETAIL_CHARACTERS])
            value = framed.data
            if reader is None or not self._format.indexes:
                reader = self._reader(framed.key, framed.indexes)
        if not isinstance(reader, Reader):
            return BadValue(row, "schema", str(reader)[:DETAIL_CHARACTERS])
        return Unread(reader, value)

    def _read(self, row: int, reader: Reader, data: bytes) -> Any:
        """The value, or what is wrong with it."""
        try:
            return reader.read(data)
        except MemoryError:
            raise  # another attempt may have more memory: the value is not bad
        except Exception as error:  # the libraries raise what Python raises for wrong bytes
            return BadValue(row, self._format.cause, (str(error) or repr(error))[:DETAIL_CHARACTERS])

    def _reader(self, key: wire.Key, indexes: tuple[int, ...]) -> Reader | str:
        """The reader of a schema, or why there is none. Raises SchemaMisfitError, SchemaError."""
        assert self._registered is not None
        found = self._readers.get((key, indexes))
        if found is None:
            try:
                found = self._format.reader(self._registered.schema(key), indexes)
                self.type = _grown(self.type, found.type, f"schema {key} of the registry")
            except SchemaNotFoundError as error:
                found = str(error)
            except SchemaMisfitError as error:
                if self._stops:
                    raise
                found = str(error)
            self._readers[key, indexes] = found
        return found


def _blocks(framed: Sequence[Framed]) -> Iterator[tuple[int, Sequence[Framed]]]:
    """Yield blocks of at most BLOCK_BYTES, or one larger value, each with its first row."""
    start = size = 0
    for row, each in enumerate(framed):
        added = len(each.data) if isinstance(each, Unread) else 0
        if size + added > BLOCK_BYTES and row > start:
            yield start, framed[start:row]
            start, size = row, 0
        size += added
    if start < len(framed):
        yield start, framed[start:]


def _headers(headers: pyarrow.Array) -> Sequence[Headers]:
    if not len(headers.flatten()):
        return [()] * len(headers)
    return [[(each["key"], each["value"]) for each in row or ()] for row in headers.to_pylist()]


def _grown(known: pyarrow.DataType | None, added: pyarrow.DataType, origin: str) -> pyarrow.DataType:
    """The type after values of another one were added. Raises SchemaMisfitError."""
    if known is None:
        return added
    if pyarrow.types.is_struct(known) and pyarrow.types.is_struct(added):
        return pyarrow.struct(list(merge_schemas(pyarrow.schema(list(known)), pyarrow.schema(list(added)), origin)))
    columns = (pyarrow.schema([("value", known)]), pyarrow.schema([("value", added)]))
    return merge_schemas(*columns, origin).field("value").type
