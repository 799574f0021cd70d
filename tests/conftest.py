"""What every test run shares: the engine, the options, and what a run checks about itself. See docs/testing.md."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ENGINE = os.environ.get("KAFKALITE_ENGINE", "c")
ENGINE_DIRECTORIES = {"c": ROOT, "debug": ROOT / "build" / "debug", "asan": ROOT / "build" / "asan"}

# Before anything imports kafkalite: pytest has put the checkout in front, which holds the engine `c` only.
sys.path.insert(0, str(ENGINE_DIRECTORIES[ENGINE]))

pytest_plugins = [
    "tests.fix_run",
    "tests.fix_leftovers",
    "tests.fix_hung",
    "tests.fix_sentinel",
    "tests.fix_fuzz",
    "tests.fix_torture",
    "tests.fix_rigs",
]


def pytest_configure() -> None:
    """Whatever is said or not said of the run, it is of the engine that was asked for."""
    import kafkalite

    loaded_from = Path(kafkalite.__file__).parent.parent
    if loaded_from != ENGINE_DIRECTORIES[ENGINE]:
        raise pytest.UsageError(f"engine {ENGINE} is asked for, but kafkalite comes from {loaded_from}")


def pytest_report_header() -> str:
    return f"kafkalite engine: {ENGINE}"
