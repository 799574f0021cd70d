"""The served tree is used over a socket in its directory, which other users can neither connect to nor replace."""

import asyncio
import os
import socket
import stat
from pathlib import Path
from typing import cast

import pytest

from kafkalite.coordination.errors import ConnectionLossError
from kafkalite.coordination.served.directory import JOURNAL, LOCK
from kafkalite.coordination.served.local_socket import SOCKET, dial_directory, listen
from tests.unit.coordination.served.test_failover import Member, completed, on_loop


class Peer(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.connected: asyncio.Future[asyncio.Transport] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connected.set_result(cast(asyncio.Transport, transport))

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(None)


async def end(*peers: Peer) -> None:
    for peer in peers:
        (await peer.connected).abort()
        await peer.ended


@on_loop
async def test_tree_is_served_inside_its_closed_directory_alone(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    member = Member(path)
    await member.served.open()
    session = await member.connect()
    assert member.served._listening is not None
    assert [each.family for each in member.served._listening.sockets] == [socket.AF_UNIX], "no port to dial or to take"
    assert stat.S_ISSOCK((path / SOCKET).stat().st_mode) and stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((path / JOURNAL).stat().st_mode) == 0o600
    await completed(session.close)
    await member.close()


@on_loop
async def test_socket_of_an_ended_process_refuses_and_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path)
    with pytest.raises(ConnectionLossError, match=f"{path}: no process serves the directory"):
        await dial_directory(path, asyncio.Protocol)
    (await listen(path, asyncio.Protocol)).close()
    with pytest.raises(ConnectionLossError, match="no process serves"):
        await dial_directory(path, asyncio.Protocol)
    server, client = Peer(), Peer()
    listening = await listen(path, lambda: server)
    await dial_directory(path, lambda: client, "ignored", 1, None)
    await end(server, client)
    listening.close()


@on_loop
async def test_stopped_process_leaves_files_alone(tmp_path: Path) -> None:
    """Any tool can copy the directory then; Python's shutil copies no sockets."""
    member = Member(tmp_path / "shared")
    await member.served.open()
    assert sorted(os.listdir(tmp_path / "shared")) == [JOURNAL, LOCK, SOCKET]
    await member.close()
    assert sorted(os.listdir(tmp_path / "shared")) == [JOURNAL, LOCK]


@on_loop
async def test_stopped_process_does_not_remove_the_socket_of_its_successor(tmp_path: Path) -> None:
    """Its lock file was removed, so it does not exclude the other one."""
    first, second = Member(tmp_path / "shared"), Member(tmp_path / "shared")
    await first.served.open()
    (tmp_path / "shared" / LOCK).unlink()
    await second.served.open()
    await first.close()
    session = await second.connect()
    await completed(session.close)
    await second.close()


@on_loop
async def test_process_that_has_lost_the_directory_receives_no_connection(tmp_path: Path) -> None:
    """The one that replaces its socket does."""
    first, second, client = Peer(), Peer(), Peer()
    servers = [await listen(str(tmp_path), lambda peer=peer: peer) for peer in (first, second)]  # type: ignore[misc]
    await dial_directory(str(tmp_path), lambda: client)
    await end(second, client)
    assert not first.connected.done()
    for server in servers:
        server.close()


@on_loop
async def test_directory_has_a_longer_path_than_an_address_of_a_socket(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 200)
    member = Member(path)
    descriptors = len(os.listdir("/proc/self/fd"))
    await member.served.open()
    session = await member.connect()
    assert await completed(lambda then: session.exists("/none", then)) is None
    await completed(session.close)
    await member.close()
    with pytest.raises(ConnectionLossError):
        await dial_directory(str(path), asyncio.Protocol)
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1, "the thread of the jobs may have one"


@on_loop
async def test_failed_dial_closes_its_descriptors(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    before = len(os.listdir("/proc/self/fd"))
    for path, error in ((tmp_path / "file", NotADirectoryError), (tmp_path / "none", ConnectionLossError)):
        with pytest.raises(error):
            await dial_directory(str(path), asyncio.Protocol)
        with pytest.raises(OSError):
            await listen(str(path), asyncio.Protocol)
    assert len(os.listdir("/proc/self/fd")) == before


@on_loop
async def test_directory_that_others_can_change_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user may have replaced the socket."""
    path = str(tmp_path)
    listening = await listen(path, asyncio.Protocol)
    before = len(os.listdir("/proc/self/fd"))
    for mode in (0o777, 0o750, 0o701):
        tmp_path.chmod(mode)
        with pytest.raises(PermissionError, match=f"its mode is {mode:04o}, .*`chmod 700` it: '{path}'"):
            await dial_directory(path, asyncio.Protocol)
    tmp_path.chmod(0o700)
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(PermissionError, match=f"it belongs to the user with id {owner}: run this as that user"):
        await dial_directory(path, asyncio.Protocol)
    assert len(os.listdir("/proc/self/fd")) == before
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    client = Peer()
    await dial_directory(path, lambda: client)
    await end(client)
    listening.close()
