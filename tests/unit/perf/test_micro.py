"""Every micro benchmark runs once, so that a changed name or signature is noticed; three modules are only imported."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SLOW = ("test_compaction", "test_streams", "test_blocking")


def test_each_benchmark_runs_once() -> None:
    selected = " and ".join(f"not {name}" for name in SLOW)
    options = ["--benchmark-disable", "-q", "-p", "no:cacheprovider", "-k", selected]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "perf/micro", *options],
        cwd=ROOT,
        env={**os.environ, "KAFKALITE_SEGMENT_MIB": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout and "failed" not in done.stdout


@pytest.mark.parametrize("name", SLOW)
def test_benchmark_that_takes_seconds_is_imported(name: str) -> None:
    assert importlib.import_module(f"perf.micro.{name}")
