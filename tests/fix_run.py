"""Fails a strict run that skips tests, and prints the lines that tests report at the end of the run.

A strict run that skips tests, or that follows a crash, ends with the exit code UNUSABLE, which no repetition changes.

A test reports a line by `record_property("summary", "text")`.
"""

import pytest

SKIPPED = pytest.StashKey[int]()
UNUSABLE = 6  # the first exit code that pytest does not use


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--strict-run", action="store_true", help="a skip is an error")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not session.config.getoption("strict_run") or reporter is None or hasattr(session.config, "workerinput"):
        return
    skipped = session.config.stash[SKIPPED] = len(reporter.stats.get("skipped", []))
    if skipped:
        session.exitstatus = UNUSABLE


def pytest_terminal_summary(terminalreporter: "pytest.TerminalReporter", config: pytest.Config) -> None:
    for report in terminalreporter.stats.get("passed", []):
        for key, value in report.user_properties:
            if key == "summary" and report.when == "call":
                terminalreporter.write_line(str(value))
    if skipped := config.stash.get(SKIPPED, 0):
        terminalreporter.write_line(f"ERROR: {skipped} skipped: a strict run allows none", red=True)
