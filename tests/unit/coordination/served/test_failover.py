"""The coordination directory: its lock, its socket, access of other users, and the take-over by the next process."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import LoopClock, Outcome, SystemRandom, Then, ThreadOffload
from kafkalite.coordination import journal
from kafkalite.coordination.journal import JournalError
from kafkalite.coordination.served import coordination, directory
from kafkalite.coordination.served.coordination import SERVERS, ServedCoordination
from kafkalite.coordination.served.directory import FILES_OF_PORTS, JOURNAL, LOCK
from kafkalite.coordination.served.local_socket import SOCKET
from kafkalite.coordination.tree import Tree, WatchEvent
from kafkalite.coordination.zookeeper.connection import Dial
from kafkalite.coordination.zookeeper.coordination import ZooKeeperSession, connect_zookeeper
from tests.unit.coordination.kit import FaultyDisk

DEADLINE_S = 120.0


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in a loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(DEADLINE_S):
                await test(*args, **named)

        asyncio.run(limited())

    return run


class Member:
    """One broker of the machine, as far as coordination is concerned."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.clock = LoopClock(loop)
        self.jobs = ThreadOffload(loop)
        self.disk = disk or Disk()
        self.served = ServedCoordination(str(path), self.disk, self.clock, SystemRandom(), self.jobs)
        self.states: asyncio.Queue[str] = asyncio.Queue()

    async def connect(self, dial: Dial | None = None) -> ZooKeeperSession:
        """An established session."""
        note = self.states.put_nowait
        session: ZooKeeperSession = await completed(
            lambda then: connect_zookeeper(
                SERVERS, 6000, then, dial=dial or self.served.dial, clock=self.clock, random=SystemRandom(),
                on_lost=lambda: note("lost"), on_suspended=lambda: note("suspended"),
                on_resumed=lambda: note("resumed"),
            )
        )  # fmt: skip
        return session

    async def close(self) -> None:
        await self.served.close()
        self.jobs.close()
        self.clock.close()


async def completed(call: Callable[[Then], object]) -> Any:
    """The result of a call."""
    ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    call(ended.set_result)
    return (await ended).result()


@on_loop
async def test_next_process_serves_and_the_sessions_continue(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    first, second = Member(path), Member(path)
    await first.served.open()
    await second.served.open()
    assert (first.served.serving, second.served.serving) == (True, False)
    session = await second.connect()
    await completed(lambda then: session.create("/mine", b"1", then, ephemeral=True))
    events: asyncio.Queue[WatchEvent] = asyncio.Queue()
    await completed(lambda then: session.get("/mine", then, events.put_nowait))
    session_id = session.session_id
    await first.close()
    assert [await second.states.get() for _ in range(2)] == ["suspended", "resumed"]
    assert second.served.serving
    assert session.session_id == session_id
    assert (await completed(lambda then: session.get("/mine", then)))[1].ephemeral_owner == session_id
    await completed(lambda then: session.set("/mine", b"2", then))
    assert await events.get() == WatchEvent("changed", "/mine")
    await completed(session.close)
    await second.close()


@on_loop
async def test_a_failed_journal_ends_the_serving_and_its_sessions_continue(tmp_path: Path) -> None:
    path, disk = tmp_path / "shared", FaultyDisk()
    first, second = Member(path, disk), Member(path)
    await first.served.open()
    session = await second.connect()
    await completed(lambda then: session.create("/kept", b"", then, ephemeral=True))
    disk.faults.failing = {"sync"}
    session.create("/unsure", b"", lambda outcome: None)
    assert [await second.states.get() for _ in range(2)] == ["suspended", "resumed"]
    assert second.served.serving and not first.served.serving
    assert await completed(lambda then: session.exists("/kept", then)) is not None
    await completed(session.close)
    await first.close()
    await second.close()


@pytest.mark.parametrize("removed", [LOCK, SOCKET])
@on_loop
async def test_a_removed_lock_file_or_socket_ends_the_serving_and_one_process_serves_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, removed: str
) -> None:
    monkeypatch.setattr(coordination, "LOCK_CHECK_S", 0.01)
    path = tmp_path / "shared"
    first, second = Member(path), Member(path)
    await first.served.open()
    session = await second.connect()
    await completed(lambda then: session.create("/kept", b"", then, ephemeral=True))
    (path / removed).unlink()
    assert [await second.states.get() for _ in range(2)] == ["suspended", "resumed"]
    assert "may serve the same journal" in caplog.text
    assert second.served.serving and not first.served.serving
    assert await completed(lambda then: session.exists("/kept", then)) is not None
    await completed(session.close)
    await first.close()
    await second.close()


