"""Sends the rows of Arrow tables."""

from collections.abc import Generator
from typing import Any, final

from kafkalite_sdk._speedups.accumulator import RecordAccumulator
from kafkalite_sdk._speedups.arrow_rows import ArrowRows

__all__ = ["ColumnsDelivery", "send_columns"]

@final
class ColumnsDelivery:
    """The outcome of the rows of one call, an awaitable.

    Its result has one tuple for each batch that has rows of the call, in the order of its first row: topic, partition,
    offset of its first row (-1 = unknown, with acks=0), number of rows. The rows of a partition have its offsets in
    their order.
    """

    def __new__(cls, accumulator: RecordAccumulator, topic: str, tables: list[ArrowRows]) -> ColumnsDelivery: ...
    def __await__(self) -> Generator[Any, None, list[tuple[str, int, int, int]]]: ...
    def append(self) -> None:
        """Append the rows to the queues of their partitions, which are known now."""
    def done(self) -> bool:
        """Return whether all rows have an outcome."""
    def result(self) -> list[tuple[str, int, int, int]]:
        """Return the result. Raises the error of the first rows that have failed; RuntimeError: rows are open."""
    def run_ended(self, _run: object) -> None:
        """The rows of one batch have their outcome."""
    async def wait(self) -> list[tuple[str, int, int, int]]:
        """Wait for all rows, and return the result."""

def send_columns(
    accumulator: RecordAccumulator, topic: str, table: object, *, require_key: bool = False
) -> ColumnsDelivery:
    """Queue the rows of a table as records; all of them or none.

    Arguments:
        accumulator: the queues.
        topic: of the records.
        table: an object with `__arrow_c_stream__` or `__arrow_c_array__`.
        require_key: reject rows without a key.

    Raises: see `Producer.send_columns`.
    """
