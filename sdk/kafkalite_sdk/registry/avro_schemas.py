"""Schemas of Avro: parsed with those that they refer to, and whether their values can be nested without a limit.

fastavro's compiled reader does not limit its recursion: a small record of a recursive schema (a linked list of some
thousand nodes) ends the process. Its Python reader raises RecursionError, at about 150 levels, and is used for them.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafkalite_sdk.registry.avro_logical import decode_defaults, without_invalid

PRIMITIVE = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


def parse(text: str, references: Iterable[str] = ()) -> tuple[Any, Callable[..., Any]]:
    """Parse a schema; return it as fastavro has it, and the reader for it: (file, schema, schema of the reader).

    Arguments:
        text: JSON.
        references: the schemas that it refers to, each behind those that it refers to itself.

    Raises: what fastavro and json raise for an invalid schema.
    """
    import fastavro
    from fastavro import _read_py

    named: dict[str, Any] = {}
    for each in references:
        fastavro.parse_schema(without_invalid(json.loads(each)), named_schemas=named)
    parsed = fastavro.parse_schema(without_invalid(json.loads(text)), named_schemas=named)
    return parsed, (_read_py if is_recursive(parsed, named) else fastavro).schemaless_reader


def parse_reader(text: str) -> Any:
    """Parse the schema of a reader for fastavro, with the values of its defaults.

    Arguments:
        text: JSON.

    Raises: ValueError: a default is not a value of its field. What fastavro and json raise for an invalid schema.
    """
    import fastavro

    named: dict[str, Any] = {}
    parsed = fastavro.parse_schema(without_invalid(json.loads(text)), named_schemas=named)
    decode_defaults(parsed, named)
    return parsed


def is_recursive(schema: Any, named: Mapping[str, Any]) -> bool:
    """Whether a type contains itself.

    Arguments:
        schema: parsed by fastavro.
        named: the types with a name.
    """
    return _contains_itself(schema, named, set(), set())


def _contains_itself(schema: Any, named: Mapping[str, Any], outer: set[str], checked: set[str]) -> bool:
    """Whether a type contains itself or one of `outer`; `checked`: those that do not."""
    if isinstance(schema, list):
        return any(_contains_itself(each, named, outer, checked) for each in schema)
    if isinstance(schema, str):
        if schema in PRIMITIVE or schema in checked:
            return False
        return schema in outer or _contains_itself(named[schema], named, outer, checked)
    inner = [each["type"] for each in schema.get("fields", ())]
    inner += [schema[name] for name in ("items", "values") if name in schema]
    if not isinstance(schema["type"], str):
        inner.append(schema["type"])
    if "name" not in schema or schema["type"] not in ("record", "error"):
        return any(_contains_itself(each, named, outer, checked) for each in inner)
    name = schema["name"]
    if name in outer or name in checked:
        return name in outer
    outer.add(name)
    found = any(_contains_itself(each, named, outer, checked) for each in inner)
    outer.remove(name)
    checked.add(name)
    return found
