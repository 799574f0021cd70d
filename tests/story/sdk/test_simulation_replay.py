"""A seed repeats a simulation exactly: in another process with other hashes of strings, and after other simulations."""

import os
import subprocess
import sys

RUNS = ["producer:1", "leaders:2", "client:1", "groups:1", "groups:2", "groups:4", "groups:77100032"]


def wire_logs(runs: list[str], hash_seed: int) -> list[str]:
    """The digest of the wire log of each run, in a process of its own; sorted."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-m", "tests.story.sdk.replay", *runs]
    output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return sorted(line for line in output.splitlines() if line.startswith(tuple(runs)))


def test_a_seed_repeats_each_write_in_another_process_and_after_other_runs() -> None:
    first, second = wire_logs(RUNS, 1), wire_logs(RUNS[::-1], 2)
    assert len(first) == len(RUNS)
    assert first == second
