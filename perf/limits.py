"""Limits of figures, and what reports that have limits share."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf.loads import Figure
from perf.report import number

OURS = "kafkalite"


@dataclass(frozen=True)
class Limit:
    """What the figure of `ours` must reach, as a factor of another client's, or as a value where `client` is empty.

    Where higher figures are better, the factor is a minimum, else a maximum.
    """

    figure: str
    client: str
    must: float
    aim: float | None = None
    ours: str = OURS

    def verdict(self, figures: Sequence[Figure], value: float) -> str:
        """What a value reaches, one of "aim", "must", "missed"; `figures` are those of the row."""
        higher = next(each.better for each in figures if each.key == self.figure) == "higher"

        def reached(wanted: float | None) -> bool:
            return wanted is not None and (value >= wanted if higher else value <= wanted)

        return "aim" if reached(self.aim) else "must" if reached(self.must) else "missed"


def figures_json(figures: Sequence[Figure]) -> dict[str, Any]:
    """The figures of a row, by key."""
    return {each.key: {"title": each.title, "unit": each.unit, "better": each.better} for each in figures}


def head(figure: Mapping[str, str]) -> str:
    """The heading of a column."""
    return f"{figure['title']}{figure['unit'] and ', '}{figure['unit']}"


def line(*texts: str, values: Sequence[float | None] = (), verdict: str) -> str:
    """A line of the table of limits; None = no value."""
    shown = ["-" if value is None else number(value) for value in values]
    return f"| {' | '.join([*texts, *shown, verdict])} |"


def section(name: str, row: Mapping[str, Any], table: Sequence[str]) -> list[str]:
    """The lines of a row's section."""
    return ["", f"## {name}", "", f"{row['title'][0].upper()}{row['title'][1:]}.", "", *table]


def write(out: Path, report: Mapping[str, Any], markdown: str) -> list[Path]:
    """Write OUT.json and OUT.md; the paths."""
    out.parent.mkdir(parents=True, exist_ok=True)
    files = {out.with_suffix(".json"): json.dumps(report, indent=1) + "\n", out.with_suffix(".md"): markdown}
    for path, text in files.items():
        path.write_text(text)
    return list(files)
