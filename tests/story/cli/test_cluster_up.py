"""`cluster up` runs brokers as processes, and stops them all."""

import fcntl
import os
import pty
import re
import signal
import subprocess
import termios
import time
from pathlib import Path
from typing import IO, Self

import pytest
from kafkalite_sdk import TopicPartition
from kafkalite_sdk.admin import NewTopic
from kafkalite_sdk.blocking import Admin, Consumer

from kafkalite.cli.signals import REPEATED_S
from tests.story.cli.conftest import COMMAND, ENVIRON, TIMEOUT_S

READY = "kafkalite cluster ready on "


class Up:
    """The running command: its process, the addresses of its brokers, and their process ids."""

    def __init__(self, directory: Path, *options: str) -> None:
        command = [*COMMAND, "cluster", "up", "--brokers", "2", "--port", "0", "--data", str(directory), *options]
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


def led_by(admin: Admin, broker_id: int) -> list[int]:
    """The partitions of the topic that a broker leads, once all of them are led."""
    deadline = time.monotonic() + TIMEOUT_S
    while leaders(admin) != {1, 2}:
        assert time.monotonic() < deadline, leaders(admin)
    (topic,) = (each for each in admin.topics.list() if each.name == "orders")
    return [each.partition for each in topic.partitions if each.leader == broker_id]


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


def restarted(up: Up, broker_id: int) -> None:
    """Wait for the line that this broker is ready again, on its former port; its process is then one of `up.pids`."""
    address = up.bootstrap.split(",")[broker_id - 1]
    found = re.match(
        rf"kafkalite: broker {broker_id} is ready again on {address}, process (\d+)", up.stderr().readline()
    )
    assert found
    up.pids[broker_id - 1] = int(found[1])


def test_a_killed_broker_is_named_and_started_again_on_request(tmp_path: Path) -> None:
    with Up(tmp_path) as up, Admin(up.bootstrap) as admin:
        admin.topics.create(NewTopic("orders", partitions=4)).check()
        os.kill(up.pids[1], signal.SIGKILL)
        line = up.stderr().readline()
        assert line.startswith(f"kafkalite: broker 2 was killed by SIGKILL ({tmp_path}/broker-2.log); ")
        assert f"`kill -USR1 {up.process.pid}` starts it again; still running: broker 1" in line
        assert [each.broker_id for each in admin.cluster.describe().brokers]
        up.process.send_signal(signal.SIGUSR1)
        restarted(up, 2)
        assert up.end(signal.SIGINT) == (1, "kafkalite: all brokers are stopped\n")


def test_a_killed_broker_is_started_again_by_itself(tmp_path: Path) -> None:
    with Up(tmp_path, "--restart") as up:
        os.kill(up.pids[0], signal.SIGKILL)
        assert "it is started again; still running: broker 2" in up.stderr().readline()
        restarted(up, 1)
        assert up.end(signal.SIGTERM)[0] == 1


