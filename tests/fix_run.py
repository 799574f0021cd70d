"""What a run checks about itself: no skip and no missing test when it is strict; and the lines that tests report.

A test reports a line at the end of the run by `record_property("summary", "text")`.
"""

import re
from pathlib import Path

import pytest

MINIMUM = re.compile(r"^tests at least: (\d+)$", re.MULTILINE)
FAILED_ITSELF = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--strict-run", action="store_true", help="a skip is an error, and so are too few tests")


def minimum_of(text: str) -> int:
    """The number kept in docs/testing.md."""
    found = MINIMUM.findall(text)
    if len(found) != 1:
        raise ValueError(f"docs/testing.md has {len(found)} lines `tests at least: N`, not one")
    return int(found[0])


def complaints(counts: dict[str, int], minimum: int) -> list[str]:
    """What a strict run says against `counts` (outcome -> number); empty when all is well."""
    said = []
    if counts.get("skipped"):
        said.append(f"{counts['skipped']} skipped: a strict run allows none")
    if counts.get("passed", 0) < minimum:
        said.append(f"{counts.get('passed', 0)} passed, docs/testing.md asks for at least {minimum}")
    return said


def _reporter(session: pytest.Session) -> "pytest.TerminalReporter | None":
    return session.config.pluginmanager.get_plugin("terminalreporter")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = _reporter(session)
    if not session.config.getoption("strict_run") or reporter is None or hasattr(session.config, "workerinput"):
        return
    counts = {outcome: len(reports) for outcome, reports in reporter.stats.items()}
    said = complaints(counts, minimum_of(Path(session.config.rootpath, "docs/testing.md").read_text()))
    session.config.stash[FAILED_ITSELF] = said
    if said and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: "pytest.TerminalReporter", config: pytest.Config) -> None:
    for report in terminalreporter.stats.get("passed", []):
        for key, value in report.user_properties:
            if key == "summary" and report.when == "call":
                terminalreporter.write_line(str(value))
    for said in config.stash.get(FAILED_ITSELF, []):
        terminalreporter.write_line(f"ERROR: {said}", red=True)
