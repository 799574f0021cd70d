"""Connects to other brokers with TLS."""

import asyncio
import ssl as ssl_module
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite.net.client.connection import Dial


class TlsDial:
    """Connects with the TLS context of the moment; its certificate may be replaced between two connections.

    Arguments:
        dial: connects; `net.client.connection.dial` describes arguments and errors.
        context: returns the context for the next connection.
    """

    def __init__(self, dial: "Dial", context: Callable[[], ssl_module.SSLContext]) -> None:
        self._dial = dial
        self._context = context

    async def __call__(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int, ssl: ssl_module.SSLContext | None
    ) -> None:
        """Connect with TLS. Arguments and errors as `dial`; a context that is given is used instead."""
        await self._dial(protocol, host, port, ssl or self._context())
