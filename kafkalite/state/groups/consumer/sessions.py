"""Sessions of the members of consumer groups.

They are not durable: after a replay every member has its whole session timeout again.
"""


class MemberSession:
    """The session of one member. All times in ms on the monotonic clock.

    Attributes:
        heartbeat_ms: of the last heartbeat.
        timeout_ms: the session timeout.
        timer_ms: when the timer fires, not later than the end of the session.
    """

    __slots__ = ("heartbeat_ms", "timeout_ms", "timer_ms")

    def __init__(self, heartbeat_ms: int, timeout_ms: int) -> None:
        self.heartbeat_ms = heartbeat_ms
        self.timeout_ms = timeout_ms
        self.timer_ms = heartbeat_ms + timeout_ms

    @property
    def over_ms(self) -> int:
        return self.heartbeat_ms + self.timeout_ms
