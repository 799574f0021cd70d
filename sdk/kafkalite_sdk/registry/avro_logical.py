"""Logical types and default values of Avro, which fastavro does not handle as the specification requires.

1. A logical type that is not valid for the type below it is ignored: the value has the type below.
2. A field that the writer lacks has the value that a reader returns for the encoded default: bytes, a date or a
   decimal, with the defaults of its own fields. fastavro returns the JSON of the schema.

Source: https://avro.apache.org/docs/1.12.0/specification/, "Logical Types" and "Complex Types".
"""

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

TYPES_BELOW = {
    "date": {"int"},
    "decimal": {"bytes", "fixed"},
    "duration": {"fixed"},
    "local-timestamp-micros": {"long"},
    "local-timestamp-millis": {"long"},
    "local-timestamp-nanos": {"long"},
    "time-micros": {"long"},
    "time-millis": {"int"},
    "timestamp-micros": {"long"},
    "timestamp-millis": {"long"},
    "timestamp-nanos": {"long"},
    "uuid": {"string", "fixed"},
}
"""The types that each logical type may have below it."""

SIZES = {"duration": 12, "uuid": 16}
NESTED = ("type", "items", "values", "fields")
OF_TEXT = ("bytes", "fixed", "string", "enum")
BITS = {"int": 31, "long": 63}
FORMATS = {"float": "<f", "double": "<d"}


def valid_logical_type(schema: Mapping[str, Any]) -> str | None:
    """Return the logical type of a schema; None = it has none, or one that is not valid for it.

    Arguments:
        schema: the JSON object of one type.
    """
    form, logical = schema.get("type"), schema.get("logicalType")
    if not isinstance(form, str) or not isinstance(logical, str) or form not in TYPES_BELOW.get(logical, ()):
        return None
    if form == "fixed" and logical in SIZES and schema.get("size") != SIZES[logical]:
        return None
    return logical if logical != "decimal" or _is_decimal(schema) else None


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    """Whether precision and scale are valid, and fit into the bytes of a fixed type."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision == 0:
        return False
    size = schema.get("size", 0)
    return schema["type"] == "bytes" or (type(size) is int and precision <= math.log10(2) * (8 * size - 1))


def without_invalid(schema: Any) -> Any:
    """Return a schema without the logical types that are not valid.

    Arguments:
        schema: JSON, not parsed by fastavro.
    """
    if isinstance(schema, list):
        return [without_invalid(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: without_invalid(each) if name in NESTED else each for name, each in schema.items()}
    if "logicalType" in kept and valid_logical_type(kept) is None:
        del kept["logicalType"]
    return kept


def decode_defaults(schema: Any, named: Mapping[str, Any]) -> None:
    """Replace the defaults of a reader's fields by the values that a reader returns for them.

    Arguments:
        schema: parsed by fastavro; it is changed. An array or map is marked as parsed, as fastavro marks records:
            parsed again, its defaults would be rejected.
        named: its types with a name.

    Raises:
        ValueError: a default is not a value of its field.
    """
    # A default may be of a record that is declared later, so no default is replaced before all of them are decoded.
    fields = [each for each in _fields(schema, named, set()) if "default" in each]
    decoded = [_decoded_of_field(each, named) for each in fields]
    for field, value in zip(fields, decoded, strict=True):
        field["default"] = value
    for each in schema if isinstance(schema, list) else [schema]:
        if isinstance(each, dict) and each["type"] in ("array", "map"):
            each |= {"__fastavro_parsed": True, "__named_schemas": named}


def _decoded_of_field(field: dict[str, Any], named: Mapping[str, Any]) -> Any:
    try:
        return _decoded(field["default"], field["type"], named)
    except RecursionError:
        raise ValueError(f"the default of the field {field['name']} contains itself") from None
    except ValueError as error:
        raise ValueError(f"field {field['name']}: {error}") from error


def _fields(schema: Any, named: Mapping[str, Any], seen: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the fields of all records of a schema, each once."""
    if isinstance(schema, list):
        for each in schema:
            yield from _fields(each, named, seen)
        return
    if isinstance(schema, str):
        if schema in named and schema not in seen:
            yield from _fields(named[schema], named, seen)
        return
    if "fields" not in schema:
        yield from _fields(schema.get("items", schema.get("values", schema["type"])), named, seen)
    elif schema["name"] not in seen:
        seen.add(schema["name"])
        for each in schema["fields"]:
            yield each
            yield from _fields(each["type"], named, seen)


