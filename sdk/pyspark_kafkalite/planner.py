"""Divides offset ranges into the splits of Spark's tasks, by bytes; and limits micro-batches.

`stream_reader` chooses the offsets of a micro-batch.

Pure and deterministic: no clock, no randomness; the order of arguments has no effect. Invariants:
1. Each offset of the ranges is in exactly one split; no split is empty.
2. A split has at most `max_records` offsets, and about `target_bytes`: a larger range is divided, small ones are packed
   into one split in the order of their partitions.
3. There are at least `min_partitions` splits, unless there are fewer offsets.
4. A limit of a micro-batch is shared in proportion to the backlogs. Each partition with a backlog advances by one
   offset at least; so a limit below the number of these partitions is exceeded up to it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappush, heapreplace
from itertools import accumulate, pairwise
from math import ceil
from typing import NamedTuple

from kafkalite.model import TopicPartition

BYTES_PER_OFFSET = 1024.0
"""Of a partition whose sizes are unknown."""

NEAR = 0.125
"""An edge of a split moves to a segment edge that is nearer than this part of the split's size."""


class OffsetRange(NamedTuple):
    """Offsets of a partition; `end` does not belong to the range."""

    topic: str
    partition: int
    start: int
    end: int


class Split(NamedTuple):
    """The ranges of one task.

    Attributes:
        ranges: by topic, partition and offset.
        size: in bytes of the log, estimated.
    """

    ranges: tuple[OffsetRange, ...]
    size: int


