"""A quota whose clients do not repeat the burst with which they began.

Kafka's windows forget the burst of a client that was idle all at once, and so admit the next one. A client that sends
all it can has a burst every 12 s, and between 20 % less and 14 % more than its limit in half a minute.

1. The throttle time is at least that of Kafka's windows (`RateMeter`).
2. A client also needs tokens, which are added at the limit. An idle client has those of all windows, as in Kafka. While
   the windows throttle, none are kept: when they forget a burst, the client goes on at its limit.
3. The debt is bounded by the tokens of all windows.
"""

from kafkalite.state.quotas.meters import PART_MS, RateMeter
from kafkalite.state.quotas.rates import THROTTLE_MS_MAX, TokenBucket, Windows, whole_ms


class PacedMeter(RateMeter):
    """Values that are charged to one quota.

    Arguments:
        limit: values per second.
        windows: of the rate.
        throttle_ms_max: as of `RateMeter`.
    """

    __slots__ = ("_bucket",)

    def __init__(self, limit: float, windows: Windows, throttle_ms_max: int = THROTTLE_MS_MAX) -> None:
        super().__init__(limit, windows, throttle_ms_max)
        self._bucket = TokenBucket(windows, limit, 0)  # it is full at any time

    def record(self, value: float, now_ms: int) -> int:
        """As `RateMeter.record`."""
        bucket = self._bucket
        bucket.record(value, now_ms)
        excess = -bucket.measure(now_ms) - bucket.burst
        if excess > 0:
            bucket.record(-excess, now_ms)
        return super().record(value, now_ms)

    def take_back(self, value: float, now_ms: int) -> None:
        """As `RateMeter.take_back`."""
        self._bucket.record(-value, now_ms)
        super().take_back(value, now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """As `RateMeter.throttle_ms`."""
        windows_ms = super().throttle_ms(now_ms)
        if windows_ms:
            self._bucket.empty(now_ms)
        tokens = self._bucket.measure(now_ms)
        if tokens >= 0 or self.limit <= 0:
            return windows_ms
        return max(windows_ms, min(whole_ms(-tokens / self.limit * 1000), self._throttle_ms_max))

    def value_max(self, now_ms: int) -> float:
        """As `RateMeter.value_max`."""
        tokens = max(self._bucket.measure(now_ms), self.limit * PART_MS / 1000)
        return min(tokens, super().value_max(now_ms))

    def set_limit(self, limit: float, now_ms: int) -> None:
        """As `RateMeter.set_limit`; the tokens are those of an idle client."""
        super().set_limit(limit, now_ms)
        self._bucket = TokenBucket(self._windows, limit, 0)
