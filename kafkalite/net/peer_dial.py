"""How a broker connects to the other ones: with the TLS context and the login of the listener between brokers."""

import asyncio
import ssl as ssl_module
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkalite.model import Endpoint
    from kafkalite.net.client.connection import Dial
    from kafkalite.net.sasl.steps import ClientMechanism


def ignore_rejection(_endpoint: "Endpoint", _reason: str) -> None:
    """Report nothing."""


class PeerDial(NamedTuple):
    """How connections to other brokers are made.

    Arguments:
        dial: connects; `net.client.connection.dial` describes arguments and errors.
        login: the SASL mechanism with the credentials of this broker; None: the listener between brokers has no SASL.
        rejected: called with the address of the other broker and the reason, when TLS or the login fails.
    """

    dial: "Dial"
    login: "ClientMechanism | None" = None
    rejected: Callable[["Endpoint", str], object] = ignore_rejection


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
