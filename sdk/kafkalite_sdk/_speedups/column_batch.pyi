"""Batches of columns, exported through the Arrow PyCapsule interface."""

from typing import Final, final

__all__ = ["COLUMNS", "ColumnBatch"]

COLUMNS: Final[tuple[str, ...]]

@final
class ColumnBatch:
    """Records as Arrow columns: `pyarrow.record_batch(batch)`, `polars.DataFrame(batch)`, or a table name in DuckDB.

    The types are those of Spark's Kafka source: key and value are binary, topic a string, partition and timestampType
    int32, offset int64, timestamp a timestamp in UTC (ms or us), headers a list of (key string, value binary). Every
    column is nullable; only keys, values and values of headers are null. A record without a timestamp has -1.

    The buffers are shared with what is made of the batch. It is never changed.

    Attributes:
        num_rows: number of records, which `len` returns, too.
        nbytes: size of the records in bytes; the buffers may be twice as large.
        column_names: in the order of the columns.
        value_bytes: the values one after another, without a copy: all lines of a batch of lines.
    """

    def __init__(self, /, *args: object, **kwargs: object) -> None: ...
    def __len__(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def column_names(self) -> tuple[str, ...]: ...
    @property
    def value_bytes(self) -> memoryview: ...
    def __arrow_c_schema__(self) -> object:
        """Return a capsule `arrow_schema`: a struct with the columns as fields."""
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Return capsules of the schema and of a struct array. `requested_schema` has no effect."""
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule of a stream with this batch. `requested_schema` has no effect."""
