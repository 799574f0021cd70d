"""The blocking reader of ranges of offsets: the next batch is decoded while the application uses the last one."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Literal, Unpack

from kafkalite_sdk._speedups.column_batch import COLUMNS, ColumnBatch
from kafkalite_sdk.blocking.client import BlockingClient
from kafkalite_sdk.client.arguments import readable
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.columns import reader as asynchronous
from kafkalite_sdk.columns.reader import BATCH_BYTES, FETCHES, TIMEOUT_S, ReaderOptions


class _LoopReader(asynchronous.ColumnReader):
    """A column reader of the SDK."""

    @property
    def cluster(self) -> ClusterClient:
        return self._client


class _Ahead:
    """Batches of a range; one is decoded ahead. In the loop.

    Arguments:
        batches: of the range.
    """

    def __init__(self, batches: AsyncGenerator[ColumnBatch, None]) -> None:
        self._batches = batches
        self._next: asyncio.Task[ColumnBatch | None] | None = None
        self._returned: list[ColumnBatch | None] = []

    async def _step(self) -> ColumnBatch | None:
        return await anext(self._batches, None)

    async def next(self) -> ColumnBatch | None:
        """Return the next batch, None = there is none. A cancelled call loses no batch."""
        if self._returned:
            return self._returned.pop()
        if self._next is None:
            self._next = asyncio.ensure_future(self._step())
        await asyncio.wait((self._next,))
        step, self._next = self._next, None
        batch = step.result()
        if batch is not None:
            self._next = asyncio.ensure_future(self._step())
        return batch

    def give_back(self, batch: ColumnBatch | None) -> None:
        """The application has not received a batch: the next call returns it."""
        self._returned.append(batch)

    async def close(self) -> None:
        """End the requests of the range."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait((self._next,))
            if not self._next.cancelled():
                self._next.exception()  # of a batch that was not requested
        await self._batches.aclose()


class ColumnReader(BlockingClient[_LoopReader]):
    """Reads ranges of offsets as columns, for programs without an event loop. Any number of threads may use it.

        with ColumnReader("localhost:9092") as reader:
            for batch in reader.read("orders", 0, 0, 1_000_000):
                frame = polars.DataFrame(batch)

    Settings and errors are those of `kafkalite_sdk.columns.ColumnReader`. Memory: as there, and one more batch.

    Arguments: as of `kafkalite_sdk.columns.ColumnReader`.
    Raises: as `kafkalite_sdk.columns.ColumnReader`.
    """

    @readable("kafkalite_sdk.columns.ReaderOptions")
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        fetches: int = FETCHES,
        environment: Environment | None = None,
        **options: Unpack[ReaderOptions],
    ) -> None:
        client = _LoopReader(bootstrap_servers, fetches=fetches, environment=environment, **options)
        super().__init__(client, client.cluster)

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        columns: Iterable[str] = COLUMNS,
        batch_bytes: int = BATCH_BYTES,
        timestamp_unit: Literal["ms", "us"] = "ms",
        timeout: float = TIMEOUT_S,
        topic_id: str | None = None,
    ) -> Iterator[ColumnBatch]:
        """Yield the records of a range, in order, in batches.

        Arguments: as of `kafkalite_sdk.columns.ColumnReader.read`.
        Raises: as `kafkalite_sdk.columns.ColumnReader.read`.
        """
        thread = self._thread()
        ahead = _Ahead(
            self._client.read(
                topic,
                partition,
                start,
                end,
                columns=columns,
                batch_bytes=batch_bytes,
                timestamp_unit=timestamp_unit,
                timeout=timeout,
                topic_id=topic_id,
            )
        )
        try:
            while (batch := thread.run_or_undo(ahead.give_back, ahead.next)) is not None:
                yield batch
        finally:
            if not thread.ended and not thread.forked:
                thread.run(ahead.close)
