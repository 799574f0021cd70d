"""A measurement that fails or is interrupted: one line, and no process stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perf.process import descendants
from tests.kit.brokers import wait_until

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 60.0

# A broker that does not answer, or that a load starts beside those that the harness knows.
COMMAND = """
import subprocess, sys, time
from pathlib import Path
import confluent_kafka
from perf import commands
from perf.brokers.base import Broker, Running, free_port, spawn
from perf.loads.base import Load

class Sleeping(Broker):
    name = title = "sleeping"
    def missing(self): return None
    def version(self): return "1"
    def start(self, directory, settings=None):
        directory.mkdir(parents=True)
        if sys.argv[1] == "starting":
            return spawn(self.name, ["sleep", "600"], free_port(), directory)
        process = subprocess.Popen(["sleep", "600"], start_new_session=True)
        if sys.argv[1] == "unknown":
            time.sleep(600)
        return Running(self.name, process, 1, directory, 0.0)

class Failing(Load):
    name = title = "failing"
    figures = ()
    def prepare(self, trial): ...
    def run(self, trial):
        raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(7, "no answer"))

commands.BROKERS["sleeping"] = Sleeping()
commands.LOADS["failing"] = Failing()
commands.main(["compare", "--brokers", "sleeping", "--loads", "failing", "--quick", "--work", sys.argv[2]])
"""


def command(case: str, work: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, case, str(work)], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )


def child_of(process: subprocess.Popen[str]) -> int:
    """Wait until the command has started its broker; returns the process id."""
    found: list[int] = []

    def started() -> bool:
        found[:] = [pid for pid in descendants(process.pid) if name_of(pid) == "sleep\n"]
        return bool(found) or process.poll() is not None

    wait_until(started, "a broker is started")
    assert found, process.communicate()
    return found[0]


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # it has just ended


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(("case", "number"), [("starting", signal.SIGTERM), ("unknown", signal.SIGINT)])
def test_processes_end_with_a_command_that_is_interrupted(case: str, number: int, tmp_path: Path) -> None:
    """In a start, and where nothing but the command itself knows the process."""
    with command(case, tmp_path) as process:
        pid = child_of(process)
        process.send_signal(number)
        _, text = process.communicate(timeout=LIMIT_S)
    was_left = is_alive(pid)
    if was_left:
        os.kill(pid, signal.SIGKILL)
    assert not was_left
    assert process.returncode == (1 if number == signal.SIGINT else 128 + number), text
    assert "Traceback" not in text
    assert list(tmp_path.iterdir()) == []


def test_exception_of_the_client_is_one_line(tmp_path: Path) -> None:
    with command("answering", tmp_path) as process:
        _, text = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert text.splitlines()[-1].startswith("Error: no figures: ") and "no answer" in text
    assert "Traceback" not in text
    assert list(tmp_path.iterdir()) == []
