"""Compares values of JSON with the declared type: fields that it lacks, and fields of another type."""

import json
from typing import Any

import pyarrow

from pyspark_kafkalite.decoding.drift import Drift
from pyspark_kafkalite.tables.ddl import type_text

JSON_TYPES = {bool: "boolean", int: "bigint", float: "double", str: "string", list: "array", dict: "struct"}
DEPTH_MAX = 20
"""Depth of fields that are counted."""


def added_fields(
    found: pyarrow.Array, declared: pyarrow.DataType, drift: Drift, path: str = "", depth: int = 0
) -> None:
    """Count the fields of decoded values that a type lacks.

    Arguments:
        found: with all fields.
        declared: the type.
        drift: receives the counts.
        path, depth: of the values.
    """
    if found.type == declared or depth > DEPTH_MAX:
        return
    if pyarrow.types.is_struct(found.type):
        names = {each.name: each.type for each in declared}
        for index, each in enumerate(found.type):
            child = found.field(index)
            name = f"{path}.{each.name}" if path else each.name
            if each.name in names:
                added_fields(child, names[each.name], drift, name, depth + 1)
            elif len(child) > child.null_count:
                drift.count_added(name, _inferred_text(each.type), len(child) - child.null_count)
    elif pyarrow.types.is_list(found.type):
        added_fields(found.flatten(), declared.value_type, drift, f"{path}[]", depth + 1)


def _inferred_text(data_type: pyarrow.DataType) -> str:
    """The type of a field of JSON; text that looks like a time is text."""
    if pyarrow.types.is_timestamp(data_type):
        return "string"
    if pyarrow.types.is_struct(data_type):
        return "struct"
    return "array" if pyarrow.types.is_list(data_type) else type_text(data_type)


def _head(text: str) -> str:
    return text.partition("<")[0]


def count_fields(values: pyarrow.StringArray, declared: pyarrow.StructType, drift: Drift) -> None:
    """Count the fields of values that a type lacks, value by value.

    Arguments:
        values: text of JSON; those that are not valid are ignored.
        declared: the type.
        drift: receives the counts.
    """
    for text in values.to_pylist():
        for path, found in _added(text, declared):
            drift.count_added(path, found)


def _added(text: str, declared: pyarrow.DataType) -> set[tuple[str, str]]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return set()
    found: set[tuple[str, str]] = set()
    _add_fields(value, declared, "", found, 0)
    return found


def _add_fields(value: Any, declared: pyarrow.DataType, path: str, found: set[tuple[str, str]], depth: int) -> None:
    if depth > DEPTH_MAX:
        return
    if isinstance(value, dict) and pyarrow.types.is_struct(declared):
        names = {each.name: each.type for each in declared}
        for name, each in value.items():
            below = f"{path}.{name}" if path else name
            if name in names:
                _add_fields(each, names[name], below, found, depth + 1)
            elif each is not None:
                found.add((below, JSON_TYPES[type(each)]))
    elif isinstance(value, list) and pyarrow.types.is_list(declared):
        for each in value:
            _add_fields(each, declared.value_type, f"{path}[]", found, depth + 1)


def differences(value: Any, declared: pyarrow.DataType, path: str = "", depth: int = 0) -> list[tuple[str, str, str]]:
    """Return path, declared type and type of each field of a value that has another type than declared.

    Arguments:
        value: of JSON.
        declared: the type.
        path, depth: of the value.
    """
    types = pyarrow.types
    if value is None or depth > DEPTH_MAX:
        return []
    if isinstance(value, dict) and types.is_struct(declared):
        pairs = [(f"{path}.{each.name}" if path else each.name, value.get(each.name), each.type) for each in declared]
    elif isinstance(value, list) and types.is_list(declared):
        pairs = [(f"{path}[]", each, declared.value_type) for each in value]
    else:
        return [] if _fits(value, declared) else [(path, _head(type_text(declared)), JSON_TYPES[type(value)])]
    found = [each for name, one, inner in pairs for each in differences(one, inner, name, depth + 1)]
    return list(dict.fromkeys(found))


def _fits(value: Any, declared: pyarrow.DataType) -> bool:
    """Whether pyarrow converts a value of this type of JSON; its range and format are another question."""
    types = pyarrow.types
    if isinstance(value, bool):
        return bool(types.is_boolean(declared))
    if isinstance(value, int):
        return bool(types.is_integer(declared) or types.is_floating(declared) or types.is_decimal(declared))
    if isinstance(value, float):
        return bool(types.is_floating(declared) or types.is_decimal(declared))
    if isinstance(value, str):
        return bool(types.is_string(declared) or types.is_temporal(declared) or types.is_decimal(declared))
    return False
