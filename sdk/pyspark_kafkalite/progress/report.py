"""Writes the progress of queries as one HTML page with charts; it needs no network and no script."""

import os
from collections import deque
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from pyspark_kafkalite.progress.model import BatchProgress

KEPT = 5000
"""Micro-batches of a query in the page: the last ones."""

WIDTH, HEIGHT = 720, 160
COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf")
STYLE = (
    "body{font:14px sans-serif;margin:2em;max-width:760px}td,th{padding:2px 12px;text-align:right}"
    "svg{background:#f7f7f7}text{font:11px sans-serif}.error{color:#b00}"
)

Series = dict[str, list[float | None]]


class HtmlReport:
    """Keeps a page with rows per second, lag and the time of each phase by micro-batch.

    Arguments:
        path: of the file; it is written when a query ends and by `close`.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._batches: dict[str, deque[BatchProgress]] = {}
        self._errors: dict[str, str | None] = {}
        self._write()

    def batch(self, progress: BatchProgress) -> None:
        """Keep a micro-batch."""
        self._batches.setdefault(progress.name, deque(maxlen=KEPT)).append(progress)

    def ended(self, query: str, error: str | None) -> None:
        """Write the page."""
        self._batches.setdefault(query, deque(maxlen=KEPT))
        self._errors[query] = error
        self._write()

    def close(self) -> None:
        """Write the page."""
        self._write()

    def _write(self) -> None:
        sections = (section(name, list(found), self._errors.get(name)) for name, found in self._batches.items())
        page = f"<!doctype html><meta charset=utf-8><title>kafkalite</title><style>{STYLE}</style>{''.join(sections)}"
        written = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        written.write_text(page, encoding="utf-8")
        os.replace(written, self._path)


def section(name: str, batches: Sequence[BatchProgress], error: str | None) -> str:
    """Return the part of the page about one query.

    Arguments:
        name: of the query.
        batches: its micro-batches.
        error: that has ended it; None = none.
    """
    parts = [f"<h2>{escape(name)}</h2>"]
    if error is not None:
        parts.append(f"<pre class=error>{escape(error)}</pre>")
    if batches:
        seconds = sum(each.duration_ms for each in batches) / 1000
        rows = sum(each.rows for each in batches)
        facts = {
            "micro-batches": f"{len(batches):,}",
            "rows": f"{rows:,}",
            "bytes": f"{sum(each.bytes or 0 for each in batches):,}",
            "bad rows": f"{sum(each.bad_rows for each in batches):,}",
            "rows/s": f"{rows / max(seconds, 0.001):,.0f}",
            "lag": "unknown" if batches[-1].lag is None else f"{batches[-1].lag:,}",
        }
        head, row = ("".join(f"<{tag}>{each}" for each in of) for tag, of in (("th", facts), ("td", facts.values())))
        parts.append(f"<table><tr>{head}<tr>{row}</table>")
    phases = sorted({phase for each in batches for phase in each.phases_ms})
    by_phase: Series = {phase: [each.phases_ms.get(phase) for each in batches] for phase in phases}
    parts += [
        chart("rows/s", {"": _of(batches, lambda each: each.rows * 1000 / max(each.duration_ms, 1))}),
        chart("lag, offsets", {"": _of(batches, lambda each: each.lag)}),
        chart("lag, seconds", {"": _of(batches, lambda each: each.lag_seconds)}),
        chart("phases, ms", by_phase),
    ]
    return "".join(parts)


def _of(batches: Sequence[BatchProgress], value: Callable[[BatchProgress], float | None]) -> list[float | None]:
    return [value(each) for each in batches]


def chart(title: str, series: Series) -> str:
    """Return a line chart; nothing if no value is known.

    Arguments:
        title: with the unit.
        series: values by name, one for each micro-batch; None = unknown.
    """
    known = [value for values in series.values() for value in values if value is not None]
    if not known:
        return ""
    top = max(*known, 1e-9)
    lines = []
    for number, (name, values) in enumerate(series.items()):
        color, step = COLORS[number % len(COLORS)], WIDTH / max(len(values) - 1, 1)
        dots = [(at * step, HEIGHT * (1 - value / top)) for at, value in enumerate(values) if value is not None]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
        lines.append(f'<polyline fill="none" stroke="{color}" points="{path}"/>')
        lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{color}"/>' for x, y in dots[:1] + dots[-1:]]
        lines.append(f'<text x="{number * 100 + 4}" y="{HEIGHT + 28}" fill="{color}">{escape(name)}</text>')
    label = f'<text x="4" y="-4">{top:,.6g}</text>'
    return (
        f'<h3>{escape(title)}</h3><svg viewBox="-4 -18 {WIDTH + 8} {HEIGHT + 50}" width="{WIDTH}">{label}'
        f'{"".join(lines)}<line x1="0" y1="{HEIGHT}" x2="{WIDTH}" y2="{HEIGHT}" stroke="#999"/></svg>'
    )
