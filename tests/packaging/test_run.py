"""A test run fails after a skip, a crash of the interpreter, a test that hangs or a lost worker."""

import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.fix_run import UNUSABLE
from tests.fix_sentinel import Marks

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ["-p", "tests.fix_run", "-p", "tests.fix_leftovers", "-p", "tests.fix_sentinel"]
# Only what these runs need of other projects: to load all plugins that are installed takes half of their time.
PLUGINS += ["-p", "xdist", "-p", "xdist.looponfail", "-p", "pytest_timeout"]
NO_OTHERS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
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
    start = START.format(seconds=RUN_S, root=str(ROOT))
    command = [sys.executable, "-c", start, *PLUGINS, *options]
    environ = {**os.environ, **NO_OTHERS}
    done = subprocess.run(command, cwd=scratch, env=environ, capture_output=True, text=True, timeout=RUN_S + 20)
    assert f"Timeout ({timedelta(seconds=RUN_S)})" not in done.stderr, done.stderr
    return done


TWO = "def test_a(): pass\ndef test_b(): pass\n"


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "xdist"])
def test_skip_fails_a_strict_run(scratch: Path, options: tuple[str, ...]) -> None:
    skipping = TWO + "@pytest.mark.skip\ndef test_c(): pass\n"
    assert run(scratch, skipping, *options).returncode == 0
    done = run(scratch, skipping, "--strict-run", *options)
    assert done.returncode == UNUSABLE
    assert "1 skipped: a strict run allows none" in done.stdout


def test_next_run_reports_a_crash_of_the_interpreter(scratch: Path) -> None:
    crashed = run(scratch, "def test_a(): os.abort()\n")
    assert crashed.returncode < 0
    after = run(scratch, TWO, "--strict-run")
    assert "an earlier test run crashed" in after.stdout
    assert "test_it.py::test_a" in after.stdout
    assert after.returncode == UNUSABLE
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


FAILS_BESIDE_OTHERS = """
from pathlib import Path
def test_fails_once():
    print("KAFKALITE_SEED=77")
    mark = Path("ran")
    ran = mark.exists()
    mark.touch()
    assert ran, "the first run"
"""


GROUPED = """import pytest
@pytest.mark.xdist_group("brokers")
@pytest.mark.parametrize("case", ["one"])
def test_fails_once(case):"""


def run_and_repeat(scratch: Path, test: str) -> subprocess.CompletedProcess[str]:
    """Run tests on two workers, then repeat the failed ones."""
    done = run(scratch, test, *TWO_WORKERS, "-p", "tests.fix_failures", "--failures", "failures.json")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    environ = {**os.environ, **NO_OTHERS, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "-p tests.fix_run"}
    command = [sys.executable, "-m", "tests.repeat_failures", "failures.json"]
    return subprocess.run(command, cwd=scratch, env=environ, capture_output=True, text=True, timeout=RUN_S)


def test_test_that_passes_alone_is_reported_as_flaky(scratch: Path) -> None:
    done = run_and_repeat(scratch, FAILS_BESIDE_OTHERS)
    assert done.returncode == 0, done.stdout
    assert "FLAKY test_it.py::test_fails_once, seed 77" in done.stdout
    assert "AssertionError: the first run" in done.stdout and "1 passed" in done.stdout


def test_test_of_a_group_is_repeated_by_its_own_name(scratch: Path) -> None:
    done = run_and_repeat(scratch, FAILS_BESIDE_OTHERS.replace("def test_fails_once():", GROUPED))
    assert done.returncode == 0, done.stdout
    assert "FLAKY test_it.py::test_fails_once[one], seed 77" in done.stdout


def test_test_that_fails_again_fails_the_run(scratch: Path) -> None:
    done = run_and_repeat(scratch, FAILS_BESIDE_OTHERS + "    assert False, 'the second run'\n")
    assert done.returncode == 1
    assert "FAILED TWICE test_it.py::test_fails_once" in done.stdout and "the second run" in done.stdout


CONCLUSIVE = {
    "marked": "@pytest.mark.conclusive\ndef test_fails_once():",
    "checker": "def test_fails_once():\n    from tests.kit.checker import ViolationError",
}


@pytest.mark.parametrize("change", CONCLUSIVE)
def test_conclusive_failure_is_not_repeated(scratch: Path, change: str) -> None:
    test = FAILS_BESIDE_OTHERS.replace("def test_fails_once():", CONCLUSIVE[change])
    if change == "checker":
        test = test.replace('assert ran, "the first run"', "if not ran: raise ViolationError('lost-write')")
    done = run_and_repeat(scratch, test)
    assert done.returncode == 1
    assert "FAILED test_it.py::test_fails_once, seed 77: this failure is conclusive" in done.stdout
    assert ("the first run" if change == "marked" else "ViolationError: lost-write") in done.stdout


def test_lost_worker_is_not_excused(scratch: Path) -> None:
    done = run_and_repeat(scratch, HANGS.format(hang="os.kill(os.getpid(), 9)"))
    assert done.returncode == 1
    assert "test_hangs, seed " in done.stdout and "this failure is conclusive" in done.stdout


def test_more_failures_than_are_repeated_fail_the_run(scratch: Path) -> None:
    failing = "@pytest.mark.parametrize('number', range(11))\ndef test_a(number): assert False\n"
    done = run_and_repeat(scratch, failing)
    assert done.returncode == 1
    assert "11 tests failed: at most 10 are repeated" in done.stdout
