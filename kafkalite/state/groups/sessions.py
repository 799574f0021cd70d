"""Session timers of members: when a timer checks whether a session has expired.

A heartbeat sets no timer; it only extends the session. When the timer fires, it is set again if the session was
extended. Sessions still expire on time.
"""

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
