"""The report of `python -m perf clients`: JSON with all samples, and Markdown with the limits first."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perf import limits
from perf.clients.compare import Plan, RowResult
from perf.clients.rows import Row
from perf.limits import Limit, figures_json, head, line, section
from perf.process import machine
from perf.report import commit, number


def as_json(plan: Plan, results: Sequence[RowResult]) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "repetitions": plan.repetitions,
        "quick": plan.quick,
        "brokers": {broker.name: {"title": broker.title, "version": broker.version()} for broker in plan.brokers},
        "clients": {name: {"title": each.title, "version": each.version()} for name, each in plan.clients.items()},
        "rows": {result.row.name: _row_json(result) for result in results},
    }


def _row_json(result: RowResult) -> dict[str, Any]:
    brokers = result.samples
    return {
        "title": result.row.title,
        "figures": figures_json(result.row.figures),
        "medians": {broker: {name: result.medians(broker, name) for name in of} for broker, of in brokers.items()},
        "best": {broker: {name: result.best(broker, name) for name in of} for broker, of in brokers.items()},
        "limits": {broker: [_limit_json(result, broker, limit) for limit in result.row.limits] for broker in brokers},
        "samples": brokers,
    }


def _limit_json(result: RowResult, broker: str, limit: Limit) -> dict[str, Any]:
    """Our figure, or its factor of the other client's, for medians and for the best values; None = not measured."""
    measured = result.samples[broker]
    factor: dict[str, float | None] = {"median": None, "best": None}
    if limit.ours in measured and (limit.client in measured or not limit.client):
        for key, of in (("median", result.medians), ("best", result.best)):
            other = of(broker, limit.client)[limit.figure] if limit.client else 1.0
            factor[key] = of(broker, limit.ours)[limit.figure] / other
    if limit.figure == "records_per_s" and factor["median"] is not None:
        factor["cpu"] = result.medians(broker, limit.client)["cpu_us"] / result.medians(broker, limit.ours)["cpu_us"]
    named = {"ours": limit.ours, "figure": limit.figure, "client": limit.client, "must": limit.must, "aim": limit.aim}
    return {**named, **factor, "verdict": _verdict(result.row, limit, factor["median"])}


def _verdict(row: Row, limit: Limit, value: float | None) -> str:
    return "not measured" if value is None else limit.verdict(row.figures, value)


def as_markdown(report: Mapping[str, Any]) -> str:
    """The limits in one table, then one table of figures per row."""
    on = report["machine"]
    quick = " A quick run: sizes are too small for conclusions." if report["quick"] else ""
    versions = ", ".join(f"{each['title']} {each['version']}" for each in report["clients"].values())
    lines = [
        "# Clients",
        "",
        f"Commit {report['commit']}, {report['date']}. {on['processor']}, {on['cores']} cores, {on['memory']}, "
        f"{on['kernel']}. {versions}. Medians of {report['repetitions']} interleaved run(s) after a warm-up; each run "
        f"is a process of its own.{quick}",
        "",
        "Limits: the first client's figure divided by that of the second (no second: the figure itself). CPU: "
        "the second client's CPU time per record divided by the first client's.",
        "",
        "| row | broker | figure | client | compared with | must | aim | median | best | CPU | reached |",
        "|---|---|---|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for name, row in report["rows"].items():
        for broker, found in row["limits"].items():
            lines += [_limit_line(name, broker, row["figures"], limit) for limit in found]
    for name, row in report["rows"].items():
        lines += section(name, row, _table(report, row))
    return "\n".join([*lines, ""])


def _limit_line(name: str, broker: str, figures: Mapping[str, Any], limit: Mapping[str, Any]) -> str:
    values = [limit.get(key) for key in ("must", "aim", "median", "best", "cpu")]
    title = figures[limit["figure"]]["title"]
    client = limit["client"] or "-"
    return line(name, broker, title, limit["ours"], client, values=values, verdict=limit["verdict"])


def _table(report: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    heads = [f"{broker}: {head(figure)}" for broker in report["brokers"] for figure in row["figures"].values()]
    lines = ["| client, median (best) | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    for name, client in report["clients"].items():
        if any(name in of for of in row["medians"].values()):
            cells = [_cell(row, broker, name, key) for broker in report["brokers"] for key in row["figures"]]
            lines.append(f"| {client['title']} | " + " | ".join(cells) + " |")
    return lines


def _cell(row: Mapping[str, Any], broker: str, client: str, key: str) -> str:
    medians, best = row["medians"][broker].get(client), row["best"][broker].get(client)
    return "-" if medians is None else f"{number(medians[key])} ({number(best[key])})"


def write(out: Path, report: Mapping[str, Any]) -> list[Path]:
    """Write OUT.json and OUT.md; the paths."""
    return limits.write(out, report, as_markdown(report))
