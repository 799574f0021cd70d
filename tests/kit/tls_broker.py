"""A kafkalite broker with a TLS listener beside the plaintext one, through `Ports.listen`.

    python -m tests.kit.tls_broker DIRECTORY PLAINTEXT_PORT TLS_PORT

runs one on uvloop until SIGTERM. Its authority is DIRECTORY/tls/ca.pem.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import socket
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path

import uvloop

from kafkalite._speedups.net.framing import Limits, Service
from kafkalite.net.listener import Listener, SocketOptions
from kafkalite.net.transport import TransportHub
from kafkalite.server.broker import Broker
from kafkalite.server.process.ports import Ports
from tests.kit.certificates import Authority

SECURE = "SECURE"
HOST = "127.0.0.1"


class TlsBesidePlaintext:
    """The listener of a broker whose addresses named SECURE use TLS; arguments as `Listener`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        service: Service,
        limits: Limits | None = None,
        *,
        context: ssl.SSLContext,
        sockets: SocketOptions | None = None,
        refuse_from: int | None = None,
    ) -> None:
        self._plain = Listener(loop, service, limits, sockets=sockets, refuse_from=refuse_from)
        hub = TransportHub(loop, service, limits, ssl=context)
        self._secure = Listener(loop, service, limits, reactor=hub, sockets=sockets, refuse_from=refuse_from)

    def bind(self, host: str, port: int, name: str = "PLAINTEXT") -> tuple[str, int]:
        return (self._secure if name == SECURE else self._plain).bind(host, port, name)

    def inherit(self, listening: socket.socket, name: str = "PLAINTEXT") -> tuple[str, int]:
        return self._plain.inherit(listening, name)

    def limit(self, connections_max: int, connections_per_ip_max: int) -> None:
        for each in (self._plain, self._secure):
            each.limit(connections_max, connections_per_ip_max)

    def free_unused(self) -> None:
        for each in (self._plain, self._secure):
            each.free_unused()

    async def close(self, grace_s: float = 0.0) -> None:
        for each in (self._plain, self._secure):
            await each.close(grace_s)


def tls_broker(
    data: Path | None, context: ssl.SSLContext, ports: tuple[int, int], settings: Mapping[str, str] | None = None
) -> Broker:
    """Return a broker.

    Arguments:
        data: log directory; None = a temporary one.
        context: of the TLS listener.
        ports: of the plaintext and of the TLS listener.
        settings: more settings.
    """
    listeners = f"PLAINTEXT://{HOST}:{ports[0]},{SECURE}://{HOST}:{ports[1]}"
    own = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{SECURE}:PLAINTEXT",
    }
    listen = functools.partial(TlsBesidePlaintext, context=context)
    return Broker(None if data is None else str(data), {**own, **(settings or {})}, ports=Ports(listen=listen))


async def main(directory: Path, ports: tuple[int, int]) -> None:
    authority = Authority(directory / "tls")
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    context = authority.server_context(authority.issue("broker"))
    async with tls_broker(directory / "data", context, ports, {"offsets.topic.num.partitions": "4"}):
        await ended.wait()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), (int(sys.argv[2]), int(sys.argv[3]))))
