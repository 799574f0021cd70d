"""A test run fails after a skip, a crash of the interpreter, a test that hangs or a lost worker."""

import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.fix_sentinel import Marks

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ["-p", "tests.fix_run", "-p", "tests.fix_leftovers", "-p", "tests.fix_sentinel"]
# The project's ini options and `addopts`, with shorter deadlines.
DEADLINES = ("--timeout", "2", "-o", "faulthandler_timeout=4", "-o", "faulthandler_exit_on_timeout=true")
TWO_WORKERS = ("-n", "2", "--dist", "loadgroup", "--max-worker-restart=0")
# A run that hangs outside of its tests prints its threads and exits; pytest redirects descriptor 2, hence the copy.
RUN_S = 100
START = """
import faulthandler, os, sys, pytest
faulthandler.dump_traceback_later({seconds}, exit=True, file=os.dup(2))
sys.path.insert(0, {root!r})
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run(scratch: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest over `test` in a scratch project that has our plugins."""
    (scratch / "test_it.py").write_text("import os, pytest\n" + test)
    # Without the pytest plugin of an installed kafkalite.
    start = START.format(seconds=RUN_S, root=str(ROOT))
    command = [sys.executable, "-c", start, "-p", "no:kafkalite", *PLUGINS, *options]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=RUN_S + 20)
    assert f"Timeout ({timedelta(seconds=RUN_S)})" not in done.stderr, done.stderr
    return done


TWO = "def test_a(): pass\ndef test_b(): pass\n"


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "xdist"])
def test_skip_fails_a_strict_run(scratch: Path, options: tuple[str, ...]) -> None:
    skipping = TWO + "@pytest.mark.skip\ndef test_c(): pass\n"
    assert run(scratch, skipping, *options).returncode == 0
    done = run(scratch, skipping, "--strict-run", *options)
    assert done.returncode == 1
    assert "1 skipped: a strict run allows none" in done.stdout


def test_next_run_reports_a_crash_of_the_interpreter(scratch: Path) -> None:
    crashed = run(scratch, "def test_a(): os.abort()\n")
    assert crashed.returncode < 0
    after = run(scratch, TWO, "--strict-run")
    assert "an earlier test run crashed" in after.stdout
    assert "test_it.py::test_a" in after.stdout
    assert after.returncode == 1
    assert run(scratch, TWO, "--strict-run").returncode == 0


def test_marks_of_running_sessions_are_kept(tmp_path: Path) -> None:
    living = tmp_path / "1"
    living.write_text("some test")
    marks = Marks(tmp_path)
    marks.begin()
    assert marks.crashed == []
    assert living.exists()
    marks.end()
    assert not marks.own.exists()


def test_mark_that_another_session_removes_meanwhile_is_not_reported(tmp_path: Path) -> None:
    removed = tmp_path / str(2**31)  # no process has this id
    removed.symlink_to(tmp_path / "target that does not exist")  # listed, but not found when it is read
    marks = Marks(tmp_path)
    marks.begin()
    assert marks.crashed == []
    marks.end()


def test_run_on_another_engine_than_requested_fails() -> None:
    """Otherwise a wrong path would run the tests on the engine `c` without a message."""
    environ = {**os.environ, "KAFKALITE_ENGINE": "debug", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/unit/test_model.py"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    assert "engine debug is asked for, but kafkalite comes from" in done.stderr


@pytest.mark.parametrize("engine", ["debug", "asan"])
def test_make_test_puts_the_engine_first_in_the_path(engine: str) -> None:
    done = subprocess.run(
        ["make", "-n", "test", f"ENGINE={engine}"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    (command,) = [line for line in done.stdout.splitlines() if "-m pytest" in line]
    assert f"PYTHONPATH={ROOT / 'build' / engine}:{ROOT} " in command and "PYTHONSAFEPATH=1" in command
    assert ("LD_PRELOAD=" in command) == (engine == "asan")


HANGS = """
import ctypes, subprocess, threading
def test_before(): pass
def test_hangs():
    {hang}
def test_after(): pass
"""
# A mutex that this thread has locked: no signal ends the wait, as in a client library that waits for its own thread.
IN_C = "mutex = ctypes.create_string_buffer(64); lock = ctypes.CDLL(None).pthread_mutex_lock; lock(mutex); lock(mutex)"


def test_hang_that_no_signal_interrupts_ends_the_run(scratch: Path) -> None:
    done = run(scratch, HANGS.format(hang=IN_C), *DEADLINES, *TWO_WORKERS)
    assert done.returncode == 1
    assert "crashed while running 'test_it.py::test_hangs'" in done.stdout
    assert "Timeout (0:00:04)" in done.stderr and "in test_hangs" in done.stderr


def test_lost_worker_ends_the_run_and_leaves_no_process(scratch: Path) -> None:
    done = run(scratch, HANGS.format(hang="subprocess.Popen(['sleep', '1000']); os.kill(os.getpid(), 9)"), *TWO_WORKERS)
    assert done.returncode == 1
    assert "crashed while running 'test_it.py::test_hangs'" in done.stdout
    assert re.search(r"killed process \d+, left behind by a lost worker: sleep 1000", done.stderr)
