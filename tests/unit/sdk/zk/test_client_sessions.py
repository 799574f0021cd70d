"""The sessions of a client: connect strings, the chroot, losses, files of the security, the served tree."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from kafkalite_sdk.zk.session import (
    ClientSessions,
    Service,
    SessionCallbacks,
    load_access,
    opened_session,
    parse_connect,
    result_of,
)

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import LoopClock, SystemRandom, ThreadOffload
from kafkalite.coordination.errors import ConnectionLossError, NodeExistsError, NoNodeError
from kafkalite.coordination.served.coordination import ServedCoordination
from kafkalite.coordination.zookeeper.access import ANONYMOUS, kafka_acl
from kafkalite.testing.zookeeper_thread import ZooKeeperThread

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperThread]:
    with ZooKeeperThread() as server:
        yield server


@pytest.mark.parametrize(
    ("connect", "service"),
    [
        ("zk1:2181,zk2/kafka", Service("zk1:2181,zk2/kafka", None, "/kafka")),
        ("/var/lib/shared", Service("coordination-directory:1", "/var/lib/shared", "")),
        ("./shared", Service("coordination-directory:1", "./shared", "")),
    ],
)
def test_connect_string_names_servers_or_a_directory(connect: str, service: Service) -> None:
    assert parse_connect(connect) == service


def test_wrong_connect_string_is_rejected() -> None:
    with pytest.raises(ValueError, match="host:port"):
        ClientSessions("zk1:port")


def test_session_is_replaced_after_its_loss(zookeeper: ZooKeeperThread) -> None:
    async def run() -> None:
        events: list[object] = []
        established: asyncio.Queue[int] = asyncio.Queue()
        callbacks = SessionCallbacks(
            established=lambda session: established.put_nowait(session.session_id),
            lost=lambda: events.append(sessions.current),
        )
        sessions = ClientSessions(zookeeper.address, callbacks)
        first = await sessions.open(DEADLINE_S)
        assert await established.get() == first.session_id
        await result_of(partial(first.create, "/ephemeral", b"", ephemeral=True), DEADLINE_S)
        zookeeper.call(lambda server: server.expire(first.session_id))
        second = await asyncio.wait_for(established.get(), DEADLINE_S)
        assert second != first.session_id and events == [None]
        assert sessions.current is not None
        assert await result_of(partial(sessions.current.exists, "/ephemeral"), DEADLINE_S) is None
        await sessions.close()
        assert sessions.current is None

    asyncio.run(run())


def test_client_does_not_create_the_chroot(zookeeper: ZooKeeperThread) -> None:
    async def run() -> None:
        with pytest.raises(NoNodeError, match=r"/absent .*chroot in zookeeper\.connect"):
            await ClientSessions(f"{zookeeper.address}/absent").open(DEADLINE_S)
        async with opened_session(zookeeper.address, DEADLINE_S) as session:
            with pytest.raises(NoNodeError):
                await result_of(partial(session.get, "/absent"), DEADLINE_S)
            await result_of(partial(session.create, "/present", b""), DEADLINE_S)
        async with opened_session(f"{zookeeper.address}/present", DEADLINE_S) as session:
            await result_of(partial(session.create, "/below", b""), DEADLINE_S)
            with pytest.raises(NodeExistsError):
                await result_of(partial(session.create, "/below", b""), DEADLINE_S)

    asyncio.run(run())


def test_no_session_in_time_names_the_last_attempt() -> None:
    with ZooKeeperThread() as server:
        address = server.address

    async def run() -> None:
        with pytest.raises(ConnectionLossError, match=rf"no session within 0.3 s, the last attempt: {address}"):
            await ClientSessions(address).open(0.3)

    asyncio.run(run())


def test_session_with_the_tree_of_a_machine(tmp_path: Path) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        clock, offload = LoopClock(loop), ThreadOffload(loop)
        served = ServedCoordination(str(tmp_path / "shared"), Disk(), clock, SystemRandom(), offload)
        await served.open()
        async with opened_session(str(tmp_path / "shared"), DEADLINE_S) as session:
            await result_of(partial(session.create, "/node", b"data"), DEADLINE_S)
            data, _ = await result_of(partial(session.get, "/node"), DEADLINE_S)
        assert data == b"data"
        await served.close()
        offload.close()
        clock.close()
        with pytest.raises(FileNotFoundError):
            await ClientSessions(str(tmp_path / "absent")).open(DEADLINE_S)

    asyncio.run(run())


def test_access_is_read_from_settings_of_a_broker(tmp_path: Path) -> None:
    digest, config = tmp_path / "digest", tmp_path / "zookeeper.properties"
    digest.write_text("reader:secret")
    digest.chmod(0o600)
    config.write_text(f"kafkalite.zookeeper.digest.file={digest}\nzookeeper.set.acl=true\n")
    assert load_access(None) is ANONYMOUS
    access = load_access(str(config))
    assert access.digest == b"reader:secret" and access.acl is kafka_acl
