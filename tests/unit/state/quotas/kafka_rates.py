"""Kafka's Rate, WindowedSum and TokenBucket line by line: what `state.quotas.rates` is compared with.

Source: Rate.java, SampledStat.java, TokenBucket.java, QuotaUtils.java of Apache Kafka.
"""

from __future__ import annotations

import math


class KafkaSample:
    def __init__(self, now: int) -> None:
        self.reset(now)

    def reset(self, now: int) -> None:
        self.start = self.last = now
        self.value = 0.0


class KafkaRate:
    """Times in ms."""

    def __init__(self, samples: int, window: int) -> None:
        self.config = samples, window
        self.current = 0
        self.samples: list[KafkaSample] = []

    def record(self, value: float, now: int) -> None:
        samples, window = self.config
        if not self.samples:
            self.samples.append(KafkaSample(now))
        sample = self.samples[self.current]
        if now - sample.start >= window:
            self.current = (self.current + 1) % (samples + 1)
            if self.current >= len(self.samples):
                self.samples.append(KafkaSample(now))
            else:
                self.samples[self.current].reset(now)
            sample = self.samples[self.current]
        sample.value += value
        sample.last = now

    def purge(self, now: int) -> None:
        samples, window = self.config
        for sample in self.samples:
            if now - sample.last >= samples * window:
                sample.reset(now)

    def window_size(self, now: int) -> int:
        samples, window = self.config
        self.purge(now)
        if not self.samples:
            self.samples.append(KafkaSample(now))
        elapsed = now - min(sample.start for sample in self.samples)
        full = elapsed // window
        if full < samples - 1:
            elapsed += (samples - 1 - full) * window
        return max(elapsed, 1)

    def measure(self, now: int) -> float:
        self.purge(now)
        total = sum(sample.value for sample in self.samples)
        return total / (self.window_size(now) / 1000)

    def throttle(self, bound: float, now: int) -> int:
        """QuotaUtils.throttleTime, 0 if the quota is acceptable."""
        value = self.measure(now)
        if value <= bound:
            return 0
        return math.floor((value - bound) / bound * self.window_size(now) + 0.5)


class KafkaBucket:
    """Times in ms."""

    def __init__(self, samples: int, window: int, bound: float) -> None:
        self.config = samples, window
        self.bound = bound
        self.tokens = 0.0
        self.last = 0

    def refill(self, now: int) -> None:
        samples, window = self.config
        burst = samples * (window / 1000) * self.bound
        self.tokens = min(burst, self.tokens + self.bound * (now - self.last) / 1000)
        self.last = now

    def record(self, value: float, now: int) -> None:
        self.refill(now)
        samples, window = self.config
        self.tokens = min(samples * (window / 1000) * self.bound, self.tokens - value)

    def throttle(self, now: int) -> int:
        """ControllerMutationQuotaManager.throttleTimeMs, 0 if there are tokens."""
        self.refill(now)
        return 0 if self.tokens >= 0 else math.floor(-self.tokens / self.bound * 1000 + 0.5)
