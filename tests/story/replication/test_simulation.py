"""Whole brokers with several replicas, clients and groups under random faults: what was acknowledged is kept.

`--simulations N` runs more seeds; KAFKALITE_SEED repeats one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.story.replication.scenario import run_seed
from tests.story.replication.used_rows import UsedRows, common_rows, is_rare
from tests.story.sdk.world import seeds, total

RUNS = 20
ALL_ROWS_RUNS = 500
ACKNOWLEDGED_MIN = 200  # on average: a cluster without two in-sync replicas acknowledges little


@pytest.mark.torture
def test_acknowledged_records_are_kept_on_replicas_under_random_faults(
    tmp_path: Path, simulations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = UsedRows(monkeypatch)
    runs = [run_seed(tmp_path, seed) for seed in seeds(simulations, RUNS)]
    totals = total(runs)
    print(totals)
    if len(runs) >= RUNS:
        assert all(run["leader changes"] for run in runs)
        assert totals["acknowledged"] >= ACKNOWLEDGED_MIN * len(runs)
        assert sum(run.get("ISR shrinks", 0) > 0 for run in runs) >= len(runs) / 2
        assert sum(run.get("truncations", 0) > 0 for run in runs) >= len(runs) / 4
        assert totals["power failures"] > 0
        assert not rows.unused & common_rows()
    if len(runs) >= ALL_ROWS_RUNS:
        assert [each for each in sorted(rows.unused) if not is_rare(each)] == []
