"""Chooses the columns of a Parquet file that have a dictionary. Needs pyarrow."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

SAMPLE_ROWS = 2000
LEAST_ROWS = 1000
"""Fewer rows do not show whether values repeat."""
DISTINCT = 0.95
"""Share of a sample: of m rows with D equally frequent values about m / 2D repeat one, 5 % if D is 20,000."""


def dictionary_columns(rows: "pyarrow.RecordBatch") -> list[str]:
    """Return the columns, by their paths in Parquet, that have a dictionary in a file that begins with some rows.

    A dictionary costs more time than plain encoding, and saves little if most values differ: columns with more than
    about 20,000 values have none, unless there are fewer than 1,000 rows. Nested columns always have one.
    """
    import pyarrow

    distinct = set()
    if rows.num_rows >= LEAST_ROWS:
        sample = pyarrow.array(range(0, rows.num_rows, max(1, rows.num_rows // SAMPLE_ROWS)))
        columns = zip(rows.schema.names, rows.columns, strict=True)
        distinct = {name for name, column in columns if _is_counted(column) and _mostly_distinct(column.take(sample))}
    return [path for path in _paths(rows.schema) if path not in distinct]


def _is_counted(column: "pyarrow.Array") -> bool:
    """Return whether Arrow counts the values of such a column."""
    from pyarrow import types

    binary = (types.is_binary, types.is_string, types.is_large_binary, types.is_large_string)
    return types.is_primitive(column.type) or any(is_kind(column.type) for is_kind in binary)


def _mostly_distinct(sample: "pyarrow.Array") -> bool:
    from pyarrow import compute

    distinct: int = compute.count_distinct(sample).as_py()
    return distinct > DISTINCT * len(sample)


def _paths(schema: "pyarrow.Schema") -> list[str]:
    """Return the paths of all columns without children, as Parquet names them."""
    import pyarrow
    from pyarrow import parquet

    sink = pyarrow.BufferOutputStream()
    parquet.write_metadata(schema, sink)
    columns = parquet.read_metadata(pyarrow.BufferReader(sink.getvalue())).schema
    return [columns.column(number).path for number in range(len(columns))]
