"""The connection of one consumer to ZooKeeper, through a proxy that lets its session expire."""

from __future__ import annotations

import asyncio

from kafkalite.net.client.connection import dial
from tests.kit.zookeeper_proxy import Fault, ZooKeeperProxy

HOST = "127.0.0.1"


class Link:
    """A proxy at `address`, for one consumer."""

    def __init__(self, proxy: ZooKeeperProxy, server: asyncio.Server) -> None:
        self._proxy = proxy
        self._server = server
        self.address = f"{HOST}:{server.sockets[0].getsockname()[1]}"

    @classmethod
    async def open(cls, zookeeper: str) -> Link:
        """Listen at a free port; `zookeeper` is host:port of the server."""
        host, port = zookeeper.split(":")
        proxy = ZooKeeperProxy(dial, host, int(port))
        return cls(proxy, await asyncio.get_running_loop().create_server(proxy.accept, HOST, 0))

    def interrupt(self) -> None:
        """Nothing passes any more, and new connections are closed."""
        self._proxy.refusing = True
        self._proxy.break_now(Fault.STALL)

    def resume(self) -> None:
        """Let new connections pass; old ones are reset."""
        self._proxy.break_now(Fault.RST)
        self._proxy.refusing = False

    def close(self) -> None:
        """Close the port and all connections."""
        self._proxy.close()
        self._server.close()
