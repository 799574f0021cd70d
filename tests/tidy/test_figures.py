"""The figures that README.md shows are those of the kept reports: who measures anew changes both."""

import json
from pathlib import Path

import pytest

from tests.tidy.figures import wrong

ROOT = Path(__file__).resolve().parents[2]
PAGE = "| load | kafkalite | Kafka | kfake |\n|---|---:|---:|---:|\n| {row} |\n"
START, MEMORY = "start of the process until it answers: ms", "memory at rest / after 10 M records: MB"


def test_all_that_is_shown_was_measured() -> None:
    assert wrong(ROOT) == []


@pytest.mark.parametrize(
    ("row", "right"),
    [
        (f"{START} | **167** | 2,240 | -", True),
        (f"{START} | **167** | 2,200 | -", True),
        (f"{START} | **168** | 2,240 | -", False),
        (f"{START} | **167** | 2,250 | -", False),
        (f"{START} | **167** | 2,240 | 11", False),
        (f"{START} | **167 / 1** | 2,240 | -", False),
        (f"{MEMORY} | 35 / 44.8 | **0.4 k / 1 k** | -", True),
        (f"{MEMORY} | 35 / 44.9 | **0.4 k / 1 k** | -", False),
        ("never heard of | 1 | 2 | -", False),
    ],
)
def test_what_was_not_measured_is_seen(tmp_path: Path, row: str, right: bool) -> None:
    (tmp_path / "README.md").write_text(PAGE.format(row=row))
    results = tmp_path / "perf" / "results"
    results.mkdir(parents=True)
    kept = {
        "2026-01-01-start": {"kafkalite": {"start_ms": 1.0}, "kafka": {"start_ms": 1.0}},
        "2026-11-21-start": {"kafkalite": {"start_ms": 167.4}, "kafka": {"start_ms": 2243.0}, "kfake": {}},
        "2026-11-21-memory": {
            "kafkalite": {"idle_mb": 34.9, "after_mb": 44.81},
            "kafka": {"idle_mb": 399.1, "after_mb": 1030.0},
        },
    }
    for name, medians in kept.items():
        report = {"loads": {name.rpartition("-")[2]: {"medians": medians}}}
        (results / f"{name}.json").write_text(json.dumps(report))
    assert (wrong(tmp_path) == []) is right
