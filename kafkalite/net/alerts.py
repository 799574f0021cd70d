"""Sends the alert of a failed TLS handshake, with which the client learns the reason.

Event loops close the connection without it: asyncio and uvloop discard what OpenSSL has written when a handshake fails.
A Java client then retries without end, as after a lost connection; an alert is a fatal `SslAuthenticationException`
(Kafka's SslTransportLayer).
"""

import logging
import socket
import ssl
from contextvars import ContextVar
from typing import Any

LOGGER = logging.getLogger("kafkalite.net")
CONNECTED: ContextVar[socket.socket | None] = ContextVar("connected", default=None)
"""The socket of the connection whose handshake runs in this context."""


class AlertedObject(ssl.SSLObject):
    """The server side of a connection, which sends the alert of its failed handshake.

    Attributes:
        outgoing: the bytes for the client.
    """

    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        """As `ssl.SSLObject.do_handshake`."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            connected = CONNECTED.get()
            if connected is not None and (alert := self.outgoing.read()):
                _send(connected, alert)
            raise


def _send(connected: socket.socket, alert: bytes) -> None:
    """Send an alert if the socket accepts it now: the earlier bytes of the handshake have left."""
    try:
        connected.send(alert)
    except OSError as error:
        LOGGER.debug("cannot send the alert of a failed handshake: %s", error)


class AlertingContext(ssl.SSLContext):
    """A context for the server side of connections: they send the alert of a failed handshake."""

    sslobject_class = AlertedObject

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *more: Any, **named: Any) -> ssl.SSLObject:
        """As `ssl.SSLContext.wrap_bio`."""
        found = super().wrap_bio(incoming, outgoing, *more, **named)
        assert isinstance(found, AlertedObject)
        found.outgoing = outgoing
        return found
