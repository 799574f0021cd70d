from collections.abc import Callable
from typing import Any, final

from kafkalite._speedups.net.framing import FrameInterceptor

@final
class Heartbeats(FrameInterceptor):
    has_quota: Callable[[Any, str | None], bool] | None
    """Called with the connection and the client id; whether a quota limits the client: its heartbeats are dispatched.
    None = no quota limits the time of requests.
    """

    def __init__(self) -> None: ...
    def register_callbacks(
        self,
        *,
        classic: Callable[[str, str, str | None, int], bool] | None,
        consumer: Callable[[str, str, str | None, int, str | None, str], int | None] | None,
        authorized: Callable[[Any, str], bool] | None = None,
    ) -> None:
        """Set the callbacks that serve heartbeats without changes; without them all heartbeats are dispatched.

        Arguments:
            classic: called with group, member id, instance id and generation of a Heartbeat; returns whether the
                heartbeat changes nothing.
            consumer: called with group, member id, instance id, member epoch, client id and client host of a
                ConsumerGroupHeartbeat without changes; returns the heartbeat interval of the response in ms, or None
                if the heartbeat changes something.
            authorized: called with the connection and the group before either; returns whether the client is known to
                be allowed to read the group. None = every client is.
        """
