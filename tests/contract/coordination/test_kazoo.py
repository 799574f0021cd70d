"""Clients other than ours use the served tree: kazoo, with its recipes, while serving processes are killed."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    InvalidACLError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import make_digest_acl

from kafkalite.coordination.served.local_socket import SOCKET
from tests.kit.coordination_process import start_process, wait_serving

DEADLINE_S = 30.0


class DirectoryHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Connects kazoo to the socket in a directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def create_connection(self, *args: object, **options: object) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        descriptor = os.open(self._directory, os.O_PATH)
        try:
            connection.connect(f"/proc/self/fd/{descriptor}/{SOCKET}")
        except BaseException:
            connection.close()
            raise
        finally:
            os.close(descriptor)
        return connection


class Serving:
    """Processes that can serve a directory; `kill` ends the one that does, while another one is ready."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._current = start_process(self.path)
        wait_serving(self._current)
        self._next: subprocess.Popen[str] | None = None

    def kill(self) -> None:
        """Kill the process that serves, and return when the next one does."""
        after = start_process(self.path)
        self._current.kill()
        self._current.wait()
        wait_serving(after)
        self._current.stdout.close()  # type: ignore[union-attr]
        self._current = after

    def close(self) -> None:
        self._current.kill()
        self._current.communicate()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    serving = Serving(tmp_path / "shared")
    yield serving
    serving.close()


@pytest.fixture
def connect(serving: Serving) -> Iterator[Callable[[], KazooClient]]:
    clients = []

    def connect() -> KazooClient:
        clients.append(KazooClient(timeout=6.0, handler=DirectoryHandler(serving.path)))
        clients[-1].start(DEADLINE_S)
        return clients[-1]

    yield connect
    for client in clients:
        client.stop()
        client.close()


def test_nodes_versions_and_errors(connect: Callable[[], KazooClient]) -> None:
    client = connect()
    assert client.create("/a", b"1") == "/a"
    path, stat = client.create("/a/n-", b"x", sequence=True, ephemeral=True, include_data=True)
    assert path == "/a/n-0000000000" and stat.ephemeralOwner == client.client_id[0]
    data, stat = client.get("/a")
    assert (data, stat.version, stat.numChildren) == (b"1", 0, 1)
    assert client.set("/a", b"2", version=0).version == 1
    assert client.get_children("/a") == ["n-0000000000"]
    assert client.get_children("/a", include_data=True)[1].version == 1
    assert client.exists("/none") is None
    assert client.sync("/a") == "/a"
    for error, call in (
        (BadVersionError, lambda: client.set("/a", b"", version=0)),
        (NodeExistsError, lambda: client.create("/a")),
        (NoNodeError, lambda: client.get("/none")),
        (NotEmptyError, lambda: client.delete("/a")),
        (InvalidACLError, lambda: client.create("/b", acl=[make_digest_acl("a", "b", all=True)])),
    ):
        with pytest.raises(error):
            call()
    client.ensure_path("/deep/er/est")
    client.delete("/deep", recursive=True)
    assert client.exists("/deep") is None


def test_transactions(connect: Callable[[], KazooClient]) -> None:
    client = connect()
    client.create("/epoch", b"1")
    good = client.transaction()
    good.check("/epoch", 0)
    good.create("/controller", b"me", ephemeral=True)
    good.set_data("/epoch", b"2", 0)
    checked, created, changed = good.commit()
    assert checked is True and created == "/controller" and changed.version == 1
    bad = client.transaction()
    bad.create("/new")
    bad.check("/epoch", 0)
    bad.delete("/controller")
    assert [type(each) for each in bad.commit()] == [RolledBackError, BadVersionError, RuntimeInconsistency]
    assert client.exists("/new") is None


def test_watches_and_recipes_of_two_clients(connect: Callable[[], KazooClient]) -> None:
    first, second = connect(), connect()
    events: queue.Queue[tuple[str, str]] = queue.Queue()
    first.create("/a")
    first.get("/a", watch=lambda event: events.put((event.type, event.path)))
    first.get_children("/a", watch=lambda event: events.put((event.type, event.path)))
    first.exists("/b", watch=lambda event: events.put((event.type, event.path)))
    second.set("/a", b"1")
    assert events.get(timeout=DEADLINE_S) == ("CHANGED", "/a")
    second.create("/a/x")
    assert events.get(timeout=DEADLINE_S) == ("CHILD", "/a")
    second.create("/b", ephemeral=True)
    assert events.get(timeout=DEADLINE_S) == ("CREATED", "/b")
    lock = first.Lock("/lock", "first")
    with lock:
        assert not second.Lock("/lock", "second").acquire(blocking=False)
    assert second.Lock("/lock", "second").acquire(timeout=DEADLINE_S)
    counter = first.Counter("/counter")
    for client in (first, second) * 3:
        shared = client.Counter("/counter")
        shared += 1
    assert counter.value == 6


def test_session_continues_when_the_serving_process_is_killed(
    serving: Serving, connect: Callable[[], KazooClient]
) -> None:
    client, states = connect(), queue.Queue[str]()
    client.add_listener(states.put)
    client.create("/mine", b"1", ephemeral=True)
    session = client.client_id
    for number in range(3):
        serving.kill()
        assert states.get(timeout=DEADLINE_S) == KazooState.SUSPENDED
        assert states.get(timeout=DEADLINE_S) == KazooState.CONNECTED
        assert client.client_id == session
        assert client.get("/mine")[1].ephemeralOwner == session[0]
        client.set("/mine", b"%d" % number, version=number)
    assert states.empty(), "the session was never lost"
