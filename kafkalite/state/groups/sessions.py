"""Sessions of members, and the timers that check whether they have expired.

A heartbeat sets no timer; it only extends the session. When the timer fires, it is set again if the session was
extended. Sessions still expire on time. They are not durable: after a replay every member has its whole session timeout
again.
"""

from dataclasses import dataclass

from kafkalite.state.effects import Effects, Now, TimerName

LOOK_MS = 250
SESSIONS_AT_ONCE = 100
"""After a replay, one step starts this number of sessions, which takes about half a millisecond."""


def look_at_ms(over_ms: int, now_ms: int) -> int:
    """When the timer of a session fires: up to `LOOK_MS` before the session expires, at a time shared with all other
    sessions, so that thousands of members wake the broker only a few times per second. If the session was not extended,
    the timer is set again for its end. All times in ms on the monotonic clock.
    """
    shared_ms = over_ms - over_ms % LOOK_MS
    return shared_ms if shared_ms > now_ms else over_ms


@dataclass(slots=True)
class MemberSession:
    """The session of one member. All times in ms on the monotonic clock.

    Arguments:
        timeout_ms: the session timeout.
        over_ms: when the session expires.
        timer_ms: when the timer fires, not later than the end of the session; None = it is not set.
    """

    timeout_ms: int
    over_ms: int = 0
    timer_ms: int | None = None

    def extend_without_timer(self, now_ms: int) -> bool:
        """Extend the session by its timeout if its timer need not be set for that; else nothing changes."""
        over_ms, timer_ms = now_ms + self.timeout_ms, self.timer_ms
        if timer_ms is None or over_ms < timer_ms:
            return False
        self.over_ms = over_ms
        return True

    def extend(self, timer: TimerName, effects: Effects, now: Now, for_ms: int | None = None) -> None:
        """Extend the session.

        Arguments:
            timer: the name of its timer.
            effects: receives the timer if it must be set.
            now: the time.
            for_ms: None = by the session timeout.
        """
        self.over_ms = now.ms + (self.timeout_ms if for_ms is None else for_ms)
        if self.timer_ms is None or self.over_ms < self.timer_ms:
            self._set_timer(timer, effects, now)

    def timer_fired(self, timer: TimerName, effects: Effects, now: Now) -> bool:
        """Whether the session has expired, when its timer has fired. If not, the timer is set again.

        Arguments: as for `extend`.
        """
        self.timer_ms = None
        if self.over_ms <= now.ms:
            return True
        self._set_timer(timer, effects, now)
        return False

    def _set_timer(self, timer: TimerName, effects: Effects, now: Now) -> None:
        self.timer_ms = look_at_ms(self.over_ms, now.ms)
        effects.set_timer(timer, self.timer_ms)
