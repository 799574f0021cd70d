"""Sessions of members, of whatever kind their group is: when to look whether somebody was silent for too long.

Laws: a heartbeat sets no timer, it moves the session on. The timer looks, and is set anew; sessions end on time.
"""

__all__ = ["LOOK_MS", "SESSIONS_AT_ONCE", "look_at_ms"]

LOOK_MS = 250
SESSIONS_AT_ONCE = 100
"""After a replay so many sessions are started in one step, which takes about half a millisecond."""


def look_at_ms(over_ms: int, now_ms: int) -> int:
    """When the timer of a session that is over at `over_ms` is to look: up to `LOOK_MS` before, at a moment shared with
    all other sessions, so that thousands of members wake the broker a few times in a second. Who was not heard until
    then is looked at again, on time. All in ms on the monotonic clock.
    """
    shared_ms = over_ms - over_ms % LOOK_MS
    return shared_ms if shared_ms > now_ms else over_ms
