"""Sessions of the members of consumer groups, and how long a heartbeat needs no second look.

Whoever was answered within a `Calm` may repeat the very same heartbeat, and be answered the same, as long as the calm
stands: it is enough to move the session on. Laws:
1. A calm is of one group, and ends for ever with the first thing that may lead to another answer: a record of the
   group, topics that changed, settings that changed, the end of the machine's life.
2. Nothing of this is durable. After a replay every session starts anew.
"""

from typing import NamedTuple

__all__ = ["Calm", "Plain", "Session"]


class Calm:
    """A time in which a group does not change. `stands`: it has not ended."""

    __slots__ = ("stands",)

    def __init__(self) -> None:
        self.stands = True


class Session:
    """One member's. All times in ms, on the monotonic clock.

    Attributes:
        heard_ms: when the member was heard last.
        timeout_ms: for how long it may be silent.
        timer_ms: when the timer looks: never later than the session is over.
    """

    __slots__ = ("heard_ms", "timeout_ms", "timer_ms")

    def __init__(self, heard_ms: int, timeout_ms: int) -> None:
        self.heard_ms = heard_ms
        self.timeout_ms = timeout_ms
        self.timer_ms = heard_ms + timeout_ms

    @property
    def over_ms(self) -> int:
        return self.heard_ms + self.timeout_ms


class Plain(NamedTuple):
    """A heartbeat without news was noted, and leads to nothing.

    Arguments:
        interval_ms: the heartbeat interval of the answer.
        session: moved on; while the calm stands a repeated heartbeat does no more than to move it on again.
        calm: that of the group.
    """

    interval_ms: int
    session: Session
    calm: Calm
