"""HTTP clients that post flights over connections of their own; a request without a response is sent again.

A service that ends gracefully answers each request that it has read, so a repeated request was not processed before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from tests.kit.flights import Acknowledged, Flight

RECONNECT_S = 0.05


class Visitors:
    """Posts the flights in order; `acknowledged` has partition and offset of each.

    Arguments:
        port: of the service.
        schedule: what to post.
        connections: how many at the same time.
    """

    def __init__(self, port: int, schedule: Sequence[Flight], connections: int) -> None:
        self.acknowledged = Acknowledged(max(flight.row for flight in schedule) + 1)
        self.repeated = 0
        self._port = port
        self._schedule: Iterator[Flight] = iter(schedule)
        self._connections = connections
        self._progress = asyncio.Event()

    async def run(self) -> None:
        """Post everything."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._connections):
                tasks.create_task(self._visit())

    async def until(self, count: int) -> None:
        """Wait until so many flights are acknowledged."""
        while self.acknowledged.count < count:
            self._progress.clear()
            await self._progress.wait()

    async def _visit(self) -> None:
        flight = next(self._schedule, None)
        while flight is not None:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except ConnectionRefusedError:
                await self._pause()
                continue
            try:
                while flight is not None:
                    await self._post(flight, reader, writer)
                    flight = next(self._schedule, None)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.repeated += 1
            finally:
                writer.transport.abort()

    @staticmethod
    async def _pause() -> None:
        """The service opens its port without an event that a client can wait for."""
        elapsed = asyncio.Event()
        asyncio.get_running_loop().call_later(RECONNECT_S, elapsed.set)
        await elapsed.wait()

    async def _post(self, flight: Flight, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key = b"" if flight.key is None else b"X-Key: %s\r\n" % flight.key
        head = b"POST /flights HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n" % (key, len(flight.value))
        writer.write(head + flight.value)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        length = next(int(line.split(":")[1]) for line in answer if line.lower().startswith("content-length:"))
        text = await reader.readexactly(length)
        assert answer[0].startswith("HTTP/1.1 200"), (answer, text)
        partition, offset = map(int, text.split())
        self.acknowledged.note(flight.row, partition, offset)
        self._progress.set()
