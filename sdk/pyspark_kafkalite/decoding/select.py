"""Selects the decoder of a format. Libraries of a format are imported when it is used."""

import pyarrow

from pyspark_kafkalite.decoding.ddl import normalized, parse_ddl
from pyspark_kafkalite.decoding.drift import Drift
from pyspark_kafkalite.decoding.json_rows import JsonDecoder, JsonTextDecoder, readable
from pyspark_kafkalite.decoding.options import Decoding, Part
from pyspark_kafkalite.decoding.values import RawDecoder, TextDecoder, ValueDecoder
from pyspark_kafkalite.errors import OptionError


def has_fields(part: Part) -> bool:
    """Return whether values have fields, so that each of them can be a column."""
    return part.format in ("avro", "protobuf") or (part.format == "json" and part.schema is not None)


def value_decoder(decoding: Decoding, part: Part, known: pyarrow.DataType | None, drift: Drift) -> ValueDecoder:
    """Return the decoder of keys or values.

    Arguments:
        decoding: its schemas are loaded.
        part: of it.
        known: the type in the table; None = the table is empty.
        drift: receives how values differ from the declared schema.

    Raises:
        OptionError: the schema is not valid, or a library is missing.
    """
    if part.format == "raw":
        return RawDecoder()
    if part.format == "string":
        return TextDecoder()
    if part.format == "json":
        return JsonTextDecoder() if part.schema is None else JsonDecoder(declared_schema(part), drift)
    raise OptionError(part.name, f"{part.format!r} is not supported")


def declared_schema(part: Part) -> pyarrow.Schema:
    """Return the declared schema of JSON. Raises OptionError: it is not valid."""
    try:
        schema = parse_ddl(part.schema) if isinstance(part.schema, str) else normalized(part.schema)
        readable(pyarrow.struct(list(schema)))
    except ValueError as error:
        raise OptionError("key_schema" if part.is_key else "schema", str(error)) from error
    return schema
