"""Transactions of whole brokers with several replicas under random faults: atomic, and each input is processed once.

`--simulations N` runs more seeds; KAFKALITE_SEED repeats one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.story.sdk.world import seeds, total
from tests.story.transactions.scenario import run_seed

RUNS = 57
COMMITTED_MIN = 10  # on average


@pytest.mark.torture
def test_transactions_are_atomic_under_random_faults(tmp_path: Path, simulations: int) -> None:
    runs = [run_seed(tmp_path, seed) for seed in seeds(simulations, RUNS)]
    totals = total(runs)
    print(totals)
    if len(runs) >= RUNS:
        assert totals["committed"] >= COMMITTED_MIN * len(runs)
        for event in (
            *("leader changes", "power failures", "killed clients", "zombies", "kill", "disconnect"),
            *("runs of version 1", "runs of version 2", "aborted", "open"),
        ):
            assert totals[event] > 0, event