class Layout:
    """Where the bytes of a partition are. Within a segment they are spread evenly over its offsets.

    Arguments:
        edges: base offsets of the segments, ascending, and the end of the last one; none = sizes are unknown.
        sizes: of the segments, in bytes.
    """

    def __init__(self, edges: Sequence[int] = (), sizes: Sequence[int] = ()) -> None:
        if len(edges) != len(sizes) + bool(edges) or any(low >= high for low, high in pairwise(edges)):
            raise ValueError(f"edges {list(edges)} do not ascend or do not fit {len(sizes)} sizes")
        self.edges = tuple(edges)
        self._bytes = (0, *accumulate(sizes)) if edges else ()
        spread = edges[-1] - edges[0] if edges else 0
        self._density = self._bytes[-1] / spread if spread and self._bytes[-1] else BYTES_PER_OFFSET

    def position(self, offset: int) -> float:
        """Return the number of bytes before an offset; beyond the known edges the mean density applies."""
        edges = self.edges
        if len(edges) < 2:
            return offset * self._density
        if offset <= edges[0]:
            return (offset - edges[0]) * self._density
        if offset >= edges[-1]:
            return self._bytes[-1] + (offset - edges[-1]) * self._density
        at = bisect_right(edges, offset) - 1
        share = (offset - edges[at]) / (edges[at + 1] - edges[at])
        return self._bytes[at] + share * (self._bytes[at + 1] - self._bytes[at])

    def offset(self, position: float) -> int:
        """Return the largest offset whose position is not behind `position`, as `position` is monotonic."""
        edges = self.edges
        if len(edges) < 2:
            return int(position / self._density)
        if position <= 0:
            return edges[0] + int(position // self._density)
        if position >= self._bytes[-1]:
            return edges[-1] + int((position - self._bytes[-1]) / self._density)
        at = bisect_right(self._bytes, position) - 1
        size = self._bytes[at + 1] - self._bytes[at]
        return edges[at] + int((position - self._bytes[at]) * (edges[at + 1] - edges[at]) / size)

    def size(self, start: int, end: int) -> float:
        """Return the bytes of a range."""
        return self.position(end) - self.position(start)

    def nearest_edge(self, offset: int) -> int | None:
        """Return the segment edge with the fewest offsets between it and `offset`."""
        at = bisect_left(self.edges, offset)
        found = self.edges[max(at - 1, 0) : at + 1]
        return min(found, key=lambda edge: (abs(edge - offset), edge), default=None)


UNKNOWN = Layout()


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """The sizes of splits.

    Attributes:
        target_bytes: size of a split.
        min_partitions: least number of splits, None = 1.
        max_records: most offsets of a split, None = no limit.
    """

    target_bytes: int
    min_partitions: int | None = None
    max_records: int | None = None


def plan(ranges: Iterable[OffsetRange], layouts: Mapping[TopicPartition, Layout], limits: SplitLimits) -> list[Split]:
    """Divide ranges into splits.

    Arguments:
        ranges: of different partitions, or adjacent; empty ones are left out.
        layouts: of the partitions; one that is missing has an unknown layout.
        limits: sizes of splits.
    """
    pieces: list[OffsetRange] = []
    for each in ranges:
        pieces += _divided(each, _layout(layouts, each), limits)
    wanted = limits.min_partitions or 1
    pieces = sorted(_at_least(pieces, layouts, wanted))
    return _packed(pieces, layouts, limits, wanted)


def _layout(layouts: Mapping[TopicPartition, Layout], each: OffsetRange) -> Layout:
    return layouts.get(TopicPartition(each.topic, each.partition), UNKNOWN)


def _size(layouts: Mapping[TopicPartition, Layout], each: OffsetRange) -> float:
    return _layout(layouts, each).size(each.start, each.end)


def _divided(each: OffsetRange, layout: Layout, limits: SplitLimits) -> list[OffsetRange]:
    """Divide a range into pieces of about the target size, at segment edges that are near."""
    if each.start >= each.end:
        return []
    size = layout.size(each.start, each.end)
    count = min(max(1, ceil(size / limits.target_bytes)), each.end - each.start)
    first, step = layout.position(each.start), size / count
    cuts = [each.start]
    for number in range(1, count):
        cut = _moved(layout, layout.offset(first + number * step), step)
        if cuts[-1] < cut < each.end:
            cuts.append(cut)
    cuts.append(each.end)
    found = []
    for start, end in pairwise(cuts):
        parts = 1 if limits.max_records is None else ceil((end - start) / limits.max_records)
        found += _evenly(each, start, end, parts)
    return found


def _moved(layout: Layout, cut: int, step: float) -> int:
    """Return the segment edge that is near a cut, or the cut."""
    edge = layout.nearest_edge(cut)
    return edge if edge is not None and abs(layout.size(cut, edge)) <= NEAR * step else cut


def _evenly(each: OffsetRange, start: int, end: int, parts: int) -> list[OffsetRange]:
    cuts = [start + (end - start) * number // parts for number in range(parts + 1)]
    return [each._replace(start=low, end=high) for low, high in pairwise(cuts)]


def _at_least(pieces: list[OffsetRange], layouts: Mapping[TopicPartition, Layout], count: int) -> list[OffsetRange]:
    """Divide the largest pieces until there are `count`, or each has one offset."""
    heap = [(*_rank(layouts, each), each) for each in pieces]
    heapify(heap)
    while heap and len(heap) < count and heap[0][0] < 0:
        each = heap[0][-1]
        low, high = _evenly(each, each.start, each.end, 2)
        heapreplace(heap, (*_rank(layouts, low), low))
        heappush(heap, (*_rank(layouts, high), high))
    return [entry[-1] for entry in heap]


def _rank(layouts: Mapping[TopicPartition, Layout], each: OffsetRange) -> tuple[float, int]:
    """The largest piece has the lowest rank; a piece of one offset has the highest."""
    records = each.end - each.start
    return (0.0, 0) if records == 1 else (-max(_size(layouts, each), 1.0), -records)


def _packed(
    pieces: list[OffsetRange], layouts: Mapping[TopicPartition, Layout], limits: SplitLimits, wanted: int
) -> list[Split]:
    """Join consecutive pieces while they are below the target together and enough splits are left."""
    spare = len(pieces) - wanted
    splits: list[Split] = []
    ranges: list[OffsetRange] = []
    size, records = 0.0, 0
    for each in pieces:
        more, count = _size(layouts, each), each.end - each.start
        fits = size + more <= limits.target_bytes and (
            limits.max_records is None or records + count <= limits.max_records
        )
        if ranges and fits and spare > 0:
            spare -= 1
        elif ranges:
            splits.append(Split(tuple(ranges), round(size)))
            ranges, size, records = [], 0.0, 0
        ranges.append(each)
        size, records = size + more, records + count
    if ranges:
        splits.append(Split(tuple(ranges), round(size)))
    return splits


# limits of a micro-batch


def limit_ends(
    start: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    layouts: Mapping[TopicPartition, Layout],
    max_offsets: int | None,
    max_bytes: int | None,
) -> dict[TopicPartition, int]:
    """Return the end of a micro-batch.

    Arguments:
        start: the next offset of each partition.
        latest: the log ends of the same partitions.
        layouts: of the partitions.
        max_offsets: most offsets of the micro-batch, None = no limit.
        max_bytes: most bytes, None = no limit.
    """
    ends = dict(latest)
    backlogs = sorted(each for each in latest if start[each] < latest[each])
    if max_offsets is not None:
        sizes = [latest[each] - start[each] for each in backlogs]
        for each, share in zip(backlogs, share_limit(sizes, max_offsets), strict=True):
            ends[each] = start[each] + share
    if max_bytes is not None:
        spans = [layouts.get(each, UNKNOWN).size(start[each], latest[each]) for each in backlogs]
        if sum(spans) > max_bytes:
            part = max_bytes / sum(spans)
            for each, span in zip(backlogs, spans, strict=True):
                layout = layouts.get(each, UNKNOWN)
                end = layout.offset(layout.position(start[each]) + part * span)
                ends[each] = min(ends[each], max(end, start[each] + 1))
    return ends


def share_limit(sizes: Sequence[int], limit: int) -> list[int]:
    """Share a limit in proportion to sizes above 0, each share is at least 1 and at most its size.

    The sum is at most the larger one of the limit and the number of sizes.
    """
    if sum(sizes) <= limit:
        return list(sizes)
    rest, total = max(limit - len(sizes), 0), sum(size - 1 for size in sizes)
    return [1 + (size - 1) * rest // total if total else 1 for size in sizes]


class Trigger:
    """Decides when a micro-batch that lacks `minOffsetsPerTrigger` begins.

    Arguments:
        min_offsets: None = every micro-batch begins.
        max_delay_s: longest delay.
    """

    def __init__(self, min_offsets: int | None, max_delay_s: float) -> None:
        self._min_offsets = min_offsets
        self._max_delay_s = max_delay_s
        self._began_s: float | None = None

    def begins(self, offsets: int, now_s: float) -> bool:
        """Return whether a micro-batch begins. The first one does.

        Arguments:
            offsets: that are available.
            now_s: a monotonic time in seconds.
        """
        late = self._began_s is None or now_s - self._began_s >= self._max_delay_s
        if self._min_offsets is not None and offsets < self._min_offsets and not late:
            return False
        self._began_s = now_s
        return True
