"""The results as JSON (kept), Markdown (read) and SVG (seen)."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from perf.compare import LoadResult, Plan
from perf.loads import Figure
from perf.process import machine

ROOT = Path(__file__).parent.parent
COLOURS = ("#2563eb", "#d97706", "#059669", "#7c3aed")


def as_json(plan: Plan, results: Sequence[LoadResult]) -> dict[str, Any]:
    """Everything that was measured, with what it was measured on."""
    return {
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "rounds": plan.rounds,
        "quick": plan.quick,
        "brokers": {broker.name: {"title": broker.title, "version": broker.version()} for broker in plan.brokers},
        "loads": {result.load.name: _load_json(plan, result) for result in results},
    }


def _load_json(plan: Plan, result: LoadResult) -> dict[str, Any]:
    return {
        "title": result.load.title,
        "group": result.load.group,
        "figures": {f.key: {"title": f.title, "unit": f.unit, "better": f.better} for f in result.load.figures},
        "medians": {broker.name: result.medians(broker.name) for broker in plan.brokers},
        "samples": result.samples,
    }


def commit() -> str:
    """The commit that was measured; `+` if the checkout differs from it, `unknown` outside a checkout."""
    done = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def as_markdown(report: Mapping[str, Any], picture: str | None = None) -> str:
    """Tables of medians, one per load; the best of a line is bold, the last columns compare the first broker."""
    on = report["machine"]
    quick = " A quick run: sizes are too small for conclusions." if report["quick"] else ""
    lines = [
        "# Comparison",
        "",
        f"Commit {report['commit']}, {report['date']}. {on['processor']}, {on['cores']} cores, {on['memory']}, "
        f"{on['kernel']}. Medians of {report['rounds']} interleaved round(s) after a warm-up.{quick}",
        "Every record sent was read back and nothing failed; a run where that is not so gives no report.",
        "",
        *([f"![medians]({picture})", ""] if picture else []),
    ]
    for group in sorted({load["group"] for load in report["loads"].values()} - {""}):
        lines += [f"## All {group} loads", "", *_group_table(report, group), ""]
    for name, load in report["loads"].items():
        lines += [f"## {name}", "", f"{load['title'][0].upper()}{load['title'][1:]}.", "", *_table(report, load), ""]
    return "\n".join(lines)


def _group_table(report: Mapping[str, Any], group: str) -> list[str]:
    """One row for each load of the group, with its figures for every broker; their figures begin with the same ones."""
    loads = {name: load for name, load in report["loads"].items() if load["group"] == group}
    common = [
        key for key in next(iter(loads.values()))["figures"] if all(key in each["figures"] for each in loads.values())
    ]
    of = next(iter(loads.values()))["figures"]
    heads = [f"{broker}: {of[key]['title']}, {of[key]['unit']}" for broker in report["brokers"] for key in common]
    lines = ["| load | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    for name, load in loads.items():
        cells = [_cell(load["medians"][broker].get(key), None) for broker in report["brokers"] for key in common]
        lines.append(f"| {name.removeprefix(group + '-')} | " + " | ".join(cells) + " |")
    return lines


def _table(report: Mapping[str, Any], load: Mapping[str, Any]) -> list[str]:
    brokers: list[str] = list(report["brokers"])
    first, others = brokers[0], brokers[1:]
    titles = [f"{report['brokers'][b]['title']}" for b in brokers]
    ratios = [f"{first} / {other}" for other in others]
    lines = ["| figure | " + " | ".join(titles + ratios) + " |", "|---|" + "---:|" * len(titles + ratios)]
    for key, figure in load["figures"].items():
        values = {broker: load["medians"][broker].get(key) for broker in brokers}
        measured = [value for value in values.values() if value is not None]
        best = (max if figure["better"] == "higher" else min)(measured)
        cells = [_cell(value, best if len(measured) > 1 else None) for value in values.values()]
        cells += [_ratio(values[first], values[other]) for other in others]
        unit = f", {figure['unit']}" if figure["unit"] else ""
        lines.append(f"| {figure['title']}{unit} | " + " | ".join(cells) + " |")
    return lines


def _cell(value: float | None, best: float | None) -> str:
    if value is None:
        return "-"
    return f"**{number(value)}**" if value == best else number(value)


def _ratio(value: float | None, other: float | None) -> str:
    return f"{value / other:.2f}" if value is not None and other else "-"


def number(value: float) -> str:
    """Three significant digits, thousands separated."""
    if abs(value) >= 1000:
        digits = len(str(int(abs(value)))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def as_svg(report: Mapping[str, Any]) -> str:
    """Bars of the first figure of every load, and of its CPU cost where it has one."""
    bars = [
        (f"{name}: {load['figures'][key]['title']}", load["figures"][key], key, load["medians"])
        for name, load in report["loads"].items()
        for key in load["figures"]
        if key == next(iter(load["figures"])) or key.startswith("cpu")
    ]
    brokers = list(report["brokers"])
    height_of_group = 20 + 16 * len(brokers)
    height = 40 + height_of_group * len(bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="760" height="{height}" fill="#ffffff"/>',
    ]
    for index, broker in enumerate(brokers):
        x = 10 + 200 * index
        parts.append(f'<rect x="{x}" y="10" width="12" height="12" fill="{COLOURS[index % len(COLOURS)]}"/>')
        parts.append(f'<text x="{x + 18}" y="20">{escape(report["brokers"][broker]["title"])}</text>')
    for row, (title, figure, key, medians) in enumerate(bars):
        parts += _group(
            40 + row * height_of_group, title, figure, [medians[broker].get(key, 0.0) for broker in brokers]
        )
    return "\n".join([*parts, "</svg>", ""])


def _group(top: int, title: str, figure: Mapping[str, str], values: Sequence[float]) -> list[str]:
    longest = max([*values, 1e-12])
    unit = f" ({figure['unit']})" if figure["unit"] else ""
    parts = [f'<text x="10" y="{top + 12}">{escape(title + unit)}, {figure["better"]} is better</text>']
    for index, value in enumerate(values):
        y, width = top + 18 + 16 * index, max(1.0, value / longest * 600)
        colour = COLOURS[index % len(COLOURS)]
        parts.append(f'<rect x="10" y="{y}" width="{width:.0f}" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{16 + width:.0f}" y="{y + 10}">{number(value)}</text>')
    return parts


def bars_for_terminal(figure: Figure, medians: Mapping[str, float], width: int = 40) -> list[str]:
    """One line per broker for one figure."""
    longest = max([*medians.values(), 1e-12])
    return [
        f"  {broker:<10} {'█' * max(1, round(value / longest * width)):<{width}} {number(value)} {figure.unit}".rstrip()
        for broker, value in medians.items()
    ]


def write(out: Path, report: Mapping[str, Any]) -> list[Path]:
    """Write OUT.json, OUT.md and OUT.svg; the paths."""
    out.parent.mkdir(parents=True, exist_ok=True)
    files = {
        out.with_suffix(".json"): json.dumps(report, indent=1) + "\n",
        out.with_suffix(".md"): as_markdown(report, f"{out.stem}.svg"),
        out.with_suffix(".svg"): as_svg(report),
    }
    for path, text in files.items():
        path.write_text(text)
    return list(files)
