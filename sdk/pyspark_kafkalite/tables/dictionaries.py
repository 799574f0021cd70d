"""Chooses the columns of a Parquet file that have a dictionary. Needs pyarrow."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

LEAST_ROWS = 1000
"""Fewer rows do not show whether values repeat."""


def dictionary_columns(rows: "pyarrow.RecordBatch") -> list[str]:
    """Return the columns, by their paths in Parquet, that have a dictionary in a file that begins with some rows.

    A dictionary costs more time than plain encoding, and saves little if most values differ: those columns have none,
    unless there are fewer than 1,000 rows. Nested columns always have one.
    """
    distinct = set()
    if rows.num_rows >= LEAST_ROWS:
        columns = zip(rows.schema.names, rows.columns, strict=True)
        distinct = {name for name, column in columns if _mostly_distinct(column)}
    return [path for path in _paths(rows.schema) if path not in distinct]


def _mostly_distinct(column: "pyarrow.Array") -> bool:
    """Return whether more than half of the values differ; False for types that are not counted."""
    from pyarrow import compute, types

    binary = (types.is_binary, types.is_string, types.is_large_binary, types.is_large_string)
    counted = types.is_primitive(column.type) or any(is_kind(column.type) for is_kind in binary)
    return counted and 2 * compute.count_distinct(column).as_py() > len(column)


def _paths(schema: "pyarrow.Schema") -> list[str]:
    """Return the paths of all columns without children, as Parquet names them."""
    import pyarrow
    from pyarrow import parquet

    sink = pyarrow.BufferOutputStream()
    parquet.write_metadata(schema, sink)
    columns = parquet.read_metadata(pyarrow.BufferReader(sink.getvalue())).schema
    return [columns.column(number).path for number in range(len(columns))]
