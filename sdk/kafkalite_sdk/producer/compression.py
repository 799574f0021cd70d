"""Compresses large batches of a producer in threads, so that the event loop is not blocked."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kafkalite_sdk._speedups.deliveries import ProducerBatch

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor  # imported with the first large batch

THREADS = 2


class Compression:
    """The threads, and what they compress.

    Arguments:
        loop: the event loop of the producer.
        codec, level: of the batches; level None = default of the codec.
        done: called in the loop with each batch that a thread has compressed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        codec: int,
        level: int | None,
        done: Callable[[ProducerBatch], object],
    ) -> None:
        self._loop = loop
        self._codec = codec
        self._level = level
        self._done = done
        self._executor: ThreadPoolExecutor | None = None

    def start(self, batches: deque[ProducerBatch]) -> None:
        """Compress batches in threads, and remove them from the queue. They are not sent before.

        Where no thread can be started, `build` compresses the batch in the loop.
        """
        while batches:
            batch = batches.popleft()
            if batch.done:
                continue
            try:
                job = self._submit(partial(batch.builder.compress, self._codec, self._level))
            except RuntimeError:  # "can't start new thread"
                continue
            batch.compressing = True
            job.add_done_callback(partial(self._ended, batch))

    def _submit(self, compress: Callable[[], None]) -> asyncio.Future[None]:
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(THREADS, "kafkalite-compress")
        return self._loop.run_in_executor(self._executor, compress)

    def _ended(self, batch: ProducerBatch, job: asyncio.Future[None]) -> None:
        """A thread has compressed a batch. If it failed, `build` compresses it again and raises the error."""
        if not job.cancelled():
            job.exception()
        self._done(batch)

    def end(self) -> None:
        """Release the threads."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
