"""Selects the decoder of a format. Libraries of a format are imported when it is used."""

from typing import cast

import pyarrow

from pyspark_kafkalite.decoding.drift import Drift
from pyspark_kafkalite.decoding.json_rows import JsonDecoder, JsonTextDecoder, readable
from pyspark_kafkalite.decoding.options import Decoding, Part
from pyspark_kafkalite.decoding.registered import Format, Registered, RegisteredDecoder
from pyspark_kafkalite.decoding.validation import ValidatedDecoder
from pyspark_kafkalite.decoding.values import RawDecoder, TextDecoder, ValueDecoder
from pyspark_kafkalite.errors import OptionError
from pyspark_kafkalite.tables.ddl import normalize_schema, parse_ddl


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
        if part.schema is None:
            return JsonTextDecoder()
        return ValidatedDecoder(JsonDecoder(declared_schema(part), drift), finite=True)
    stops = decoding.misfits == "stop"
    return ValidatedDecoder(RegisteredDecoder(_format(decoding, part), _registered(decoding, part), known, stops=stops))


def _format(decoding: Decoding, part: Part) -> Format:
    prefix = "key_" if part.is_key else ""
    try:
        if part.format == "avro":
            from pyspark_kafkalite.decoding.avro import Avro

            return Avro(cast("str | None", part.schema))
        from pyspark_kafkalite.decoding.protobuf import Protobuf

        return Protobuf(cast("bytes | None", part.schema), part.message)
    except ValueError as error:
        raise OptionError(f"{prefix}schema", str(error)) from error
    except ImportError as error:
        raise OptionError(
            part.name, f"{part.format!r} needs `pip install 'kafkalite[{part.format}]'`: {error}"
        ) from error


def _registered(decoding: Decoding, part: Part) -> Registered | None:
    """Return how the registry finds the schema of a value; None = values have no reference to a schema."""
    if decoding.registry_url is None:
        return None
    from pyspark_kafkalite.decoding.registry import schemas_of

    return Registered(schemas_of(decoding.registry_url, decoding.registry_auth).get, part.is_key)


def declared_schema(part: Part) -> pyarrow.Schema:
    """Return the declared schema of JSON. Raises OptionError: it is not valid."""
    try:
        schema = parse_ddl(part.schema) if isinstance(part.schema, str) else normalize_schema(part.schema)
        readable(pyarrow.struct(list(schema)))
    except ValueError as error:
        raise OptionError("key_schema" if part.is_key else "schema", str(error)) from error
    return schema
