"""Knows which lines of its input `produce` has stored: the lines before the first failed one, and those behind it.

Records of one partition are stored in order, those of several are not: a count alone does not show what is in a topic.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from kafkalite_sdk._speedups.deliveries import FutureRecordMetadata

LINES_MAX = 1 << 18  # without an acknowledgement; each has a future
RANGES_MAX = 10  # in a message


class Delivered(NamedTuple):
    """Which lines are stored.

    Attributes:
        whole: number of lines at the begin of the input that are acknowledged, all of them.
        behind: the acknowledged lines behind these, as first and last line of each range.
        failed_line, error: the first line whose record has failed, and why; None = none has failed.
    """

    whole: int
    behind: list[tuple[int, int]]
    failed_line: int | None = None
    error: BaseException | None = None

    def text(self) -> str:
        """Return what was acknowledged, and the next step."""
        count = self.whole + sum(last - first + 1 for first, last in self.behind)
        lines = [range_text(1, self.whole)] if self.whole else []
        text = f"{count} record(s) were acknowledged"
        if self.behind:
            lines += [range_text(*each) for each in self.behind[:RANGES_MAX]]
            more = f" and others up to line {self.behind[-1][1]}" if len(self.behind) > RANGES_MAX else ""
            return f"{text}: {', '.join(lines)}{more}; continue with line {self.whole + 1}, without these lines"
        return "".join((text, *(f": {each}" for each in lines), f"; continue with line {self.whole + 1}"))


class SentLines:
    """The lines that were sent, each one record. The memory is that of the lines without an acknowledgement."""

    def __init__(self) -> None:
        self._whole = 0
        self._open: deque[FutureRecordMetadata] = deque()
        self.append = self._open.append

    def __len__(self) -> int:
        return len(self._open)

    @property
    def next_line(self) -> int:
        """The number of the next line, from 1 on."""
        return self._whole + len(self._open) + 1

    def forget_acknowledged(self) -> None:
        """Forget the lines up to the first one without an outcome. No record may have failed yet."""
        lines, count = self._open, 0
        while lines and lines[0].done():
            lines.popleft()
            count += 1
        self._whole += count

    def count_delivered(self) -> Delivered:
        """Return which lines are acknowledged now."""
        whole = self._whole + next((at for at, each in enumerate(self._open) if not is_acknowledged(each)), len(self))
        behind = islice(enumerate(self._open, self._whole + 1), whole - self._whole, None)
        stored, failed = [], None
        for number, future in behind:
            if is_acknowledged(future):
                stored.append(number)
            elif failed is None and future.done():
                failed = number, future.exception()
        return Delivered(whole, list(ranges(stored)), *(failed or (None, None)))


def is_acknowledged(future: FutureRecordMetadata) -> bool:
    """Whether a record is stored."""
    return future.done() and future.exception() is None


def ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last number of each range of ascending numbers without a gap."""
    first = last = None
    for number in numbers:
        if last is None or first is None or number != last + 1:
            if first is not None and last is not None:
                yield first, last
            first = number
        last = number
    if first is not None and last is not None:
        yield first, last


def range_text(first: int, last: int) -> str:
    """Return a range of lines as text."""
    return f"line {first}" if first == last else f"lines {first} to {last}"