def _decoded(default: Any, schema: Any, named: Mapping[str, Any]) -> Any:
    """Return the value of a default, which is JSON. Raises ValueError: it is not one of the schema."""
    if isinstance(schema, list):
        return _decoded_of_union(default, schema, named)
    if isinstance(schema, str):
        return _decoded(default, named.get(schema, {"type": schema}), named)
    form = schema["type"]
    if not isinstance(form, str):
        return _decoded(default, form, named)
    if form in named:
        return _decoded(default, named[form], named)
    value = _nested(default, schema, named) if form in ("record", "error", "array", "map") else _scalar(default, schema)
    from fastavro import read

    convert = read.LOGICAL_READERS.get(f"{form}-{schema.get('logicalType')}")
    return value if convert is None else convert(value, schema, schema)


def _decoded_of_union(default: Any, branches: list[Any], named: Mapping[str, Any]) -> Any:
    """Return the value of a default of the first branch that has it."""
    for each in branches:
        try:
            return _decoded(default, each, named)
        except ValueError:
            continue
    raise _mismatch(default, "one of the union")


def _nested(default: Any, schema: dict[str, Any], named: Mapping[str, Any]) -> Any:
    form = schema["type"]
    if form == "array" and isinstance(default, list):
        return [_decoded(each, schema["items"], named) for each in default]
    if form == "array" or not isinstance(default, dict):
        raise _mismatch(default, form)
    if form == "map":
        return {name: _decoded(each, schema["values"], named) for name, each in default.items()}
    return {each["name"]: _field_default(default, each, named) for each in schema["fields"]}


def _field_default(default: dict[str, Any], field: dict[str, Any], named: Mapping[str, Any]) -> Any:
    """Return the value of a field of a default, which may have its own default."""
    source = default if field["name"] in default else {field["name"]: field["default"]} if "default" in field else None
    if source is None:
        raise ValueError(f"the default {default!r} lacks the field {field['name']}")
    return _decoded(source[field["name"]], field["type"], named)


def _scalar(default: Any, schema: dict[str, Any]) -> Any:
    form = schema["type"]
    if form in BITS:
        if type(default) is not int or not -(1 << BITS[form]) <= default < 1 << BITS[form]:
            raise _mismatch(default, form)
        return default
    if form in FORMATS:
        return _floating(default, form)
    expected = str if form in OF_TEXT else bool if form == "boolean" else type(None)
    if type(default) is not expected or (form == "enum" and default not in schema["symbols"]):
        raise _mismatch(default, form)
    if form not in ("bytes", "fixed"):
        return default
    text = str(default)
    value = text.encode("latin-1", "replace")
    if value.decode("latin-1") != text or (form == "fixed" and len(value) != schema["size"]):
        raise _mismatch(default, form if form == "bytes" else f"fixed of {schema['size']} bytes")
    return value


def _floating(default: Any, form: str) -> float:
    """Return the number as it is after encoding; JSON has texts for NaN and infinities."""
    if isinstance(default, bool) or not isinstance(default, int | float | str):
        raise _mismatch(default, form)
    try:
        (value,) = struct.unpack(FORMATS[form], struct.pack(FORMATS[form], float(default)))
    except OverflowError:
        raise _mismatch(default, form) from None
    return float(value)


def _mismatch(default: Any, form: str) -> ValueError:
    return ValueError(f"the default {default!r} of a field is not {form}")
