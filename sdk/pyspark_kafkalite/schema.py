"""The columns of a topic in Spark: those of `format("kafka")`.

Pure, without PySpark: types are the text of Spark's DDL.
"""

from collections.abc import Iterable, Sequence

from pyspark_kafkalite.errors import SchemaError

COLUMN_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""Each column of the source with its type, in the order of the schema."""

HEADERS = "headers"


def default_columns(*, headers: bool) -> tuple[str, ...]:
    """Return the columns of the schema without a choice of the user.

    Arguments:
        headers: the option `includeHeaders`.
    """
    return tuple(name for name in COLUMN_TYPES if headers or name != HEADERS)


def ddl(columns: Iterable[str]) -> str:
    """Return the schema of columns as the text of Spark's DDL."""
    return ", ".join(f"`{name}` {COLUMN_TYPES[name]}" for name in columns)


def check_columns(fields: Sequence[tuple[str, str]], *, headers: bool) -> tuple[str, ...]:
    """Return the names of the columns of a schema.

    Arguments:
        fields: name and type (`simpleString` of PySpark) of each column.
        headers: the option `includeHeaders`.

    Raises:
        SchemaError: a column does not exist, has another type, or occurs twice.
    """
    known = default_columns(headers=headers)
    for name, column_type in fields:
        if name == HEADERS and not headers:
            raise SchemaError('schema: column headers needs the option includeHeaders "true"')
        if name not in known:
            raise SchemaError(f"schema: column {name!r} does not exist, expected some of {', '.join(known)}")
        if column_type != COLUMN_TYPES[name]:
            raise SchemaError(f"schema: column {name} has type {column_type}, expected {COLUMN_TYPES[name]}")
    names = tuple(name for name, _ in fields)
    if len(set(names)) != len(names):
        raise SchemaError(f"schema: a column occurs twice in {', '.join(names)}")
    return names
