"""The records of Fetch responses. Sizes are bytes."""

from collections.abc import Iterable
from types import GenericAlias
from typing import Generic, TypeVar, final

from typing_extensions import Buffer

from kafkalite.errors import CorruptRecordError
from kafkalite_sdk._speedups.column_builder import ColumnBuilder
from kafkalite_sdk._speedups.consumer_records import Record, RecordDecoder

__all__ = ["FetchedRecords"]

_K = TypeVar("_K", covariant=True)
_V = TypeVar("_V", covariant=True)

@final
class FetchedRecords(Generic[_K, _V]):
    """The records of one partition in one Fetch response. The batches are read by `take`.

    Arguments:
        decoder: how to decode them.
        topic, partition: of the records.
        data: the batches; they stay exported as long as this object exists.
        position: offset of the first record to return; records below it are skipped.
        aborted: producer id and first offset of aborted transactions, from the response.

    Attributes:
        position: offset of the next record that `take` returns; behind skipped ones.
        leader_epoch: of the last batch that was read, -1 = unknown.
        end_offset, end_epoch: offset behind the last batch and its leader epoch, as the headers claim.
        continues: the headers are plausible and advance the position: `end_offset` may be fetched next.
        size: of the data in bytes; `detach` does not change it.
        done: all records have been taken, or `error` is set.
        error: why the records at `position` and behind it cannot be read.
        open_bytes: memory of the open batch, or of the next one that is decompressed; 0 = there is none.
        waits: the next batch is large, and must be decompressed by `decompress`, in a thread if need be.
    """

    def __new__(
        cls,
        decoder: RecordDecoder[_K, _V],
        topic: str,
        partition: int,
        data: Buffer,
        position: int,
        aborted: Iterable[tuple[int, int]] = (),
    ) -> FetchedRecords[_K, _V]: ...
    @classmethod
    def __class_getitem__(cls, types: object, /) -> GenericAlias: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def end_epoch(self) -> int: ...
    @property
    def continues(self) -> bool: ...
    @property
    def size(self) -> int: ...
    @property
    def done(self) -> bool: ...
    @property
    def error(self) -> CorruptRecordError | None: ...
    @property
    def waits(self) -> bool: ...
    @property
    def open_bytes(self) -> int: ...
    def close_batch(self) -> bool:
        """Free the memory of `open_bytes`; the batch is decompressed again when it is read.

        Returns: False if that is not possible: a thread decompresses it, or its bytes are not kept.
        """
    def take(self, records: list[Record[_K, _V]], records_max: int) -> int:
        """Append at most `records_max` records to a list. Return their number; 0 = see `done`, `error` and `waits`."""
    def take_columns(self, columns: ColumnBuilder, end: int = ...) -> int:
        """Append records to columns until these are full. Return their number; 0 = see `done`, `error` and `waits`.

        Arguments:
            columns: the columns.
            end: records from this offset on are not read; the position is `end` once all records below it were read.

        Raises:
            MemoryError: there is no memory for one record; the position stays.
        """
    def detach(self) -> None:
        """Copy the batches that are not open yet: the data of the argument is not needed any more."""
    def decompress(self) -> None:
        """Decompress the batch that `take` waits for. May run in a thread; `take` is not called meanwhile."""
