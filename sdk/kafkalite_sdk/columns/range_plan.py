"""Divides a range of offsets into parts that are fetched in parallel, and keeps their responses in order.

Pure: no I/O, no clock. Invariants:
1. The parts are adjacent and in order; the last one ends at `frontier`. Each offset of the range belongs to one part.
2. Open requests and responses in memory are at most `fetches` together, or one more for the first part.
3. A part is as long as the bytes per offset of the last response suggest. The last part ends where its response ends,
   so that the next part begins at a batch.
"""

from collections import deque
from collections.abc import Iterator
from math import inf
from typing import Any

from kafkalite.errors import KafkaError
from kafkalite_sdk._speedups.fetched_records import FetchedRecords

FILLED_SHARE = 0.9
"""Part of a response that a part is expected to fill: a part that needs a second request delays those behind it."""


class Part:
    """Offsets that one response covers, or several.

    Attributes:
        end: the offset behind it.
        position: where its next fetch begins.
        fetched: responses that are not read yet.
        open: a request is open.
        retry_at: nothing is fetched before, in seconds of the loop's clock.
        failures: requests without records one after another.
        error: why its records cannot be fetched from `position` on.
    """

    __slots__ = ("end", "error", "failures", "fetched", "open", "position", "retry_at")

    def __init__(self, start: int, end: int) -> None:
        self.position = start
        self.end = end
        self.fetched: deque[FetchedRecords[Any, Any]] = deque()
        self.open = False
        self.retry_at = 0.0
        self.failures = 0
        self.error: KafkaError | None = None

    @property
    def wanted(self) -> bool:
        """Whether records of the part are still to be requested."""
        return not self.open and self.error is None and self.position < self.end

    @property
    def done(self) -> bool:
        """Whether all its records have been read."""
        return not self.fetched and self.position >= self.end


class RangePlan:
    """The parts of one range.

    Arguments:
        start, end: offsets; `end` does not belong to the range.
        fetches: the most open requests and unread responses.
        fetch_bytes: largest response.

    Attributes:
        parts: those that are not read yet, in order.
        frontier: the offset behind the last part.
    """

    def __init__(self, start: int, end: int, fetches: int, fetch_bytes: int) -> None:
        self.parts: deque[Part] = deque()
        self.frontier = start
        self._end = end
        self._fetches = fetches
        self._fetch_bytes = fetch_bytes
        self._bytes_per_offset: float | None = None

    def due(self, now: float) -> Iterator[Part]:
        """Yield the parts to fetch now; the caller opens a request for each.

        Arguments:
            now: in seconds of the loop's clock.
        """
        free = self._fetches - sum(part.open + len(part.fetched) for part in self.parts)
        for part in self.parts:
            first = part is self.parts[0] and not part.fetched
            if part.wanted and part.retry_at <= now and (free > 0 or first):
                free -= 1
                yield part
        while free > 0 and self.frontier < self._end and (self._bytes_per_offset is not None or not self.parts):
            free -= 1
            yield self._next_part()

    def _next_part(self) -> Part:
        end = self._end
        if self._bytes_per_offset is not None:
            end = min(end, self.frontier + max(1, int(FILLED_SHARE * self._fetch_bytes / self._bytes_per_offset)))
        part = Part(self.frontier, end)
        self.parts.append(part)
        self.frontier = end
        return part

    def add_response(self, part: Part, fetched: FetchedRecords[Any, Any]) -> None:
        """Add the records of a response."""
        covered = fetched.end_offset - part.position
        part.failures = 0
        part.fetched.append(fetched)
        if covered <= 0:
            return  # reading it ends with an error
        self._bytes_per_offset = max(fetched.size / covered, 1e-6)
        part.position = fetched.end_offset
        if part is self.parts[-1] and part.position < part.end:
            part.end = self.frontier = part.position

    def wake_at(self, now: float) -> float:
        """Return when `due` has a part to retry; infinity = it waits for responses only."""
        return min((part.retry_at for part in self.parts if part.wanted and part.retry_at > now), default=inf)
