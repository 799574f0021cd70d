"""An async iterator over batches of records, without a coroutine for each record."""

from collections.abc import Awaitable, Coroutine, Generator
from types import GenericAlias
from typing import Any, Generic, Self, TypeVar, final

__all__ = ["ReadyRecord", "RecordIterator"]

_R = TypeVar("_R")

@final
class ReadyRecord(Generic[_R]):
    """An awaitable that has its result. It may be awaited once."""

    def __await__(self) -> Generator[Any, None, _R]: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> _R: ...
    def send(self, _value: object) -> _R: ...
    def throw(self, *error: Any) -> _R: ...
    def close(self) -> None: ...

class RecordIterator(Generic[_R]):
    """The records of a batch, then those of the next one; a subclass has `next_record` for a batch without records.

    Attributes:
        batch: the records that were taken last.
        left: the number of them that were not returned yet.
    """

    @classmethod
    def __class_getitem__(cls, kind: object, /) -> GenericAlias: ...
    @property
    def batch(self) -> list[_R]: ...
    @property
    def left(self) -> int: ...
    def next_record(self) -> Coroutine[Any, Any, _R]:
        """Wait for records, and return the first one; StopAsyncIteration at the end."""

    def rest(self) -> list[_R]:
        """The records that were not returned yet."""

    def take(self) -> _R:
        """Return the next record, which must exist."""

    def take_all(self) -> list[_R]:
        """Return the records that were not returned yet, and count them as returned."""

    def refill(self, records: list[_R]) -> None:
        """Return these records next, in place of those that are left."""

    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Awaitable[_R]: ...
