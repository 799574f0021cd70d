"""Bytes of throttled replicas: which replicas are meant, when they wait, and the rate that results."""

from __future__ import annotations

import pytest

from kafkalite.state.quotas.rates import Windows
from kafkalite.state.quotas.replication_quota import ReplicationQuota

WINDOWS = Windows(11, 1000)
LIMIT = 10_000
OWN = 3


@pytest.mark.parametrize(
    ("replicas", "throttled"),
    [
        ((), []),
        (("*",), [0, 1, 12]),
        (("0:3", "1:2", "12:3", "12:4"), [0, 12]),
        (("0:33", "1:1"), []),
    ],
)
def test_list_names_the_replicas_of_this_broker(replicas: tuple[str, ...], throttled: list[int]) -> None:
    quota = ReplicationQuota(OWN, WINDOWS)
    assert [index for index in (0, 1, 12) if quota.is_throttled(replicas, index)] == throttled


def test_lists_of_several_topics_are_distinct() -> None:
    quota = ReplicationQuota(OWN, WINDOWS)
    first, second = ("0:3",), ("1:3",)
    for _ in range(2):
        assert quota.is_throttled(first, 0) and not quota.is_throttled(first, 1)
        assert quota.is_throttled(second, 1) and not quota.is_throttled(second, 0)


def test_nothing_waits_up_to_the_limit() -> None:
    quota = ReplicationQuota(OWN, WINDOWS)
    quota.charge(LIMIT, 5_000)
    assert quota.pause_ms(LIMIT, 5_000) == 0
    quota.charge(1, 5_000)
    assert quota.pause_ms(LIMIT, 5_000) > 0
    assert (quota.pause_ms(0, 5_000), quota.pause_ms(LIMIT + 1, 5_000)) == (1_000, 0)
    assert quota.bytes == LIMIT + 1


def test_a_pause_is_at_most_one_window() -> None:
    """Then the limit is read again."""
    quota = ReplicationQuota(OWN, WINDOWS)
    quota.charge(1_000 * LIMIT, 0)
    assert quota.pause_ms(LIMIT, 0) == 1_000


@pytest.mark.parametrize("size", [100, LIMIT // 2, LIMIT])
def test_rate_is_that_of_the_limit(size: int) -> None:
    quota, now_ms, seconds = ReplicationQuota(OWN, WINDOWS), 0, 60
    while now_ms < seconds * 1_000:
        pause = quota.pause_ms(LIMIT, now_ms)
        if not pause:
            quota.charge(size, now_ms)
        now_ms += pause or 1
    assert quota.bytes / seconds == pytest.approx(LIMIT, rel=0.05)
