"""Decides which part of a log the cleaner may compact, how dirty it is, and which segments become one.

1. Decisions have no side effects.
2. Nothing at or above the active segment, the high watermark or the first open transaction is cleaned, nor a segment
   younger than min.compaction.lag.ms and the segments after it.

Sources: LogCleanerManager.scala, LogCleaner.scala (LogToClean, groupSegmentsBySize).
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafkalite.config.topic import TopicConfig
from kafkalite.storage import names
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.segment import Segment

INT32_MAX = 2**31 - 1
GROUP_MAX = 64  # segments; their files are renamed on the loop


class LogToClean(NamedTuple):
    """A log that could be cleaned: what lies below `first_dirty` is clean, from `upper_offset` on nothing is touched.

    `segments`: those below `upper_offset`. `overdue`: a record is older than max.compaction.lag.ms.
    """

    log: Log
    first_dirty: int
    upper_offset: int
    segments: tuple[Segment, ...]
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def ratio(self) -> float:
        """Ratio of dirty bytes to all bytes."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)

    @property
    def due(self) -> bool:
        """Whether the log is due for cleaning."""
        return self.dirty_bytes > 0 and (self.overdue or self.ratio > self.log.config.min_cleanable_dirty_ratio)


def cleanable(log: Log, checkpoint: int | None, stable_offset: int, now_ms: int) -> LogToClean:
    """Return the cleanable part of a log.

    Arguments:
        checkpoint: the first dirty offset as the last cleaning left it, None before the first.
        stable_offset: the high watermark, or the first open transaction below it.
        now_ms: wall time.

    Raises OSError.
    """
    first_dirty = _first_dirty(log, checkpoint)
    closed = list(_with_ends(log.segments))
    dirty = [segment for segment, end in closed if end > first_dirty]
    upper = min([stable_offset, log.active.base_offset, *_young(log.config, dirty, now_ms)])
    upper = max((each.base_offset for each in log.segments if each.base_offset <= upper), default=0)
    below = [(segment, end) for segment, end in closed if segment.base_offset < upper]
    dirty_bytes = sum(segment.size for segment, end in below if end > first_dirty)
    clean_bytes = sum(segment.size for segment, end in below) - dirty_bytes
    segments = tuple(segment for segment, _ in below)
    overdue = dirty_bytes > 0 and _overdue(log.config, dirty, now_ms)
    return LogToClean(log, first_dirty, upper, segments, clean_bytes, dirty_bytes, overdue)


def _first_dirty(log: Log, checkpoint: int | None) -> int:
    """Kafka cleans all again when the log does not reach its checkpoint any more."""
    if checkpoint is None or not log.log_start_offset <= checkpoint <= log.log_end_offset:
        return log.log_start_offset
    return checkpoint


def _with_ends(segments: Sequence[Segment]) -> Iterator[tuple[Segment, int]]:
    """Every closed segment and where the next one begins."""
    return ((segment, following.base_offset) for segment, following in itertools.pairwise(segments))


def _young(config: TopicConfig, dirty: list[Segment], now_ms: int) -> list[int]:
    """Base offset of the first segment with a record that is too young, if there is one."""
    if config.min_compaction_lag_ms <= 0:
        return []
    limit = now_ms - config.min_compaction_lag_ms
    return [segment.base_offset for segment in dirty if segment.max_timestamp > limit][:1]


def _overdue(config: TopicConfig, dirty: list[Segment], now_ms: int) -> bool:
    limit = now_ms - config.max_compaction_lag_ms
    return limit > 0 and any(0 < _first_timestamp(segment) < limit for segment in dirty)


def _first_timestamp(segment: Segment) -> int:
    if segment.first_timestamp < 0 and segment.size:
        segment.first_timestamp = segment.first_batch_timestamp()
    return segment.first_timestamp


def stable_offset(log: Log, high_watermark: int) -> int:
    """The offset below which every transaction has ended."""
    return log.last_stable_offset(high_watermark)


def groups(segments: Sequence[Segment], upper_offset: int, config: TopicConfig) -> list[list[Segment]]:
    """Segments that become one: by size, by size of their indexes, by the offsets that an index can hold.

    Reads the sizes of index files; runs as a job. Raises OSError.
    """
    found: list[list[Segment]] = []
    space = [0, 0, 0]
    ends = [*(segment.base_offset for segment in segments[1:]), upper_offset]
    for segment, end in zip(segments, ends, strict=True):
        sizes = [segment.size, *(_size_of(segment, suffix) for suffix in (names.INDEX, names.TIME_INDEX))]
        fits = all(size <= left for size, left in zip(sizes, space, strict=True))
        if found and fits and len(found[-1]) < GROUP_MAX and end - 1 - found[-1][0].base_offset <= INT32_MAX:
            found[-1].append(segment)
        else:
            found.append([segment])
            space = [config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes]
        space = [left - size for left, size in zip(space, sizes, strict=True)]
    return found


def _size_of(segment: Segment, suffix: str) -> int:
    path = segment.path(suffix)
    return segment.disk.size(path) if segment.disk.exists(path) else 0
