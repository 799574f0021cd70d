"""A retention policy deletes segments in addition to Kafka's rules, and nothing if it is wrong."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkalite.storage.log.log import Log
from kafkalite.storage.retention import count_expired
from kafkalite.storage.user_retention_policy import PolicyError, RetentionPolicy, SegmentSummary, count_by_policy
from kafkalite.testing.virtual_clock import START_WALL_MS
from tests.unit.storage.damage import CONFIG
from tests.unit.storage.test_manager import Kit, fill

KEPT = replace(CONFIG, retention_ms=-1, retention_bytes=-1)


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path / "data", config=KEPT).open()
    yield kit
    kit.manager.unlock()


@pytest.fixture
def log(kit: Kit) -> Log:
    log = kit.create()
    fill(log, 300)
    assert len(log.segments) > 3
    return log


def keep(number: int) -> RetentionPolicy:
    return lambda segments, _now_ms: max(0, len(segments) - number)


def everything(segments: Sequence[SegmentSummary], now_ms: int) -> int:
    return len(segments)


def count(kit: Kit, log: Log, policy: Any, *, expired: int = 0, high_watermark: int | None = None) -> int:
    end = log.log_end_offset if high_watermark is None else high_watermark
    return count_by_policy(policy, log, expired, START_WALL_MS, end, kit.clock)


def test_policy_keeps_the_last_segments(kit: Kit, log: Log) -> None:
    assert count(kit, log, keep(2)) == len(log.segments) - 2
    assert count(kit, log, keep(len(log.segments))) == 0
    assert count(kit, log, everything) == len(log.segments), "as with retention.ms, the active segment is rolled"


def test_policy_receives_the_segments_that_kafkas_rules_keep(kit: Kit, log: Log) -> None:
    calls: list[tuple[Sequence[SegmentSummary], int]] = []

    def policy(segments: Sequence[SegmentSummary], now_ms: int) -> int:
        calls.append((segments, now_ms))
        return 1

    log.config = replace(KEPT, retention_bytes=log.size - log.segments[0].size)
    expired = count_expired(log, START_WALL_MS, log.log_end_offset)
    assert expired == 1 and count(kit, log, policy, expired=expired) == 2
    ((segments, now_ms),) = calls
    assert now_ms == START_WALL_MS
    assert segments == [(each.base_offset, each.size, each.max_timestamp) for each in log.segments[1:]]


def test_nothing_above_the_high_watermark_is_deleted(kit: Kit, log: Log) -> None:
    third = log.segments[2].base_offset
    assert count(kit, log, everything, high_watermark=third) == 2
    assert count(kit, log, everything, high_watermark=third - 1) == 1
    assert count(kit, log, everything, high_watermark=0) == 0
    assert count(kit, log, everything, high_watermark=log.log_end_offset - 1) == len(log.segments) - 1


def test_empty_active_segment_stays(kit: Kit, log: Log) -> None:
    log.roll(log.log_end_offset)
    assert count(kit, log, everything) == len(log.segments) - 1
    empty = kit.create("empty")
    assert count(kit, empty, everything) == 0


@pytest.mark.parametrize("value", [-1, 10**6, 1.0, "1", None, True])
def test_answer_that_is_no_number_of_segments_is_an_error(kit: Kit, log: Log, value: object) -> None:
    with pytest.raises(PolicyError, match=r"it returned .* expected a number from 0 to"):
        count(kit, log, lambda segments, now_ms: value)


@pytest.mark.parametrize("error", [ZeroDivisionError("planted"), SystemExit(3)])
def test_policy_that_raises_is_an_error(kit: Kit, log: Log, error: BaseException) -> None:
    def policy(segments: Sequence[SegmentSummary], now_ms: int) -> int:
        raise error

    with pytest.raises(PolicyError, match=rf"it raised {re.escape(repr(error))}"):
        count(kit, log, policy)


def test_policy_that_takes_more_than_10_ms_is_an_error(kit: Kit, log: Log) -> None:
    def lasting(ms: int) -> RetentionPolicy:
        def policy(segments: Sequence[SegmentSummary], now_ms: int) -> int:
            kit.clock.advance(ms)
            return 1

        return policy

    assert count(kit, log, lasting(9)) == 1
    with pytest.raises(PolicyError, match="it took 11 ms, allowed are 10 ms"):
        count(kit, log, lasting(11))


def test_policy_is_not_called_where_nothing_may_be_deleted(kit: Kit, log: Log) -> None:
    def policy(segments: Sequence[SegmentSummary], now_ms: int) -> int:
        raise AssertionError("called")

    assert count_by_policy(policy, log, 1, None, log.log_end_offset, kit.clock) == 1, "the wall time is not reliable"
    for config in (replace(KEPT, cleanup_policy=("compact",)), replace(KEPT, unreadable=("retention.ms",))):
        log.config = config
        assert count(kit, log, policy) == 0
