"""Asks the policy of a topic which segments are deleted in addition to those that Kafka's own rules delete.

1. A policy deletes whole segments from the log start on, which end at the high watermark or below, and no empty active
   segment: a larger answer is limited to these.
2. A policy that raises, takes more than LIMIT_S or returns no number of segments deletes nothing.
3. A policy is not called without "delete" in cleanup.policy, while a config that decides about deletion cannot be read,
   and while the wall time is not reliable.

Kafka's original design had one strategy for all topics (`LogCleanupPolicy`); it has no such interface today.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from kafkalite.clock import Clock
from kafkalite.storage.log.log import Log

LIMIT_S = 0.010


class SegmentSummary(NamedTuple):
    """A segment as a policy sees it.

    Attributes:
        base_offset: of its first record.
        size: in bytes.
        largest_timestamp: of its records, in ms since 1970; -1 = none has a timestamp.
    """

    base_offset: int
    size: int
    largest_timestamp: int


RetentionPolicy: TypeAlias = Callable[[Sequence[SegmentSummary], int], int]
"""(segments from the oldest on, wall time in ms since 1970) -> number of oldest segments to delete."""


class PolicyError(Exception):
    """A policy that cannot be used; the text has the reason."""


def count_by_policy(
    policy: RetentionPolicy, log: Log, expired: int, now_ms: int | None, high_watermark: int, clock: Clock
) -> int:
    """Return the number of first segments to delete, at least `expired`.

    Arguments:
        policy: of the topic. It gets the segments that Kafka's rules keep, the active one last.
        log: whose config is used.
        expired: number of segments that Kafka's rules delete.
        now_ms: wall time, None = it is not reliable.
        high_watermark: a segment that ends above it stays.
        clock: measures the call.
    Raises PolicyError.
    """
    if now_ms is None or log.config.unreadable or "delete" not in log.config.cleanup_policy:
        return expired
    segments = log.segments[expired:]
    summaries = [SegmentSummary(each.base_offset, each.size, each.max_timestamp) for each in segments]
    more = _ask(policy, summaries, now_ms, clock)
    ends = [*(each.base_offset for each in segments[1:]), log.log_end_offset]
    deletable = sum(end <= high_watermark for end in ends) if segments else 0
    if deletable == len(segments) and segments and segments[-1].size == 0:
        deletable -= 1
    return expired + min(more, deletable)


def _ask(policy: RetentionPolicy, segments: Sequence[SegmentSummary], now_ms: int, clock: Clock) -> int:
    begin = clock.monotonic()
    try:
        count = policy(segments, now_ms)
    except (Exception, SystemExit) as error:  # a policy must not stop the broker
        raise PolicyError(f"it raised {error!r}") from error
    took = clock.monotonic() - begin
    if took > LIMIT_S:
        raise PolicyError(f"it took {took * 1000:.0f} ms, allowed are {LIMIT_S * 1000:.0f} ms")
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= len(segments):
        raise PolicyError(f"it returned {count!r}, expected a number from 0 to {len(segments)}")
    return count
