"""What is charged to a quota, and the throttle time when it is exceeded."""

from kafkalite.state.quotas.rates import THROTTLE_MS_MAX, Rate, TokenBucket, Windows, whole_ms

PART_MS = 100  # a response has at least the bytes of this time, if there are any


class RateMeter:
    """Values that are charged to one quota.

    A limit that is not positive, which Kafka 4 refuses and Kafka 3.9 may have stored, throttles for all windows.

    Arguments:
        limit: values per second.
        windows: of the rate.
        throttle_ms_max: the longest throttle time: one window for request percentages, else unlimited.
    """

    __slots__ = ("_rate", "_throttle_ms_max", "_windows", "limit", "used_ms")

    def __init__(self, limit: float, windows: Windows, throttle_ms_max: int = THROTTLE_MS_MAX) -> None:
        self.limit = limit
        self.used_ms = 0
        self._windows = windows
        self._rate = Rate(windows)
        self._throttle_ms_max = throttle_ms_max

    def record(self, value: float, now_ms: int) -> int:
        """Charge a value; return how long the client is throttled, in ms."""
        self.used_ms = now_ms
        self._rate.record(value, now_ms)
        return self.throttle_ms(now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """Return the time after which the rate is back at the limit, without further values."""
        value = self._rate.measure(now_ms)
        if value <= self.limit:
            return 0
        if self.limit <= 0:
            return min(self._windows.total_ms, self._throttle_ms_max)
        window_ms = self._rate.window_ms(now_ms)
        return min(whole_ms((value - self.limit) / self.limit * window_ms), self._throttle_ms_max)

    def throttle_ms_after(self, value: float, now_ms: int) -> int:
        """Return the throttle time if a value were charged; it is not.

        A value alone in all windows is not throttled, so that a client with large record batches makes progress: in
        Kafka it never does.
        """
        if not self._rate.measure(now_ms):
            return 0
        throttle_ms = self.record(value, now_ms)
        self.take_back(value, now_ms)
        return throttle_ms

    def take_back(self, value: float, now_ms: int) -> None:
        """A value that was charged at this time is not charged."""
        self._rate.record(-value, now_ms)

    def set_limit(self, limit: float, _now_ms: int) -> None:
        """Change the limit; what was charged stays."""
        self.limit = limit

    def value_max(self, now_ms: int) -> float:
        """Return the largest value that is not throttled now, at least that of PART_MS.

        Kafka (getMaxValueInQuotaWindow) has the largest value of an idle client: responses of this size are dropped and
        read again as long as less is left, and the client gets a tenth less than its quota.
        """
        window_ms = self._rate.window_ms(now_ms)
        left = (self.limit - self._rate.measure(now_ms)) * window_ms / 1000
        largest = self.limit * (self._windows.total_ms - self._windows.size_ms) / 1000
        return min(largest, max(left, self.limit * PART_MS / 1000))


class BucketMeter:
    """Controller mutations that are charged to one quota (KIP-599).

    Arguments:
        limit: mutations per second.
        windows: of the burst.
        now_ms: the bucket is full at first.
    """

    __slots__ = ("_bucket", "_windows", "limit", "used_ms")

    def __init__(self, limit: float, windows: Windows, now_ms: int) -> None:
        self.limit = limit
        self.used_ms = now_ms
        self._windows = windows
        self._bucket = TokenBucket(windows, limit, now_ms)

    def record(self, value: float, now_ms: int) -> int:
        """Charge mutations; return the throttle time in ms. For clients that do not know the error of `admit`."""
        self.used_ms = now_ms
        self._bucket.record(value, now_ms)
        return self.throttle_ms(now_ms)

    def admit(self, value: float, now_ms: int) -> int:
        """Charge mutations unless the quota is exceeded; return the throttle time in ms, 0 = they are admitted.

        The last admitted mutations may exceed the quota.
        """
        self.used_ms = now_ms
        throttle_ms = self.throttle_ms(now_ms)
        if not throttle_ms:
            self._bucket.record(value, now_ms)
        return throttle_ms

    def throttle_ms(self, now_ms: int) -> int:
        """Return the time until the bucket has tokens."""
        tokens = self._bucket.measure(now_ms)
        if tokens >= 0:
            return 0
        if self.limit <= 0:
            return self._windows.total_ms
        return max(1, whole_ms(-tokens / self.limit * 1000))

    def set_limit(self, limit: float, now_ms: int) -> None:
        """Change the limit; what was charged stays."""
        self.limit = limit
        self._bucket.set_rate(limit, now_ms)
