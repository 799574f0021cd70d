"""The end of a run on several workers: processes that a lost worker has left behind are killed and named.

Such a process (a broker, a JVM) keeps the output of the run open, so that the caller of `make test` would wait for it.
The controller of pytest-xdist becomes the parent of orphans (PR_SET_CHILD_SUBREAPER of prctl(2)) and finds them so.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

import pytest

PR_SET_CHILD_SUBREAPER = 36


def is_controller(config: pytest.Config) -> bool:
    """Whether this process distributes the tests to workers."""
    return bool(config.getoption("tx", None)) and not hasattr(config, "workerinput")


def children_of(pid: int) -> dict[int, str]:
    """Command line of each running child process, by process id."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            status = (process / "stat").read_text().rpartition(")")[2].split()
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):  # ended meanwhile
            continue
        if int(status[1]) == pid and status[0] != "Z":
            found[int(process.name)] = command.strip()
    return found


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if is_controller(config):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    if not is_controller(config):
        return
    while left := children_of(os.getpid()):  # an orphan's own children come to us when it is killed
        for pid, command in left.items():
            print(f"killed process {pid}, left behind by a lost worker: {command[:200]}", file=sys.stderr)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
