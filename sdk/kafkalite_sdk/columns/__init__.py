"""Records as Arrow columns, without an Arrow library: `ColumnReader` reads ranges of offsets, independent of groups."""

from kafkalite_sdk._speedups.column_batch import COLUMNS, ColumnBatch
from kafkalite_sdk.columns.reader import ColumnReader, ReaderOptions

__all__ = ["COLUMNS", "ColumnBatch", "ColumnReader", "ReaderOptions"]