def test_a_broker_that_cannot_start_again_names_its_error(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        os.kill(up.pids[1], signal.SIGKILL)
        assert "killed by SIGKILL" in up.stderr().readline()
        (tmp_path / "broker-2" / "meta.properties").write_text("version=0\nbroker.id=7\n")
        up.process.send_signal(signal.SIGUSR1)
        line = up.stderr().readline()
        assert line.startswith("kafkalite: broker 2 has ended with exit code 2: ") and "meta.properties" in line
        assert up.end(signal.SIGTERM)[0] == 1


def test_the_end_of_the_last_broker_ends_the_command(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        os.kill(up.pids[1], signal.SIGKILL)
        assert "still running: broker 1" in up.stderr().readline()
        os.kill(up.pids[0], signal.SIGKILL)
        code, errors = up.ended()
    assert (code, errors.count("\n")) == (2, 1)
    assert errors.startswith("kafkalite: broker 1 was killed by SIGKILL") and "no broker is left" in errors


def test_commands_show_what_the_other_brokers_have(tmp_path: Path) -> None:
    """No listener is blamed for a broker that was killed."""
    with Up(tmp_path) as up, Admin(up.bootstrap) as admin:
        admin.topics.create(NewTopic("orders", partitions=4, replication_factor=1)).check()
        at = up.bootstrap.split(",")[0]

        def run(*args: str, code: int = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
            command = [*COMMAND, *args, "-b", at]
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=ENVIRON, timeout=TIMEOUT_S)
            assert done.returncode == code and "advertised.listeners" not in done.stderr, done.stderr
            return done

        for number in range(4):
            run("produce", "orders", "-p", str(number), stdin=f"{number}\n")
        led = {each.partition for each in admin.topics.describe("orders")["orders"].partitions if each.leader == 1}
        os.kill(up.pids[1], signal.SIGKILL)
        printed = run("consume", "orders", "-e", code=2)
        assert {int(line) for line in printed.stdout.split()} == led
        assert printed.stderr.splitlines()[-1].startswith("kafkalite: not all records are printed; orders-")
        assert up.end(signal.SIGTERM)[0] == 1


def test_what_a_killed_broker_had_is_named_and_is_an_error(tmp_path: Path) -> None:
    with Up(tmp_path) as up, Admin(up.bootstrap) as admin:
        admin.topics.create(NewTopic("orders", partitions=4, replication_factor=1)).check()
        led = led_by(admin, 2)
        with Consumer(up.bootstrap, group="billing") as consumer:
            consumer.commit({TopicPartition("orders", each): 0 for each in range(4)})
        coordinator = admin.groups.describe("billing")["billing"].coordinator
        os.kill(up.pids[coordinator % 2], signal.SIGKILL)  # the other broker
        led = led if coordinator == 1 else sorted({*range(4)} - {*led})
        names = ", ".join(f"orders-{each}" for each in led)
        at = up.bootstrap.split(",")[coordinator - 1]
        commands = (("group", "describe", "billing"), ("topic", "describe", "orders", "--offsets"), ("group", "list"))
        processes = [
            subprocess.Popen([*COMMAND, *each, "-b", at], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for each in commands
        ]
        for process, wanted, rows in zip(
            processes, ("the lag of", "an offset, the size or the transaction of"), (6, 6), strict=False
        ):
            printed, errors = process.communicate(timeout=TIMEOUT_S)
            last = errors.splitlines()[-1]
            assert process.returncode == 2 and last.startswith(f"kafkalite: {wanted} {names} is unknown: "), errors
            assert len(printed.splitlines()) == rows, "the others are shown"
        printed, errors = processes[2].communicate(timeout=TIMEOUT_S)
        assert processes[2].returncode == 2, "groups of the killed broker may be missing"
        assert f"broker {3 - coordinator}" in errors, errors


def test_a_closed_terminal_stops_the_brokers(tmp_path: Path) -> None:
    """The terminal sends SIGHUP, and cannot be written to any more."""
    terminal, standard = pty.openpty()

    def control() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    command = [*COMMAND, "cluster", "up", "--brokers", "2", "--port", "0", "--data", str(tmp_path)]
    process = subprocess.Popen(
        command, stdin=standard, stdout=standard, stderr=standard, env=ENVIRON, start_new_session=True,
        preexec_fn=control,
    )  # fmt: skip
    os.close(standard)
    with os.fdopen(terminal, "rb", buffering=0) as screen:
        printed = b""
        while READY.encode() not in printed:
            printed += screen.read(4096)
    assert process.wait(TIMEOUT_S) == 0
    pids = [int(each) for each in re.findall(rb" (\d+)  /", printed)]
    assert len(pids) == 2 and not any(os.path.exists(f"/proc/{each}") for each in pids)
    assert "clean shutdown" in (tmp_path / "broker-2.log").read_text()


def test_a_command_under_nohup_ignores_a_closed_terminal(tmp_path: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        up = Up(tmp_path)
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with up, Admin(up.bootstrap) as admin:
        for pid in (up.process.pid, *up.pids):
            os.kill(pid, signal.SIGHUP)
        up.process.send_signal(signal.SIGUSR1)  # it is handled after SIGHUP; no broker has ended
        assert {each.broker_id for each in admin.cluster.describe().brokers} == {1, 2}
        assert up.end(signal.SIGTERM) == (0, "kafkalite: all brokers are stopped\n")


def test_a_second_signal_kills_the_brokers(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        os.kill(up.pids[1], signal.SIGSTOP)  # it does not end by itself
        up.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            up.process.wait(2 * REPEATED_S)
        up.process.send_signal(signal.SIGINT)
        _, errors = up.process.communicate(timeout=TIMEOUT_S)
        assert up.process.returncode == 130 and "all brokers were killed" in errors
        assert all(killed(pid) for pid in up.pids)


def killed(pid: int) -> bool:
    """Whether a process has ended, or ends: its parent has not waited for it."""
    deadline = time.monotonic() + TIMEOUT_S
    while os.path.exists(f"/proc/{pid}") and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
    return True


def test_a_failed_start_names_the_reason(tmp_path: Path) -> None:
    command = [*COMMAND, "cluster", "up", "--port", "0", "--data", str(tmp_path), "--set", "num.partitions=many"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRON, timeout=TIMEOUT_S)
    assert done.returncode == 2 and done.stdout == ""
    assert re.match(r"kafkalite: broker 1 has ended with exit code 2: .*num\.partitions", done.stderr), done.stderr
