"""Tests the systemd protocols. The test is the notify socket; socket activation runs in a child, where fd 3 is free."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite.server.process.sd_notify import Notifier, ServiceManagerError, inherited_sockets


@pytest.fixture
def manager(tmp_path: Path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(60)
        manager.bind(str(tmp_path / "notify"))
        yield manager


def test_notifications_of_start_reload_and_stop(manager: socket.socket) -> None:
    environ = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}
    notifier = Notifier.from_environment(environ)
    assert environ == {}
    assert notifier.connected
    assert notifier.watchdog_interval_s == 15.0
    notifier.ready("listening on\nlocalhost:9092")
    notifier.watchdog()
    notifier.stopping()
    received = [manager.recv(4096).decode() for _ in range(3)]
    assert received == [
        "READY=1\nSTATUS=listening on localhost:9092",
        "WATCHDOG=1",
        "STOPPING=1",
    ]
    notifier.close()
    notifier.watchdog()
    assert not notifier.connected


def test_notification_over_an_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(60)
        manager.bind("")  # the kernel picks a free abstract name
        notifier = Notifier.from_environment({"NOTIFY_SOCKET": "@" + manager.getsockname()[1:].decode()})
        notifier.ready()
        assert manager.recv(4096) == b"READY=1"
        notifier.close()


def test_no_notification_without_service_manager() -> None:
    notifier = Notifier.from_environment({"WATCHDOG_USEC": "1000000"})
    assert not notifier.connected
    assert notifier.watchdog_interval_s is None
    notifier.ready()


@pytest.mark.parametrize(
    ("usec", "pid", "interval_s"),
    [("2000000", None, 1.0), ("2000000", "1", None), ("0", None, None), (None, None, None)],
)
def test_watchdog_of_another_process_is_ignored(
    manager: socket.socket, usec: str | None, pid: str | None, interval_s: float | None
) -> None:
    variables = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": usec, "WATCHDOG_PID": pid}
    notifier = Notifier.from_environment({key: value for key, value in variables.items() if value is not None})
    assert notifier.watchdog_interval_s == interval_s
    notifier.close()


@pytest.mark.parametrize(
    "environ",
    [{"NOTIFY_SOCKET": "relative"}, {"WATCHDOG_USEC": "-1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_PID": ""}],
)
def test_invalid_service_manager_variables_are_errors(environ: dict[str, str]) -> None:
    (key,) = environ
    with pytest.raises(ServiceManagerError, match=key):
        Notifier.from_environment(environ)


def test_missing_notification_socket_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Notifier(str(tmp_path / "gone"))


def test_lost_service_manager_is_only_logged(manager: socket.socket, caplog: pytest.LogCaptureFixture) -> None:
    notifier = Notifier(manager.getsockname())
    manager.close()
    notifier.watchdog()
    assert "WATCHDOG=1" in caplog.text
    notifier.close()


CHILD = """
import os, sys
os.environ["LISTEN_PID"] = str(os.getpid())
from kafkalite.server.process.sd_notify import ServiceManagerError, inherited_sockets
try:
    for name, taken in inherited_sockets():
        print(name, taken.getsockname()[1], taken.getblocking(), os.get_inheritable(taken.fileno()))
except ServiceManagerError as error:
    print(error)
print(sorted(key for key in os.environ if key.startswith("LISTEN_")))
"""


def activate(inherited: list[socket.socket], **variables: str) -> list[str]:
    """Run CHILD with `inherited` from descriptor 3 on, as systemd does, and answer its lines."""
    sources = [os.dup(inherited_socket.fileno()) for inherited_socket in inherited]
    for source in sources:
        os.set_inheritable(source, True)
    # Duplicated above the target range first, so that no target overwrites a source that is still needed.
    shell = "".join(f"exec {100 + i}<&{fd}; " for i, fd in enumerate(sources))
    shell += "".join(f"exec {3 + i}<&{100 + i}; " for i in range(len(sources)))
    command = ["bash", "-c", shell + 'exec "$0" -c "$1"', sys.executable, CHILD]
    environ = {**os.environ, **variables}
    try:
        done = subprocess.run(command, env=environ, pass_fds=sources, capture_output=True, text=True, timeout=60)
    finally:
        for source in sources:
            os.close(source)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_inherited_listening_sockets_are_used() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        lines = activate([one, two], LISTEN_FDS="2", LISTEN_FDNAMES="plain:admin")
        assert lines == [
            f"plain {one.getsockname()[1]} False False",
            f"admin {two.getsockname()[1]} False False",
            "[]",
        ]
        assert activate([one], LISTEN_FDS="1") == [f" {one.getsockname()[1]} False False", "[]"]


def test_inherited_sockets_must_listen() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
        (line, left) = activate([datagram], LISTEN_FDS="1")
    assert "descriptor 3 of LISTEN_FDS is not a listening stream socket" in line
    assert left == "[]"


def test_names_and_count_of_inherited_sockets_must_agree() -> None:
    environ = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2", "LISTEN_FDNAMES": "one"}
    with pytest.raises(ServiceManagerError, match="names 1 descriptors, LISTEN_FDS is 2"):
        inherited_sockets(environ)
    assert environ == {}


def test_inherited_sockets_of_another_process_are_ignored() -> None:
    assert inherited_sockets({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) == []
    assert inherited_sockets({}) == []
