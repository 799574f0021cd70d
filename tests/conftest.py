"""What every test run shares: the engine, the options, and what a run checks about itself. See docs/testing.md."""

import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.kit.seeds import draw_first_seed

ROOT = Path(__file__).resolve().parent.parent
ENGINE = os.environ.get("KAFKALITE_ENGINE", "c")
ENGINE_DIRECTORIES = {"c": ROOT, "debug": ROOT / "build" / "debug", "asan": ROOT / "build" / "asan"}

# Before anything imports kafkalite: pytest has put the checkout in front, which holds the engine `c` only.
sys.path.insert(0, str(ENGINE_DIRECTORIES[ENGINE]))

draw_first_seed()  # before a test module reads it

# Spark has an environment of its own, and its tests are a step of their own: see docs/testing.md.
collect_ignore = [] if find_spec("pyspark") else ["spark"]

pytest_plugins = [
    "tests.fix_run",
    "tests.fix_failures",
    "tests.fix_leftovers",
    "tests.fix_hung",
    "tests.fix_foreign",
    "tests.fix_sentinel",
    "tests.fix_collector",
    "tests.fix_fuzz",
    "tests.fix_torture",
    "tests.fix_rigs",
    "tests.fix_ram",
]


def pytest_configure() -> None:
    """Check that the engine is the one that was asked for, and give SIGHUP its default action.

    A run under nohup ignores SIGHUP, and so would the brokers that it starts: `serve` leaves an ignored SIGHUP alone.
    """
    import kafkalite

    signal.signal(signal.SIGHUP, signal.SIG_DFL)

    loaded_from = Path(kafkalite.__file__).parent.parent
    if loaded_from != ENGINE_DIRECTORIES[ENGINE]:
        raise pytest.UsageError(f"engine {ENGINE} is asked for, but kafkalite comes from {loaded_from}")


def pytest_report_header() -> str:
    return f"kafkalite engine: {ENGINE}"
