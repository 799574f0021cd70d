"""Shows tables of the flights as text. Pure."""

import json
from collections import defaultdict

import pyarrow

WIDTH = 40
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def monthly(windows: pyarrow.Table) -> str:
    """Return a bar for each month: the number of flights, and the mean delay of a departure in minutes.

    Arguments:
        windows: with `window_start`, `flights` and `delay`.
    """
    counts: dict[tuple[int, int], int] = defaultdict(int)
    delays: dict[tuple[int, int], float] = defaultdict(float)
    for row in windows.select(["window_start", "flights", "delay"]).to_pylist():
        month = (row["window_start"].year, row["window_start"].month)
        counts[month] += row["flights"]
        delays[month] += row["flights"] * (row["delay"] or 0.0)
    most = max(counts.values(), default=1)
    lines = ["month     flights  mean delay"]
    for month, count in sorted(counts.items()):
        bar = "█" * max(1, round(count * WIDTH / most))
        mean = delays[month] / count
        lines.append(f"{MONTHS[month[1] - 1]} {month[0]}  {count:7,}  {mean:6.1f} min  {bar}")
    return "\n".join(lines)


def table_text(rows: pyarrow.Table) -> str:
    """Return a line for each flight.

    Arguments:
        rows: with `key`, `value` and `_timestamp`.
    """
    lines = []
    for row in rows.to_pylist():
        flight = json.loads(row["value"])
        where = f"{flight['carrier']}{flight['flight']} {flight['origin']}-{flight['dest']}"
        lines.append(f"  {row['key'].decode():8}{where:18}{row['_timestamp']:%Y-%m-%d %H:%M} UTC")
    return "\n".join(lines)
