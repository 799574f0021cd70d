"""Shows the progress of a query in a terminal."""

import math
import sys
import time
from collections.abc import Callable
from typing import TextIO

from pyspark_kafkalite.progress.model import BatchProgress

WIDTH = 20
LINE_INTERVAL_S = 5.0


class ProgressBar:
    """One line for each query, which is replaced by each micro-batch; without a terminal, a line every few seconds.

    Arguments:
        stream: to write to; None = standard error.
        monotonic: returns the time in seconds.
    """

    def __init__(self, stream: TextIO | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._monotonic = monotonic
        self._next_s = -math.inf  # of a line without a terminal
        self._skipped = ""  # the last line that was not written
        self._first: dict[str, int] = {}  # by query: offsets before its first micro-batch, summed over partitions
        self._rows: dict[str, int] = {}
        self._width = 0

    def batch(self, progress: BatchProgress) -> None:
        """Show a micro-batch."""
        self._rows[progress.run_id] = self._rows.get(progress.run_id, 0) + progress.rows
        part = self._part(progress)
        bar = "" if part is None else f"[{'#' * round(part * WIDTH):-<{WIDTH}}] {part:4.0%}  "
        speed = progress.rows * 1000 / max(progress.duration_ms, 1)
        lag = "" if progress.lag is None else f"  lag {progress.lag:,}"
        age = "" if progress.lag_seconds is None else f" ({progress.lag_seconds:,.0f} s)"
        rows = f"{self._rows[progress.run_id]:,} rows  {speed:,.0f} rows/s"
        self._show(f"{progress.name}  {bar}micro-batch {progress.batch_id}  {rows}{lag}{age}")

    def ended(self, query: str, error: str | None) -> None:
        """Show that a query has ended."""
        before = "\n" if self._width else self._skipped
        self._skipped = ""
        self._width = 0
        self._stream.write(f"{before}{query}  {'ended' if error is None else 'failed'}\n")
        self._stream.flush()

    def close(self) -> None:
        """Do nothing: the stream belongs to the caller."""

    def _part(self, progress: BatchProgress) -> float | None:
        """How much of the log was read since the first micro-batch; None = unknown."""
        if progress.lag is None:
            return None
        ends = sum(each.end for each in progress.partitions.values())
        starts = sum(each.start for each in progress.partitions.values())
        first = self._first.setdefault(progress.run_id, starts)
        total = ends + progress.lag - first
        return (ends - first) / total if total > 0 else 1.0

    def _show(self, line: str) -> None:
        if self._stream.isatty():
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        elif (now_s := self._monotonic()) >= self._next_s:
            self._next_s, self._skipped = now_s + LINE_INTERVAL_S, ""
            self._stream.write(line + "\n")
        else:
            self._skipped = line + "\n"
        self._stream.flush()
