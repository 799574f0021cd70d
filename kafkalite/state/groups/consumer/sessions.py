"""Sessions of the members of consumer groups.

They are not durable: after a replay every member has its whole session timeout again.
"""

__all__ = ["MemberSession"]


class MemberSession:
    """One member's. All times in ms, on the monotonic clock.

    Attributes:
        heard_ms: when the member was heard last.
        timeout_ms: for how long it may be silent.
        timer_ms: when the timer looks: never later than the session is over.
    """

    __slots__ = ("heartbeat_ms", "timeout_ms", "timer_ms")

    def __init__(self, heartbeat_ms: int, timeout_ms: int) -> None:
        self.heartbeat_ms = heartbeat_ms
        self.timeout_ms = timeout_ms
        self.timer_ms = heartbeat_ms + timeout_ms

    @property
    def over_ms(self) -> int:
        return self.heartbeat_ms + self.timeout_ms
