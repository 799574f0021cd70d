"""A run that skips, loses tests or crashed is not a green run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fix_run import complaints, minimum_of
from tests.fix_sentinel import Marks

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ["-p", "tests.fix_run", "-p", "tests.fix_leftovers", "-p", "tests.fix_sentinel"]
# What the ini options and `addopts` of the project say, with shorter deadlines.
DEADLINES = ("--timeout", "2", "-o", "faulthandler_timeout=4", "-o", "faulthandler_exit_on_timeout=true")
TWO_WORKERS = ("-n", "2", "--dist", "loadgroup", "--max-worker-restart=0")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/testing.md").write_text("tests at least: 2\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run(scratch: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest over `test` in a scratch project that has our plugins."""
    (scratch / "test_it.py").write_text("import os, pytest\n" + test)
    code = f"import sys, pytest; sys.path.insert(0, {str(ROOT)!r}); sys.exit(pytest.main(sys.argv[1:]))"
    # An installed kafkalite's own pytest plugin is no part of this.
    command = [sys.executable, "-c", code, "-p", "no:kafkalite", *PLUGINS, *options]
    return subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=120)


TWO = "def test_a(): pass\ndef test_b(): pass\n"


def test_a_complete_run_is_green(scratch: Path) -> None:
    done = run(scratch, TWO, "--strict-run")
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "xdist"])
def test_a_skip_is_an_error_when_strict(scratch: Path, options: tuple[str, ...]) -> None:
    skipping = TWO + "@pytest.mark.skip\ndef test_c(): pass\n"
    assert run(scratch, skipping, *options).returncode == 0
    done = run(scratch, skipping, "--strict-run", *options)
    assert done.returncode == 1
    assert "1 skipped: a strict run allows none" in done.stdout


def test_too_few_tests_are_an_error_when_strict(scratch: Path) -> None:
    done = run(scratch, "def test_a(): pass\n", "--strict-run")
    assert done.returncode == 1
    assert "1 passed, docs/testing.md asks for at least 2" in done.stdout


def test_a_crash_is_remembered(scratch: Path) -> None:
    crashed = run(scratch, "def test_a(): os.abort()\n")
    assert crashed.returncode < 0
    after = run(scratch, TWO, "--strict-run")
    assert "an earlier test run crashed" in after.stdout
    assert "test_it.py::test_a" in after.stdout
    assert after.returncode == 1
    assert run(scratch, TWO, "--strict-run").returncode == 0


def test_marks_of_living_processes_stay(tmp_path: Path) -> None:
    living = tmp_path / "1"
    living.write_text("some test")
    marks = Marks(tmp_path)
    marks.begin()
    assert marks.crashed == []
    assert living.exists()
    marks.end()
    assert not marks.own.exists()


def test_the_count_is_kept_in_one_line() -> None:
    assert minimum_of("a\ntests at least: 12\n") == 12
    with pytest.raises(ValueError, match="not one"):
        minimum_of("no number")
    assert complaints({"passed": 12}, 12) == []


@pytest.mark.parametrize("options", [(), ("-q",)])
def test_a_run_on_another_engine_than_the_one_asked_for_is_none(options: tuple[str, ...]) -> None:
    """An engine that the path does not name first would be the usual one, silently."""
    environ = {**os.environ, "KAFKALITE_ENGINE": "debug", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider", "tests/unit/test_model.py"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    assert "engine debug is asked for, but kafkalite comes from" in done.stderr


@pytest.mark.parametrize("engine", ["debug", "asan"])
def test_make_test_puts_another_engine_first(engine: str) -> None:
    done = subprocess.run(
        ["make", "-n", "test", f"ENGINE={engine}"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    (command,) = [line for line in done.stdout.splitlines() if "-m pytest" in line]
    assert f"PYTHONPATH={ROOT / 'build' / engine}:{ROOT} " in command and "PYTHONSAFEPATH=1" in command
    assert ("LD_PRELOAD=" in command) == (engine == "asan")


def test_a_long_run_shows_the_seconds_and_the_seed_of_each_test(scratch: Path) -> None:
    seeded = (
        "def test_a(record_property):\n    print('KAFKALITE_SEED=17')\n    record_property('summary', 'all there')\n"
        "def test_b(): pass\n"
    )
    rigs = ("-v", "-p", "tests.fix_torture")
    said = run(scratch, seeded, *rigs, "--simulations", "171").stdout
    assert re.search(r"^    \d+\.\d s; KAFKALITE_SEED=17; all there$", said, re.MULTILINE), said
    assert re.search(r"^    \d+\.\d s$", said, re.MULTILINE), said
    assert "KAFKALITE_SEED" not in run(scratch, seeded, *rigs).stdout


HANGS = """
import ctypes, subprocess, threading
def test_before(): pass
def test_hangs():
    {hang}
def test_after(): pass
"""
# A mutex that this thread has locked: no signal ends the wait, as in a client library that waits for its own thread.
IN_C = "mutex = ctypes.create_string_buffer(64); lock = ctypes.CDLL(None).pthread_mutex_lock; lock(mutex); lock(mutex)"


def test_test_that_waits_forever_fails_with_all_stacks(scratch: Path) -> None:
    waits = (
        "threading.Thread(target=threading.Event().wait, name='other', daemon=True).start(); threading.Event().wait()"
    )
    done = run(scratch, HANGS.format(hang=waits), *DEADLINES)
    assert done.returncode == 1 and "1 failed, 2 passed" in done.stdout
    assert "Timeout" in done.stdout and "Stack of other" in done.stderr + done.stdout


def test_test_that_no_signal_can_interrupt_ends_the_run(scratch: Path) -> None:
    done = run(scratch, HANGS.format(hang=IN_C), *DEADLINES, *TWO_WORKERS)
    assert done.returncode == 1
    assert "crashed while running 'test_it.py::test_hangs'" in done.stdout
    assert "Timeout (0:00:04)" in done.stderr and "in test_hangs" in done.stderr


def test_lost_worker_ends_the_run_and_leaves_no_process(scratch: Path) -> None:
    done = run(scratch, HANGS.format(hang="subprocess.Popen(['sleep', '1000']); os.kill(os.getpid(), 9)"), *TWO_WORKERS)
    assert done.returncode == 1
    assert "crashed while running 'test_it.py::test_hangs'" in done.stdout
    assert re.search(r"killed process \d+, left behind by a lost worker: sleep 1000", done.stderr)
