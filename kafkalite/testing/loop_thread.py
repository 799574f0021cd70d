"""Runs an event loop with a server in a thread of its own, for synchronous tests."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

R = TypeVar("R")
S = TypeVar("S")

DEADLINE_S = 30.0


class LoopThread(ABC, Generic[S]):
    """A server of type S that runs between `__enter__` and `__exit__`.

    Arguments:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._ready: Future[S] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._name = name
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        """Start the server. Raises what its start raises, TimeoutError."""
        self._thread.start()
        self._ready.result(DEADLINE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server and wait for its thread; raises TimeoutError."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE_S)
        if self._thread.is_alive():
            raise TimeoutError(f"{self._name} did not stop within {DEADLINE_S:.0f} s")

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the loop of the server and wait for its result."""
        assert self._loop is not None, "the server runs between __enter__ and __exit__"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    @abstractmethod
    async def _start(self) -> S:
        """Start the server."""

    @abstractmethod
    async def _end(self, server: S) -> None:
        """Stop the server."""

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # handed to the thread that waits for the server
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await self._start()
        try:
            self._ready.set_result(server)
            await self._stop.wait()
        finally:
            await self._end(server)
