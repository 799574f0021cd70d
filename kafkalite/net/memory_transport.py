"""Connections in memory, without sockets, for tests and simulations; the same framing and iterations as on sockets.

The client half has a queue of bytes in each direction. Nothing runs by itself: `send` begins an iteration, `pump` runs
the iterations scheduled by completed replies.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalite._speedups.net.framing import Connection, Hub, Limits, Service


def frozen_clock() -> int:
    """A clock for virtual time, which does not advance while code runs."""
    return 0


class MemoryConnection(Connection):
    """The broker's half. `window`: bytes that the peer accepts before it reads.

    `inbox` replaces the socket buffer of the kernel, so it does not count as request memory.
    """

    def __init__(
        self,
        hub: MemoryHub,
        listener: str,
        peer: tuple[str, int],
        window: int | None,
        local: tuple[str, int] = ("memory", 0),
    ) -> None:
        super().__init__(hub, listener, peer, local)
        self.inbox = bytearray()
        self.sent = bytearray()
        self.window = window
        self.finished = False  # the end of the stream is behind `inbox`

    def transmit(self) -> None:
        self.advance(0)
        while not self.closed and (runs := self.outgoing()):
            run = runs[0] if isinstance(runs[0], bytes) else runs[0].read()
            space = len(run) if self.window is None else max(0, self.window - len(self.sent))
            self.sent += run[:space]
            self.advance(min(space, len(run)))
            if space < len(run):
                return

    def update_interest(self) -> None:
        if self.inbox and not self.stalled:
            taken = self.feed(self.inbox)
            del self.inbox[:taken]
        if self.inbox:
            self.wait_for_memory()
        elif self.finished and not self.ended:
            self.eof()


class MemoryHub(Hub):
    """All connections of one service in memory."""

    def __init__(self, service: Service, limits: Limits | None = None, clock: Callable[[], int] = frozen_clock) -> None:
        """`clock`: for time budgets, in ns; with a constant clock every iteration completes all work."""
        super().__init__(service, limits, clock)
        self.wanted = False

    def wake(self) -> None:
        self.wanted = True

    def pump(self) -> None:
        """Run iterations until none is scheduled."""
        while self.wanted:
            self.wanted = False
            self.run()

    def connect(
        self, listener: str = "memory", peer: tuple[str, int] = ("memory", 1), window: int | None = None
    ) -> Client:
        """Open a connection and return its client half."""
        connection = MemoryConnection(self, listener, peer, window)
        self.accept_connection(connection)
        self.pump()
        return Client(self, connection)


class Client:
    """The client half: bytes to the service, bytes of its responses."""

    def __init__(self, hub: MemoryHub, connection: MemoryConnection) -> None:
        self.hub = hub
        self.connection = connection

    def send(self, data: bytes) -> None:
        """Deliver bytes and run an iteration; a stalled connection processes the rest later."""
        self.connection.inbox += data
        self.hub.begin()
        self.connection.touch()
        self.connection.update_interest()
        self.hub.end()
        self.hub.pump()

    def take_received(self) -> bytes:
        """Return the received bytes; the broker can then send more."""
        data = bytes(self.connection.sent)
        self.connection.sent.clear()
        self.hub.begin()
        self.connection.transmit()
        self.connection.update_interest()
        self.hub.end()
        self.hub.pump()
        return data

    def end(self) -> None:
        """Close the client's sending side."""
        self.connection.finished = True
        self.hub.begin()
        self.connection.hang_up()
        self.connection.update_interest()
        self.hub.end()
        self.hub.pump()

    def close(self) -> None:
        """Reset the connection."""
        self.connection.close("reset by the peer")
        self.hub.pump()
