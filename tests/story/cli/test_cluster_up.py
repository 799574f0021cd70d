"""`cluster up` runs brokers as processes, and stops them all."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import IO, Self

import pytest
from kafkalite_sdk.admin import NewTopic
from kafkalite_sdk.blocking import Admin

from tests.story.cli.conftest import COMMAND, ENVIRON, TIMEOUT_S

READY = "kafkalite cluster ready on "


class Up:
    """The running command: its process, the addresses of its brokers, and their process ids."""

    def __init__(self, directory: Path) -> None:
        command = [*COMMAND, "cluster", "up", "--brokers", "2", "--port", "0", "--data", str(directory)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRON)
        lines = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            lines.append(line)
            if line.startswith(READY):
                break
        else:
            raise AssertionError(f"not ready: {lines} {self.stderr().read()}")
        self.bootstrap = lines[-1].removeprefix(READY).strip()
        self.pids = [int(found[1]) for line in lines if (found := re.match(r" +\d+ +[\d.:]+ +(\d+) ", line))]
        assert len(self.pids) == len(self.bootstrap.split(",")) == 2

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.process.poll() is None:
            self.end(signal.SIGTERM)

    def stderr(self) -> IO[str]:
        assert self.process.stderr is not None
        return self.process.stderr

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Signal the command; returns its exit code and its errors once it has ended, with its brokers."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=TIMEOUT_S)
        for pid in self.pids:
            assert not os.path.exists(f"/proc/{pid}"), "a broker is left"
        return self.process.returncode, errors


def leaders(admin: Admin) -> set[int | None]:
    """The leaders of the topic."""
    return {each.leader for topic in admin.topics.list() if topic.name == "orders" for each in topic.partitions}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_brokers_form_a_cluster_and_keep_their_data(tmp_path: Path, number: signal.Signals) -> None:
    with Up(tmp_path / "cluster") as up, Admin(up.bootstrap) as admin:
        assert {each.broker_id for each in admin.cluster.describe().brokers} == {1, 2}
        admin.topics.create(NewTopic("orders", partitions=4)).check()
        assert up.end(number) == (0, "kafkalite: all brokers are stopped\n")
    with Up(tmp_path / "cluster") as up, Admin(up.bootstrap) as admin:
        deadline = time.monotonic() + TIMEOUT_S
        while leaders(admin) != {1, 2}:  # brokers are ready before the controller has elected all leaders
            assert time.monotonic() < deadline, leaders(admin)
        assert up.end(number)[0] == 0
    assert "clean shutdown" in (tmp_path / "cluster" / "broker-1.log").read_text()


def test_the_end_of_a_broker_ends_all(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        os.kill(up.pids[1], signal.SIGKILL)
        code, errors = up.ended()
    assert code == 2 and errors.startswith("kafkalite: broker 2 has ended with exit code -9: ")
    assert str(tmp_path / "broker-2.log") in errors and errors.count("\n") == 1


def test_a_failed_start_names_the_reason(tmp_path: Path) -> None:
    command = [*COMMAND, "cluster", "up", "--port", "0", "--data", str(tmp_path), "--set", "num.partitions=many"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRON, timeout=TIMEOUT_S)
    assert done.returncode == 2 and done.stdout == ""
    assert re.match(r"kafkalite: broker 1 has ended with exit code 2: .*num\.partitions", done.stderr), done.stderr
