"""Runs a server of ZooKeeper's protocol in its own thread, with its tree in memory, for clusters of a test."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar

from kafkalite.clock import LoopClock
from kafkalite.testing.fake_zookeeper import FakeZooKeeper

T = TypeVar("T")

DEADLINE_S = 30.0


class ZooKeeperThread:
    """Runs a `FakeZooKeeper` between `__enter__` and `__exit__`; clients connect to its `address` (HOST:PORT)."""

    def __init__(self) -> None:
        self._ready: Future[str] = Future()
        self._stop: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        self._server: FakeZooKeeper
        self._thread = threading.Thread(target=self._run, name="kafkalite-zookeeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.address = self._ready.result(DEADLINE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE_S)

    def call(self, function: Callable[[FakeZooKeeper], T]) -> T:
        """Call a function with the server in its thread, and return its result."""

        async def called() -> T:
            return function(self._server)

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(DEADLINE_S)

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
        clock = LoopClock(self._loop)
        self._server = FakeZooKeeper(clock)
        listening = await self._loop.create_server(self._server.accept, "127.0.0.1", 0)
        host, port = listening.sockets[0].getsockname()
        self._ready.set_result(f"{host}:{port}")
        await self._stop.wait()
        clock.close()
        listening.close()
        for session in self._server.sessions.values():
            if session.connection is not None:
                session.connection.transport.abort()
