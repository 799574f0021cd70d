"""Rates and token buckets are Kafka's: compared with its code, line by line, on random sequences."""

from __future__ import annotations

from random import Random

import pytest

from kafkalite.state.quotas.meters import BucketMeter, RateMeter
from kafkalite.state.quotas.rates import THROTTLE_MS_MAX, Rate, Windows
from tests.kit.seeds import chosen_seed
from tests.unit.state.quotas.kafka_rates import KafkaBucket, KafkaRate

START_MS = 1_000_000
SEQUENCES, STEPS = 100, 60
KAFKA = Windows(11, 1000)


def random_pause(random: Random, windows: Windows) -> int:
    """Bursts, steady values, and silence beyond all windows."""
    return random.choice([0, 0, 1, random.randrange(windows.size_ms), random.randrange(3 * windows.total_ms)])


def test_rate_and_throttle_time_are_those_of_kafka() -> None:
    random = Random(chosen_seed())
    for _ in range(SEQUENCES):
        windows = Windows(random.choice([1, 2, 5, 11]), random.choice([1000, 2000]))
        limit = random.choice([1, 100, 12_345])
        kafka, rate, meter = KafkaRate(*windows), Rate(windows), RateMeter(limit, windows)
        now = START_MS
        for _ in range(STEPS):
            now += random_pause(random, windows)
            value = random.choice([0, 1, 50, random.randrange(1_000_000)])
            if random.random() < 0.2:  # as a throttled fetch
                expected = 0
                if kafka.measure(now):
                    kafka.record(value, now)
                    expected = min(THROTTLE_MS_MAX, kafka.throttle(limit, now))
                    kafka.record(-value, now)
                assert meter.throttle_ms_after(value, now) == expected
                if rate.measure(now):
                    rate.record(value, now)
                    rate.record(-value, now)
            else:
                kafka.record(value, now)
                rate.record(value, now)
                assert meter.record(value, now) == min(THROTTLE_MS_MAX, kafka.throttle(limit, now))
            if random.random() < 0.7:
                assert rate.measure(now) == pytest.approx(kafka.measure(now), abs=1e-6)
                assert rate.window_ms(now) == kafka.window_size(now)
            else:
                kafka.purge(now)  # as the meter has
                rate.measure(now)


def test_mutations_are_those_of_kafka() -> None:
    random = Random(chosen_seed())
    for _ in range(SEQUENCES):
        windows = Windows(random.choice([1, 11]), 1000)
        limit = random.choice([0.5, 1, 10])
        kafka, meter = KafkaBucket(*windows, limit), BucketMeter(limit, windows, START_MS)
        now = START_MS
        for _ in range(STEPS):
            now += random_pause(random, windows)
            value = random.choice([1, 3, 100])
            expected = kafka.throttle(now)
            if random.random() < 0.5:
                if not expected:
                    kafka.record(value, now)
                assert meter.admit(value, now) == max(expected, int(kafka.tokens < 0 and expected > 0))
            else:
                kafka.record(value, now)
                assert meter.record(value, now) == max(kafka.throttle(now), int(kafka.tokens < 0))


def test_rate_converges_to_the_limit() -> None:
    """A client that sends as soon as its throttle time has passed gets its quota, within 2 % after 30 s."""
    meter, now, sent = RateMeter(1000, KAFKA), START_MS, 0
    while now < START_MS + 30_000:
        now += meter.record(700, now) + 1
    began = now
    while now < began + 60_000:
        sent += 700
        now += meter.record(700, now) + 1
    assert sent / (now - began) * 1000 == pytest.approx(1000, rel=0.02)


def test_largest_value_is_what_the_quota_has_left() -> None:
    meter = RateMeter(1000, KAFKA)
    assert meter.value_max(START_MS) == 10_000
    meter.record(4000, START_MS)
    assert meter.value_max(START_MS) == 6000 and meter.throttle_ms_after(6000, START_MS) == 0
    meter.record(8000, START_MS)
    assert meter.value_max(START_MS) == 100, "a tenth of a second"


def test_throttle_times_are_bounded() -> None:
    assert RateMeter(1e-9, KAFKA).record(1e15, START_MS) == THROTTLE_MS_MAX
    assert RateMeter(1, KAFKA, 1000).record(1e15, START_MS) == 1000
    assert [RateMeter(limit, KAFKA).record(1, START_MS) for limit in (0, -5)] == [11_000, 11_000]
    assert BucketMeter(0, KAFKA, START_MS).record(1, START_MS) == 11_000
    changed = RateMeter(10, KAFKA)
    assert changed.record(1000, START_MS) == 90_000
    changed.set_limit(1000, START_MS)
    assert changed.record(1000, START_MS) == 0
