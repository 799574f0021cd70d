"""Listening addresses of a broker: binding, the drain at the end, and the reactor behind them."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from kafkalite._speedups.connection import Reactor
from kafkalite._speedups.framing import Limits


class Listener:
    """Serves any number of addresses of one loop through one reactor."""

    def __init__(self, loop: asyncio.AbstractEventLoop, service: Any, limits: Limits | None = None) -> None:
        self.reactor = Reactor(loop, service, limits)

    def bind(self, host: str, port: int, name: str = "PLAINTEXT") -> tuple[str, int]:
        """Listen on `host`:`port` (0 = a free port); the address bound is returned."""
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(address)
            listening.listen(1024)
            self.reactor.listen(listening, name)
        except BaseException:
            listening.close()
            raise
        bound = listening.getsockname()
        return bound[0], bound[1]

    async def close(self, grace_s: float = 5.0) -> None:
        """Accept no more, wait up to `grace_s` seconds for open answers, close everything."""
        self.reactor.unlisten()
        for connection in self.reactor.connections():
            connection.eof()
        try:
            await asyncio.wait_for(self.reactor.wait_drained(), grace_s)
        except TimeoutError:
            for connection in self.reactor.connections():
                connection.close("the broker stops")
            await self.reactor.wait_drained()
        self.reactor.dispose()
