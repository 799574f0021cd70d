"""The driver for tests: connections without sockets, in the same passes and over the same pipeline.

The client half is a queue of bytes each way. Nothing happens by itself: `send` opens a pass, `pump` runs the passes
that completions have asked for.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalite._speedups.net.framing import Connection, Hub, Limits, Service


def standing_still() -> int:
    """A clock for code that runs in virtual time, which does not move while code runs."""
    return 0


class MemoryConnection(Connection):
    """The broker's half. `window` is how many bytes the peer takes before it reads.

    `inbox` has the part of a socket's buffer in the kernel, so it does not count as memory for requests.
    """

    def __init__(self, hub: MemoryHub, listener: str, peer: tuple[str, int], window: int | None) -> None:
        super().__init__(hub, listener, peer, ("memory", 0))
        self.inbox = bytearray()
        self.sent = bytearray()
        self.window = window
        self.finished = False  # the client has closed its sending side, behind what is in `inbox`

    def transmit(self) -> None:
        self.advance(0)
        while not self.closed and (runs := self.outgoing()):
            run = runs[0] if isinstance(runs[0], bytes) else runs[0].read()
            room = len(run) if self.window is None else max(0, self.window - len(self.sent))
            self.sent += run[:room]
            self.advance(min(room, len(run)))
            if room < len(run):
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

    def __init__(
        self, service: Service, limits: Limits | None = None, clock: Callable[[], int] = standing_still
    ) -> None:
        """`clock` is the one of time budgets, in ns: where time does not pass, every pass does all there is to do."""
        super().__init__(service, limits, clock)
        self.wanted = False

    def wake(self) -> None:
        self.wanted = True

    def pump(self) -> None:
        """Run passes until none is asked for."""
        while self.wanted:
            self.wanted = False
            self.run()

    def connect(
        self, listener: str = "memory", peer: tuple[str, int] = ("memory", 1), window: int | None = None
    ) -> Client:
        """A new connection; its client half is returned."""
        connection = MemoryConnection(self, listener, peer, window)
        self.accept_connection(connection)
        self.pump()
        return Client(self, connection)


class Client:
    """The client half: bytes to the service, bytes of its answers."""

    def __init__(self, hub: MemoryHub, connection: MemoryConnection) -> None:
        self.hub = hub
        self.connection = connection

    def send(self, data: bytes) -> None:
        """One pass that begins with these bytes having arrived; what a stalled connection leaves comes later."""
        self.connection.inbox += data
        self.hub.begin()
        self.connection.touch()
        self.connection.update_interest()
        self.hub.end()
        self.hub.pump()

    def received(self) -> bytes:
        """Take what has arrived; this makes room for more."""
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
        """The connection is gone, as by a reset."""
        self.connection.close("reset by the peer")
        self.hub.pump()
