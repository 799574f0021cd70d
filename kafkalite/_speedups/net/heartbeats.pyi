from collections.abc import Callable
from typing import final

from kafkalite._speedups.net.framing import FrameInterceptor

@final
class Heartbeats(FrameInterceptor):
    def __init__(self) -> None: ...
    def register_callbacks(
        self,
        *,
        classic: Callable[[str, str, str | None, int], bool] | None,
        consumer: Callable[[str, str, str | None, int, str | None, str], int | None] | None,
    ) -> None:
        """Begin to answer heartbeats that change nothing; before, and with None, all are left to the dispatcher.

        Arguments:
            classic: told group, member id, instance id and generation of a Heartbeat; whether it changes nothing.
            consumer: told group, member id, instance id, member epoch, the client's name and its host of a
                ConsumerGroupHeartbeat without news; the heartbeat interval to answer with (ms), or None where the
                heartbeat changes something.
        """
