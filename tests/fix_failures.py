"""Which failures count at once, and `--failures FILE`: a list of the failed tests for `tests.repeat_failures`.

A failure that the speed of the machine may cause is repeated once, alone. These are conclusive instead, and count at
once:

- a test marked `conclusive`, by itself or by its path: its seed and virtual time or simulated disks decide its outcome;
- a `ViolationError`: a checker found a broken promise, or a broker has crashed;
- a lost worker.
"""

import json
import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.checker import ViolationError

CONCLUSIVE = "conclusive"
GROUP = re.compile(r"@[\w-]+$")  # `--dist loadgroup` appends it to the name of a test; a test alone has none
DECIDED_BY_THEIR_SEED = (
    "tests/fuzz/",
    "tests/parity/",
    "tests/rigs/",
    "tests/story/cluster/test_simulation",
    "tests/story/controller/",
    "tests/story/groups/",
    "tests/story/replication/test_simulation",
    "tests/story/sdk/test_simulation",
    "tests/story/transactions/test_simulation",
    "tests/tidy/",
    "tests/unit/coordination/zookeeper/test_random_faults.py",
    "tests/unit/sdk/test_fetcher_simulation.py",
    "tests/unit/sdk/test_sender_simulation.py",
    "tests/unit/state/",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failures", help="file for the list of failed tests, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{CONCLUSIVE}: a failure counts, also where a second run passes")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(DECIDED_BY_THEIR_SEED):
            item.add_marker(CONCLUSIVE)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        violation = call.excinfo is not None and call.excinfo.errisinstance(ViolationError)
        marked = item.get_closest_marker(CONCLUSIVE) is not None
        report.user_properties.append((CONCLUSIVE, violation or marked))
    return report


def failure(report: pytest.TestReport | pytest.CollectReport) -> dict[str, Any]:
    """A failed report as JSON. One without the property, of a lost worker or a collection, is conclusive."""
    properties = dict(getattr(report, "user_properties", ()))
    sections = [f"--- {name} ---\n{text}" for name, text in report.sections]
    crash = getattr(report.longrepr, "reprcrash", None)
    return {
        "test": GROUP.sub("", report.nodeid),
        "error": report.longreprtext if crash is None else crash.message,
        "output": "\n".join([report.longreprtext, *sections]),
        CONCLUSIVE: properties.get(CONCLUSIVE, True),
    }


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    path = session.config.getoption("failures")
    if path is None or reporter is None or hasattr(session.config, "workerinput"):
        return
    reports = [*reporter.stats.get("failed", []), *reporter.stats.get("error", [])]
    run = {"python": sys.executable, "failures": [failure(report) for report in reports]}
    Path(path).write_text(json.dumps(run))
