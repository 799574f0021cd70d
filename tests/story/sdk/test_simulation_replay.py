"""A seed repeats a simulation exactly in another process, whose hashes of strings are other ones."""

import os
import subprocess
import sys

RUNS = ["producer:1", "leaders:2", "client:1", "groups:1", "groups:2", "groups:4"]


def wire_logs(hash_seed: int) -> str:
    """The digests of the wire logs of all runs in a process of its own."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-m", "tests.story.sdk.replay", *RUNS]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_a_seed_repeats_each_write_in_another_process() -> None:
    first, second = wire_logs(1), wire_logs(2)
    assert first.count("\n") == 2 * len(RUNS)  # seed and digest of each run
    assert first == second
