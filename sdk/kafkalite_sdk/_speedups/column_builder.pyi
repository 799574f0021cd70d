"""Writes records into Arrow buffers. Sizes are bytes."""

from collections.abc import Iterable
from typing import Any, Literal, final

from kafkalite_sdk._speedups.column_batch import ColumnBatch
from kafkalite_sdk._speedups.consumer_records import Record

__all__ = ["ColumnBuilder"]

@final
class ColumnBuilder:
    """Collects records in columns, by `FetchedRecords.take`.

    Arguments:
        columns: names of `COLUMNS`, in the order of the batch.
        rows_max: largest number of records.
        bytes_max: the batch ends with the record that reaches it; at most 1 GiB.
        timestamp_unit: of the column `timestamp`, "ms" or "us".
        line_end: the batch has the column `value` only, whose values are lines that end with it; None = no lines.
        key_separator: a line begins with the key and this separator; None = without keys.

    Attributes:
        nbytes: of the records so far.
        full: `rows_max` or `bytes_max` is reached; there may be no memory for another record before that.

    Raises:
        TypeError, ValueError: an argument is not valid.
    """

    def __new__(
        cls,
        columns: Iterable[str] = ...,
        *,
        rows_max: int = ...,
        bytes_max: int = ...,
        timestamp_unit: Literal["ms", "us"] = "ms",
        line_end: bytes | None = None,
        key_separator: bytes | None = None,
    ) -> ColumnBuilder: ...
    def __len__(self) -> int: ...
    @property
    def bytes_max(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def full(self) -> bool: ...
    def add(self, record: Record[Any, Any]) -> bool:
        """Append a record that was read before. Return False if the batch is full, or ends before the record.

        Raises:
            CorruptRecordError: the record is the first one, and has a time that the unit cannot represent.
        """
    def finish(self) -> ColumnBatch:
        """Return the records as a batch, and begin another one."""
