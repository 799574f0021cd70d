"""Runs a server of ZooKeeper's protocol in its own thread, with its tree in memory, for clusters of a test."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from kafkalite.clock import LoopClock
from kafkalite.testing.fake_zookeeper import FakeZooKeeper
from kafkalite.testing.loop_thread import LoopThread

T = TypeVar("T")


class ZooKeeperThread(LoopThread[FakeZooKeeper]):
    """Runs a `FakeZooKeeper` between `__enter__` and `__exit__`.

    Attributes:
        address: HOST:PORT, where clients connect.
    """

    address: str

    def __init__(self) -> None:
        super().__init__("kafkalite-zookeeper")
        self._clock: LoopClock
        self._listening: asyncio.Server

    def call(self, function: Callable[[FakeZooKeeper], T]) -> T:
        """Call a function with the server in its thread, and return its result."""

        async def apply() -> T:
            return function(self._ready.result())

        return self.run(apply())

    async def _start(self) -> FakeZooKeeper:
        loop = asyncio.get_running_loop()
        self._clock = LoopClock(loop)
        server = FakeZooKeeper(self._clock)
        self._listening = await loop.create_server(server.accept, "127.0.0.1", 0)
        host, port = self._listening.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return server

    async def _end(self, server: FakeZooKeeper) -> None:
        self._clock.close()
        self._listening.close()
        for session in server.sessions.values():
            if session.connection is not None:
                session.connection.transport.abort()
