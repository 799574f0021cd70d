"""Rates in windows, and token buckets: Kafka's Rate over WindowedSum, and TokenBucket."""

from typing import NamedTuple

THROTTLE_MS_MAX = 2**31 - 1  # of a response


class Windows(NamedTuple):
    """The windows of a quota: `quota.window.num` and `quota.window.size.seconds` in ms."""

    samples: int
    size_ms: int

    @property
    def total_ms(self) -> int:
        """All windows together, after which a value is forgotten."""
        return self.samples * self.size_ms


class Sample:
    """The values of one window."""

    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        """Begin a window without values."""
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """Values per second over the last windows.

    A window begins with a value, so that there are up to `samples` + 1 of them: the oldest one is used until its last
    value is `Windows.total_ms` old. The rate is the sum divided by the time since the oldest begin, and at least by
    `samples` - 1 windows.

    Arguments:
        windows: number and size.
    """

    __slots__ = ("_current", "_expiry_ms", "_oldest_ms", "_samples", "_sum", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[Sample] = []
        self._current = 0
        self._sum = 0.0
        self._oldest_ms = 0
        self._expiry_ms = 0  # no sample expires before

    def record(self, value: float, now_ms: int) -> None:
        """Add a value; a negative one takes back another one of the same moment."""
        if not self._samples:
            self._begin(now_ms)
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._windows.size_ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.last_ms = now_ms
        self._sum += value

    def measure(self, now_ms: int) -> float:
        """Return the rate per second."""
        window_ms = self.window_ms(now_ms)
        return self._sum * 1000 / window_ms

    def window_ms(self, now_ms: int) -> int:
        """Return the time that the rate is measured over."""
        if not self._samples:
            self._begin(now_ms)
        elif now_ms >= self._expiry_ms:
            self._purge(now_ms)
        elapsed_ms, size_ms = now_ms - self._oldest_ms, self._windows.size_ms
        missing = self._windows.samples - 1 - elapsed_ms // size_ms
        return max(1, elapsed_ms + max(0, missing) * size_ms)

    def _begin(self, now_ms: int) -> None:
        self._samples.append(Sample(now_ms))
        self._recount()

    def _advance(self, now_ms: int) -> Sample:
        self._current = (self._current + 1) % (self._windows.samples + 1)
        if self._current == len(self._samples):
            self._samples.append(Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        self._recount()
        return self._samples[self._current]

    def _purge(self, now_ms: int) -> None:
        for sample in self._samples:
            if now_ms - sample.last_ms >= self._windows.total_ms:
                sample.reset(now_ms)
        self._recount()

    def _recount(self) -> None:
        self._sum = sum(sample.value for sample in self._samples)
        self._oldest_ms = min(sample.start_ms for sample in self._samples)
        self._expiry_ms = min(sample.last_ms for sample in self._samples) + self._windows.total_ms


class TokenBucket:
    """Tokens that are added at a rate, up to those of all windows (KIP-599). The bucket may be overdrawn.

    Arguments:
        windows: number and size.
        rate: tokens per second.
        now_ms: the bucket is full at first.
    """

    __slots__ = ("_rate", "_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: Windows, rate: float, now_ms: int) -> None:
        self._windows = windows
        self._rate = rate
        self._updated_ms = now_ms
        self._tokens = self.burst

    @property
    def burst(self) -> float:
        """The tokens of a full bucket."""
        return self._windows.total_ms / 1000 * self._rate

    def set_rate(self, rate: float, now_ms: int) -> None:
        """Change the rate; the tokens stay, as far as the bucket holds them."""
        self._refill(now_ms)
        self._rate = rate
        self._tokens = min(self._tokens, self.burst)

    def record(self, tokens: float, now_ms: int) -> None:
        """Take tokens."""
        self._refill(now_ms)
        self._tokens = min(self.burst, self._tokens - tokens)

    def empty(self, now_ms: int) -> None:
        """Remove the tokens; a debt stays."""
        self._refill(now_ms)
        self._tokens = min(0.0, self._tokens)

    def measure(self, now_ms: int) -> float:
        """Return the tokens; below 0 the quota is violated."""
        self._refill(now_ms)
        return self._tokens

    def _refill(self, now_ms: int) -> None:
        self._tokens = min(self.burst, self._tokens + self._rate * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms


def whole_ms(value: float) -> int:
    """Round as Java's Math.round, within the throttle times of a response."""
    return int(min(THROTTLE_MS_MAX, value + 0.5))
