"""Compares the figures of README.md, of brokers and of clients, with the reports that are kept in perf/results."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.tidy.promises import tables

BROKERS = ("kafkalite", "kafka", "kfake")
UNITS = {"M": 1e6, "k": 1e3, "": 1.0}
_NUMBER = re.compile(r"([\d,]+(?:\.(\d+))?) ?([Mk]?)\b")


class Source(NamedTuple):
    """Where a figure comes from; `scale`: so many of the report's units are one of the table's."""

    load: str
    figure: str
    scale: float = 1.0


SOURCES = {
    "produce 100 B, acks=all: records/s": [Source("produce-100", "records_per_s")],
    "the same: CPU seconds of the broker per million records": [Source("produce-100", "cpu_s_per_m")],
    "the same with lz4: records/s": [Source("produce-100-lz4", "records_per_s")],
    "the same with lz4: CPU seconds per million": [Source("produce-100-lz4", "cpu_s_per_m")],
    "produce 1,000 B: MB/s": [Source("produce-1000", "mb_per_s")],
    "consume 100 B: records/s": [Source("consume-100", "records_per_s")],
    "the same: CPU seconds per million": [Source("consume-100", "cpu_s_per_m")],
    "one record at a time, acknowledged: p50 / p99 ms": [Source("latency", "p50"), Source("latency", "p99")],
    "one record a request, pipelined, 1 connection: requests/s; CPU us each": [
        Source("requests-c1", "requests_per_s"),
        Source("requests-c1", "cpu_us"),
    ],
    "the same, 10 connections": [Source("requests-c10", "requests_per_s"), Source("requests-c10", "cpu_us")],
    "each acknowledgement after an fsync, 10 connections: per second": [Source("synced-c10", "acks_per_s")],
    "memory at rest / after 10 M records: MB": [Source("memory", "idle_mb"), Source("memory", "after_mb")],
    "memory per idle connection: KiB": [Source("connections", "kib_per_connection")],
    "start of the process until it answers: ms": [Source("start", "start_ms")],
    "start after SIGKILL with 2 GiB in 64 partitions: ms": [Source("unclean-start", "start_ms")],
    "compaction of 1 GiB with 1 M keys, one thread: MB/s; CPU seconds per GB": [
        Source("compaction", "mb_per_s"),
        Source("compaction", "cpu_s_per_gb"),
    ],
    "commits of 10 offsets: per CPU second": [Source("offset-commit", "commits_per_cpu_s")],
    "a rebalance of 100 members over 1,000 partitions, classic / KIP-848: CPU ms": [
        Source("rebalance-classic", "cpu_ms"),
        Source("rebalance-consumer", "cpu_ms"),
    ],
    "5,000 idle members, a heartbeat every 3 s, classic / KIP-848: % of one core": [
        Source("idle-classic", "core_percent"),
        Source("idle-consumer", "core_percent"),
    ],
    "start with 1 M commits in the log until offsets are answered: s": [Source("offset-restart", "ready_ms", 1e3)],
}


CLIENTS = ("kafkalite", "confluent", "aiokafka")
CLIENT_SOURCES = {
    "produce 100 B, each awaitable kept: records/s": [Source("produce-100", "records_per_s")],
    "produce: CPU us per record": [Source("produce-100", "cpu_us")],
    "produce 1 KiB: records/s": [Source("produce-1024", "records_per_s")],
    "one awaited send after another: p50 / p99 ms": [Source("latency", "p50"), Source("latency", "p99")],
    "200 tasks that each do this: records/s": [Source("tasks", "records_per_s")],
    "consume 100 B with `poll`, `consume(500)`, `getmany`: records/s": [Source("consume-poll", "records_per_s")],
    "consume: CPU us per record": [Source("consume-poll", "cpu_us")],
    "consume 100 B record by record, `async for`: records/s": [Source("consume-iterate", "records_per_s")],
    "consume 100 B as columns: records/s": [Source("consume-columns-100", "records_per_s")],
}


def wrong(root: Path) -> list[str]:
    """Figures of README.md that no kept report has, or has otherwise; one line each."""
    found = {table[0][0]: table for table in tables((root / "README.md").read_text())}
    return [
        *_differences(found["load"], BROKERS, SOURCES, lambda broker, source: _of_broker(root, broker, source)),
        *_differences(found["client"], CLIENTS, CLIENT_SOURCES, lambda name, source: _of_client(root, name, source)),
    ]


def _differences(
    table: Sequence[Sequence[str]],
    columns: Sequence[str],
    sources: Mapping[str, Sequence[Source]],
    kept_by: Callable[[str, Source], float | None],
) -> list[str]:
    head, *rows = table
    assert len(head) == len(columns) + 1
    lines = [f"{row[0]}: the figure has no source" for row in rows if row[0] not in sources]
    for label, *cells in rows:
        for column, cell in zip(columns, cells, strict=True):
            shown = [] if cell == "-" else cell.replace("*", "").split(";" if ";" in cell else "/")
            kept = [kept_by(column, source) for source in sources.get(label, ())]
            if len(shown) not in (0, len(kept)) or not all(map(_agree, shown, kept)):
                lines.append(f"{label}: {column} has {kept}, shown is {cell}")
    return lines


def _of_broker(root: Path, broker: str, source: Source) -> float | None:
    """The median of the newest report with that load."""
    path = max(root.glob(f"perf/results/????-??-??-{source.load}.json"))
    found = json.loads(path.read_text())["loads"][source.load]["medians"].get(broker, {}).get(source.figure)
    return None if found is None else found / source.scale


def _of_client(root: Path, client: str, source: Source) -> float | None:
    """The median of the newest report of clients, with kafkalite as the broker."""
    path = max(root.glob("perf/results/????-??-??-clients.json"))
    medians = json.loads(path.read_text())["rows"][source.load]["medians"]["kafkalite"]
    found: float | None = medians.get(client, {}).get(source.figure)
    return found


def _agree(shown: str, kept: float | None) -> bool:
    """Whether a number is the kept one, rounded to the digits that are shown, but to no fewer than two of them."""
    number = _NUMBER.fullmatch(shown.strip())
    if number is None or kept is None:
        return False
    value, unit = float(number[1].replace(",", "")), UNITS[number[3]]
    digits = number[1].replace(",", "").replace(".", "").lstrip("0")
    zeros = 0 if number[2] else max(0, min(len(digits) - 2, len(digits) - len(digits.rstrip("0"))))
    step = 10.0 ** (zeros - len(number[2] or ""))
    return abs(value * unit - kept) <= step * unit * 0.501
