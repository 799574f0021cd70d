"""Every micro benchmark runs once, so that a changed name or signature is noticed; three modules are only imported."""

import os
import subprocess
import sys
from pathlib import Path

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
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout and "failed" not in done.stdout


def test_every_benchmark_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "perf/micro", "--collect-only", "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert all(f"perf/micro/{name}.py" in done.stdout for name in SLOW)
