from collections.abc import Callable
from typing import Protocol, final

from kafkalite._speedups.framing import Quick

class _Session(Protocol):
    heard_ms: int

class _Calm(Protocol):
    stands: bool

@final
class Heartbeats(Quick):
    def __init__(self) -> None: ...
    def ask(
        self,
        *,
        classic: Callable[[str, str, str | None, int], bool] | None,
        consumer: Callable[[str, str, str | None, int, str | None, str], tuple[int, _Session, _Calm] | None] | None,
        monotonic: Callable[[], float],
    ) -> None:
        """Begin to answer heartbeats that change nothing; before, and with None, all are left to the dispatcher.

        Arguments:
            classic: told group, member id, instance id and generation of a Heartbeat; whether it changes nothing.
            consumer: told group, member id, instance id, member epoch, the client's name and its host of a
                ConsumerGroupHeartbeat without news; the heartbeat interval to answer with (ms), the session that it
                moved on and the calm of the group, or None where it changes something. While that calm stands, the same
                heartbeat on the same connection moves the session on, and nobody is asked.
            monotonic: seconds of the clock of sessions.
        """
