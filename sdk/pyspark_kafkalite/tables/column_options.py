"""Chooses from the first rows of a Parquet file which columns have a dictionary and statistics. Needs pyarrow."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow

SAMPLE_ROWS = 1000
LONG_BYTES = 64
"""Mean size of values whose minimum and maximum help no reader: they are longer than what a filter compares."""


class ColumnOptions(NamedTuple):
    """Columns by their path in Parquet.

    Attributes:
        use_dictionary: those with a dictionary.
        write_statistics: those with statistics.
    """

    use_dictionary: list[str]
    write_statistics: list[str]


def column_options(rows: "pyarrow.RecordBatch") -> ColumnOptions:
    """Return the options of a file that begins with some rows.

    A dictionary of values that differ is given up at 1 MiB, when it has cost more time than the encoding. Nested
    columns keep both.
    """
    sample = rows.slice(0, SAMPLE_ROWS)
    columns = dict(zip(rows.schema.names, sample.columns, strict=True))
    distinct = {name for name, column in columns.items() if _mostly_distinct(column)}
    long = {name for name, column in columns.items() if _long(column)}
    paths = _paths(rows.schema)
    return ColumnOptions([path for path in paths if path not in distinct], [path for path in paths if path not in long])


def _mostly_distinct(column: "pyarrow.Array") -> bool:
    """Return whether more than half of the values differ; False for types that cannot be counted."""
    from pyarrow import compute, types

    countable = types.is_primitive(column.type) or _is_binary(column)
    return countable and 2 * compute.count_distinct(column).as_py() > len(column)


def _long(column: "pyarrow.Array") -> bool:
    from pyarrow import compute

    return _is_binary(column) and (compute.mean(compute.binary_length(column)).as_py() or 0) > LONG_BYTES


def _is_binary(column: "pyarrow.Array") -> bool:
    from pyarrow import types

    kinds = (types.is_binary, types.is_string, types.is_large_binary, types.is_large_string)
    return any(is_kind(column.type) for is_kind in kinds)


def _paths(schema: "pyarrow.Schema") -> list[str]:
    """Return the paths of all columns without children, as Parquet names them."""
    import pyarrow
    from pyarrow import parquet

    sink = pyarrow.BufferOutputStream()
    parquet.write_metadata(schema, sink)
    columns = parquet.read_metadata(pyarrow.BufferReader(sink.getvalue())).schema
    return [columns.column(number).path for number in range(len(columns))]