@on_loop
async def test_a_full_disk_does_not_prevent_a_take_over(tmp_path: Path) -> None:
    path, disk = tmp_path / "shared", FaultyDisk()
    first, second = Member(path), Member(path, disk)
    await first.served.open()
    session = await second.connect()
    await completed(lambda then: session.create("/kept", b"", then))
    disk.faults.write_room = 0
    await first.close()
    assert [await second.states.get() for _ in range(2)] == ["suspended", "resumed"]
    assert await completed(lambda then: session.exists("/kept", then)) is not None
    disk.faults.write_room = None
    await completed(session.close)
    await second.close()


@on_loop
async def test_a_damaged_journal_is_refused_with_its_path(tmp_path: Path) -> None:
    member = Member(tmp_path)
    tmp_path.chmod(0o700)
    (tmp_path / directory.JOURNAL).write_bytes(b"KLTREE\x01\x00")
    with pytest.raises(JournalError, match=f"{tmp_path}/{directory.JOURNAL}: format version 1 is not supported"):
        await member.served.open()
    other = Member(tmp_path)
    (tmp_path / directory.JOURNAL).unlink()
    await other.served.open()
    assert other.served.serving, "the lock is free"
    await other.close()
    await member.close()


@on_loop
async def test_a_directory_of_others_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    member = Member(shared)
    await member.served.open()
    await member.close()
    assert shared.stat().st_mode & 0o777 == 0o700, "it was empty"
    shared.chmod(0o750)
    with pytest.raises(PermissionError, match="its mode is 0750, other users have access"):
        await Member(shared).served.open()
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        await Member(tmp_path / "file").served.open()


@on_loop
async def test_port_that_is_connected_to_itself_is_not_taken_for_a_server(tmp_path: Path) -> None:
    member = Member(tmp_path / "shared")
    await member.served.open()
    attempts: list[int] = []

    async def dial_itself_first(protocol: Any, host: str, port: int, ssl: Any) -> None:
        attempts.append(port)
        if len(attempts) > 1:
            await member.served.dial(protocol, host, port, ssl)
            return
        itself = socket.socket()
        itself.setblocking(False)
        itself.bind(("127.0.0.1", 0))
        with contextlib.suppress(BlockingIOError):
            itself.connect(itself.getsockname())
        await asyncio.get_running_loop().create_connection(protocol, sock=itself)

    session = await member.connect(dial_itself_first)
    assert len(attempts) == 2
    assert await completed(lambda then: session.exists("/none", then)) is None
    await completed(session.close)
    await member.close()


@on_loop
async def test_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shared"
    path.mkdir(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(path).st_uid + 1)
    member = Member(path)
    with pytest.raises(PermissionError, match="belongs to the user with id"):
        await member.served.open()
    await member.close()


@on_loop
async def test_files_of_a_build_with_a_port_are_removed_with_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    first, second = Member(path), Member(path)
    await first.served.open()
    for name in FILES_OF_PORTS:
        (path / name).touch()
    await second.served.open()
    assert all((path / name).exists() for name in FILES_OF_PORTS), "another process has the lock"
    await first.close()
    await second.served.open()
    assert sorted(os.listdir(path)) == [JOURNAL, LOCK, SOCKET]
    await second.close()


@on_loop
async def test_files_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    path.mkdir(0o700)
    (path / "coordination.journal").write_bytes(journal.encode_snapshot(Tree(), journal.SERVED_FORMAT))
    (path / "coordination.journal").chmod(0o644)  # of an earlier version
    for _ in range(2):
        member = Member(path)
        await member.served.open()
        await member.close()
    assert stat.S_IMODE((path / "coordination.journal").stat().st_mode) == 0o600
