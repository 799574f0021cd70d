"""Whole brokers with several replicas, clients and groups under random faults: what was acknowledged is kept.

`make simulate SEEDS=n` runs more seeds; KAFKALITE_SEED repeats one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.story.replication.scenario import run_seed
from tests.story.sdk.world import seeds, total

RUNS = 30


@pytest.mark.torture
def test_acknowledged_records_are_kept_on_replicas_under_random_faults(tmp_path: Path, simulations: int) -> None:
    totals = total(run_seed(tmp_path, seed) for seed in seeds(simulations, RUNS))
    print(totals)
