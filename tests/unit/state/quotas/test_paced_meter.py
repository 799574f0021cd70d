"""Clients that send all they can get their limit from 30 s on, and never more than Kafka's windows admit."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from random import Random

import pytest

from kafkalite.state.quotas.meters import RateMeter
from kafkalite.state.quotas.paced_meter import PacedMeter
from kafkalite.state.quotas.rates import THROTTLE_MS_MAX, Windows
from tests.kit.seeds import chosen_seed
from tests.unit.state.quotas.kafka_rates import KafkaRate

START_MS = 1_000_000
KAFKA = Windows(11, 1000)
LIMIT = 1_000_000
SEQUENCES, STEPS = 50, 60


def produced(meter: RateMeter, size: int, clients: int, seconds: int) -> Iterator[tuple[int, int]]:
    """Clients of one quota that send a request as soon as they may: time in ms since the start, and bytes."""
    next_at = [(START_MS, client) for client in range(clients)]
    while next_at[0][0] < START_MS + seconds * 1000:
        now, client = heapq.heappop(next_at)
        yield now - START_MS, size
        heapq.heappush(next_at, (now + max(1, meter.record(size, now)), client))


def fetched(meter: RateMeter, batch: int, clients: int, seconds: int) -> Iterator[tuple[int, int]]:
    """The same for whole record batches that the quota admits, of 1 MiB at most."""
    next_at = [(START_MS, client) for client in range(clients)]
    while next_at[0][0] < START_MS + seconds * 1000:
        now, client = heapq.heappop(next_at)
        size = max(batch, int(min(1 << 20, meter.value_max(now))) // batch * batch)
        throttle_ms = meter.throttle_ms_after(size, now)
        if not throttle_ms:
            meter.record(size, now)
            yield now - START_MS, size
        heapq.heappush(next_at, (now + max(3, throttle_ms), client))


@pytest.mark.parametrize("size", [1_000, 10_000, 100_000])
@pytest.mark.parametrize("clients", [1, 10])
@pytest.mark.parametrize("send", [produced, fetched])
def test_client_that_sends_all_it_can_gets_its_limit(send: object, clients: int, size: int) -> None:
    assert callable(send)
    sent = list(send(PacedMeter(LIMIT, KAFKA), size, clients, 60))
    assert sum(value for at, value in sent if at >= 30_000) == pytest.approx(30 * LIMIT, rel=0.05)


def test_windows_of_kafka_admit_more_than_the_limit() -> None:
    """Why there is a bucket."""
    sent = [value for at, value in produced(RateMeter(LIMIT, KAFKA), 100_000, 1, 60) if at >= 30_000]
    assert sum(sent) > 30 * LIMIT * 1.09


def test_throttle_time_is_never_shorter_than_that_of_kafka() -> None:
    random = Random(chosen_seed())
    for _ in range(SEQUENCES):
        windows = Windows(random.choice([1, 2, 11]), random.choice([1000, 2000]))
        limit, now = random.choice([1, 100, 12_345]), START_MS
        kafka, meter = KafkaRate(*windows), PacedMeter(limit, windows)
        longest = windows.total_ms
        for _ in range(STEPS):
            now += random.choice([0, 1, random.randrange(windows.size_ms), random.randrange(3 * windows.total_ms)])
            value = random.choice([0, 1, 50, random.randrange(100_000)])
            kafka.record(value, now)
            expected = min(THROTTLE_MS_MAX, kafka.throttle(limit, now))
            assert expected <= meter.record(value, now) <= max(expected, longest)


def test_idle_client_may_send_the_burst_of_all_windows() -> None:
    meter = PacedMeter(1000, KAFKA)
    assert meter.record(10_000, START_MS) == 0 and meter.record(100, START_MS) == 100
    assert meter.record(10_000, START_MS + 60_000) == 0
    assert meter.value_max(START_MS + 60_000) == 100, "a tenth of a second"


def test_value_that_is_taken_back_is_not_charged() -> None:
    meter = PacedMeter(1000, KAFKA)
    meter.record(9_000, START_MS)
    assert meter.throttle_ms_after(2_000, START_MS) == 1000
    assert meter.record(1_000, START_MS) == 0


def test_limit_that_is_changed() -> None:
    meter = PacedMeter(10, KAFKA, 1000)
    assert meter.record(1_000, START_MS) == 1000
    meter.set_limit(1_000, START_MS)
    assert meter.throttle_ms(START_MS) == 0
    meter.set_limit(0, START_MS)
    assert meter.record(1, START_MS) == 1000
