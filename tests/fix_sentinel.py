"""The segfault sentinel: a run that an extension took down can never look like a pass.

Each session keeps a file named after its process, with the test that runs now. A file of a process that is gone was
left by a crash: the next session reports it, and fails when it is strict.
"""

import os
from pathlib import Path

import pytest

from tests.fix_run import UNUSABLE

MARKS = pytest.StashKey["Marks"]()


class Marks:
    """The marks of all sessions under one directory; several may run at once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.own = directory / str(os.getpid())
        self.crashed: list[str] = []

    def begin(self) -> None:
        """Collect and remove what crashed sessions left, then leave a mark of our own."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for mark in sorted(self.directory.iterdir()):
            if not Path("/proc", mark.name).exists():
                self._collect(mark)
        self.own.write_text("")

    def _collect(self, mark: Path) -> None:
        """Report and remove a mark, unless its session has ended or another session has collected it meanwhile."""
        try:
            test = mark.read_text()
            mark.unlink()
        except FileNotFoundError:
            return
        self.crashed.append(f"process {mark.name} died in {test or 'no test'}")

    def running(self, test: str) -> None:
        self.own.write_text(test)

    def end(self) -> None:
        self.own.unlink(missing_ok=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    # A worker that dies is reported by xdist itself, with its test.
    if hasattr(config, "workerinput") or getattr(config, "cache", None) is None:
        return
    marks = config.stash[MARKS] = Marks(Path(config.cache.mkdir("kafkalite-sessions")))
    marks.begin()


def pytest_runtest_logstart(nodeid: str) -> None:
    if CURRENT:
        CURRENT[0].running(nodeid)


CURRENT: list[Marks] = []


def pytest_collection_finish(session: pytest.Session) -> None:
    CURRENT[:] = [session.config.stash[MARKS]] if MARKS in session.config.stash else []


def pytest_sessionfinish(session: pytest.Session) -> None:
    CURRENT.clear()
    if MARKS not in session.config.stash:
        return
    marks = session.config.stash[MARKS]
    marks.end()
    if marks.crashed and session.config.getoption("strict_run"):
        session.exitstatus = UNUSABLE


def pytest_terminal_summary(terminalreporter: "pytest.TerminalReporter", config: pytest.Config) -> None:
    for crash in config.stash[MARKS].crashed if MARKS in config.stash else []:
        terminalreporter.write_line(f"an earlier test run crashed: {crash}", red=True)
