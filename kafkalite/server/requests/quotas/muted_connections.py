"""Mutes connections of throttled clients: nothing is received from them until the throttle time has passed (KIP-219).

The response that throttles a client, and those of its earlier requests, are sent at once. A muted connection costs one
timer, and one entry here.
"""

from kafkalite._speedups.net.framing import Connection, Reply
from kafkalite.clock import Clock, Timer


class Mute:
    """Why nothing is received from a connection."""

    __slots__ = ("reply", "timer", "until")

    def __init__(self, reply: Reply, until: float, timer: Timer) -> None:
        self.reply = reply
        self.until = until
        self.timer = timer


class MutedConnections:
    """The muted connections of a broker.

    Arguments:
        clock: for their ends.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._muted: dict[Connection, Mute] = {}

    def __len__(self) -> int:
        """Return their number."""
        return len(self._muted)

    def mute(self, reply: Reply, throttle_ms: int) -> None:
        """Receive nothing after a request for a time in ms; requests that were parsed before may extend it."""
        connection = reply.connection
        if connection.closed:
            return
        until = self._clock.monotonic() + throttle_ms / 1000
        known = self._muted.get(connection)
        if known is not None:
            known.until = max(known.until, until)
            return
        reply.pause()
        self._muted[connection] = Mute(reply, until, self._clock.call_at(until, self._end, connection))

    def disconnected(self, connection: Connection) -> None:
        """A connection is closed."""
        known = self._muted.pop(connection, None)
        if known is not None:
            known.timer.cancel()

    def release(self) -> None:
        """End all of them: the broker stops."""
        for connection in list(self._muted):
            muted = self._muted.pop(connection)
            muted.timer.cancel()
            muted.reply.resume(pinned=False)

    def _end(self, connection: Connection) -> None:
        muted = self._muted[connection]
        if muted.until > self._clock.monotonic():
            muted.timer = self._clock.call_at(muted.until, self._end, connection)
        else:
            del self._muted[connection]
            muted.reply.resume(pinned=False)
