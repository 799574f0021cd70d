"""The report of `python -m perf pipeline`: JSON with all samples, and Markdown with the limits first."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from perf import limits
from perf.limits import OURS, Limit, figures_json, head, line, section
from perf.pipeline.compare import Plan, Result
from perf.process import machine
from perf.report import commit, number
from tests.kit import jvm

INTRODUCTION = (
    "Each side is a Spark session that runs all rows, with two task slots; files are in memory unless a row says that "
    "they are on a disk. CPU is that of the JVM and its Python processes, without the broker. Limits: our figure "
    "divided by that of the named side, the median of the repetitions (no side: the figure itself). Sides take turns."
)


def as_json(plan: Plan, results: Sequence[Result]) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "repetitions": plan.repetitions,
        "percent": plan.percent,
        "broker": {"title": plan.broker.title, "version": plan.broker.version()},
        "spark": jvm.FOREIGN["spark"]["pyspark"],
        "rows": {result.row.name: _row_json(result) for result in results},
    }


def _row_json(result: Result) -> dict[str, Any]:
    return {
        "title": result.row.title,
        "figures": figures_json(result.row.figures),
        "medians": {side: result.medians(side) for side in result.samples},
        "limits": [_limit_json(result, limit) for limit in result.row.limits],
        "samples": result.samples,
    }


def _limit_json(result: Result, limit: Limit) -> dict[str, Any]:
    """Our figure, or its factor of the other side's in each repetition."""
    ours = [sample[limit.figure] for sample in result.samples[OURS]]
    if limit.client:
        others = [sample[limit.figure] for sample in result.samples[limit.client]]
        ours = [one / other for one, other in zip(ours, others, strict=True)]
    named = {"figure": limit.figure, "side": limit.client, "must": limit.must, "aim": limit.aim}
    found = {"median": median(ours), "least": min(ours), "greatest": max(ours)}
    return {**named, **found, "verdict": limit.verdict(result.row.figures, found["median"])}


def as_markdown(report: Mapping[str, Any]) -> str:
    """The limits in one table, then one table of figures per row."""
    on = report["machine"]
    small = "" if report["percent"] == 100 else f" With {report['percent']} % of the records: no basis for conclusions."
    lines = [
        "# Pipeline",
        "",
        f"Commit {report['commit']}, {report['date']}. {on['processor']}, {on['cores']} cores, {on['memory']}, "
        f"{on['kernel']}. Spark and its Kafka connector {report['spark']}, broker {report['broker']['title']} "
        f"{report['broker']['version']}. Medians of {report['repetitions']} repetition(s) after a warm-up.{small}",
        "",
        INTRODUCTION,
        "",
        "| row | figure | compared with | must | aim | median | least | greatest | reached |",
        "|---|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for name, row in report["rows"].items():
        lines += [_limit_line(name, row["figures"], limit) for limit in row["limits"]]
    for name, row in report["rows"].items():
        lines += section(name, row, _table(row))
    return "\n".join([*lines, ""])


def _limit_line(name: str, figures: Mapping[str, Any], limit: Mapping[str, Any]) -> str:
    values = [limit[key] for key in ("must", "aim", "median", "least", "greatest")]
    title = figures[limit["figure"]]["title"]
    return line(name, title, limit["side"] or "-", values=values, verdict=limit["verdict"])


def _table(row: Mapping[str, Any]) -> list[str]:
    heads = [head(figure) for figure in row["figures"].values()]
    lines = ["| side, median | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    for side, medians in row["medians"].items():
        lines.append(f"| {side} | " + " | ".join(number(medians[key]) for key in row["figures"]) + " |")
    return lines


def write(out: Path, report: Mapping[str, Any]) -> list[Path]:
    """Write OUT.json and OUT.md; the paths."""
    return limits.write(out, report, as_markdown(report))
