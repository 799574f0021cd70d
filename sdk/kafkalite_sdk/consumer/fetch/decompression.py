"""Decompresses large batches of a consumer in a thread: on the loop one of them would delay all other tasks.

Invariants:
1. The thread exists from the first large batch to the close. A batch for which no thread can be started is decompressed
   on the loop: its partition waits for no other event.
2. A batch in work belongs to the thread: `Fetcher.take` does not read it before `decompressed` is called on the loop.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from kafkalite_sdk._speedups.fetched_records import FetchedRecords
from kafkalite_sdk.consumer.fetch.fetcher import Fetcher

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor  # imported with the first large batch

LOGGER = logging.getLogger("kafkalite_sdk.consumer.decompression")

K = TypeVar("K")
V = TypeVar("V")
OFFLOAD_BYTES = 256 << 10
"""Compressed size from which a batch is decompressed in the thread; a smaller one takes about a millisecond at most."""


class Decompression(Generic[K, V]):
    """The thread of one consumer.

    Arguments:
        fetcher: whose batches are decompressed.
        changed: called on the loop when records have become readable.
        guard: of the consumer's `Owner`: an exception behind a job fails the consumer.
    """

    def __init__(
        self,
        fetcher: Fetcher[K, V],
        changed: Callable[[], object],
        guard: Callable[[Callable[..., object]], Callable[..., None]],
    ) -> None:
        self._fetcher = fetcher
        self._changed = changed
        self._guard = guard
        self._executor: ThreadPoolExecutor | None = None
        self._warned = False

    def start_jobs(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start what the fetcher waits for."""
        for job in self._fetcher.jobs():
            try:
                future = self._submitted(job, loop)
            except (RuntimeError, OSError, MemoryError) as error:
                self._decompress_here(job, error)
            else:
                future.add_done_callback(self._guard(partial(self._ended, job)))

    def _submitted(self, job: FetchedRecords[K, V], loop: asyncio.AbstractEventLoop) -> "asyncio.Future[None]":
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(1, "kafkalite-decompress")
        return loop.run_in_executor(self._executor, job.decompress)

    def _decompress_here(self, job: FetchedRecords[K, V], error: Exception) -> None:
        """No thread can be started, for example at a limit of processes; the next batch tries again."""
        self.close()  # it has queued the job
        if not self._warned:
            self._warned = True
            LOGGER.warning("large batches are decompressed on the event loop, no thread can be started: %r", error)
        job.decompress()
        self._fetcher.decompressed(job)
        self._changed()

    def _ended(self, job: FetchedRecords[K, V], future: "asyncio.Future[None]") -> None:
        if not future.cancelled():
            future.result()
            self._fetcher.decompressed(job)
            self._changed()

    def close(self) -> None:
        """End the thread, after the batch that it works on."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None
