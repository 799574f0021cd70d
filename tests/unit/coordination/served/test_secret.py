"""The served tree accepts new sessions only from processes that can read the secret of its directory."""

import asyncio
import logging
import stat
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.cli.zk_reader import ServedDirectory
from kafkalite.clock import SystemRandom
from kafkalite.coordination.errors import AuthenticationError, ConnectionLossError
from kafkalite.coordination.served.coordination import HOST
from kafkalite.coordination.served.directory import JOURNAL, SECRET, CoordinationDirectory
from kafkalite.coordination.zookeeper.access import Access
from kafkalite.coordination.zookeeper.coordination import connect_zookeeper
from kafkalite.net.client.connection import dial
from tests.unit.coordination.served.test_failover import Member, completed

OURS, OTHER = b"a" * 16, b"b" * 16


async def refused(member: Member, access: Access) -> str:
    """Open a session over TCP, as any process of the machine can; return the text of its error."""
    address = f"{HOST}:{member.served.directory.port()}"
    with pytest.raises(AuthenticationError) as raised:
        await completed(
            lambda then: connect_zookeeper(
                address, 6000, then, dial=dial, access=access, clock=member.clock, random=SystemRandom()
            )
        )
    return str(raised.value)


def test_new_sessions_need_the_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        member = Member(tmp_path)
        await member.served.open()
        session = await member.connect()
        for secret in (OTHER, b"", bytes(16)):
            assert "requires the secret" in await refused(member, Access(secret=lambda secret=secret: secret))
        lines = [each for each in caplog.records if "has not the secret" in each.getMessage()]
        assert len(lines) == 1 and lines[0].levelno == logging.WARNING, "once a minute"
        key = session.core.key
        assert key.password != member.served.directory.secret()
        await completed(session.close)
        await member.close()

    asyncio.run(main())


def test_a_session_continues_with_its_own_password(tmp_path: Path) -> None:
    """After a change of the process that serves, too; its secret is that of the directory."""

    async def main() -> None:
        first, second = Member(tmp_path), Member(tmp_path)
        await first.served.open()
        secret = first.served.directory.secret()
        await second.served.open()
        session = await second.connect()
        await first.close()
        assert await completed(lambda then: session.exists("/", then))
        assert second.served.serving and second.served.directory.secret() == secret
        assert "requires the secret" in await refused(second, Access(secret=lambda: OTHER))
        await completed(session.close)
        await second.close()

    asyncio.run(main())


def test_files_with_credentials_are_those_of_their_owner(tmp_path: Path) -> None:
    async def main() -> None:
        member = Member(tmp_path / "shared")
        await member.served.open()
        await completed((await member.connect()).close)
        await member.close()

    asyncio.run(main())
    for name in (SECRET, JOURNAL):
        assert stat.S_IMODE((tmp_path / "shared" / name).stat().st_mode) == 0o600
    assert not [each for each in (tmp_path / "shared").iterdir() if each.name.startswith(f"{SECRET}.")]


def test_the_first_of_several_processes_creates_the_secret(tmp_path: Path) -> None:
    directories = [CoordinationDirectory(Disk(), str(tmp_path / "shared")) for _ in range(2)]
    with pytest.raises(ConnectionLossError, match="no process serves the directory yet"):
        directories[0].secret()
    directories[0].prepare(OURS)
    directories[1]._create_secret(OTHER)  # it found no file a moment before
    assert [each.secret() for each in directories] == [OURS, OURS]


@pytest.mark.parametrize("content", ["", "abc", "z" * 32, "a" * 33])
def test_an_invalid_secret_is_named(tmp_path: Path, content: str) -> None:
    directory = CoordinationDirectory(Disk(), str(tmp_path / "shared"))
    directory.prepare(OURS)
    (tmp_path / "shared" / SECRET).write_text(content)
    with pytest.raises(OSError, match="32 hexadecimal digits"):
        directory.secret()


def test_a_command_sends_no_secret_to_a_port_that_no_process_serves(tmp_path: Path) -> None:
    """After the end of the brokers any user of the machine can listen on their port."""

    async def other_user(*_: object) -> None:
        raise AssertionError("connected, and would send the secret")

    directory = CoordinationDirectory(Disk(), str(tmp_path / "shared"))
    directory.prepare(OURS)
    directory.write_port(10_000)
    served = ServedDirectory(directory.path, other_user)
    with pytest.raises(ConnectionLossError, match="no process serves"):
        asyncio.run(served.dial(asyncio.Protocol, HOST, 0, None))
    assert directory.lock(), "the command has released the lock"
    with pytest.raises(AssertionError, match="connected"):
        asyncio.run(served.dial(asyncio.Protocol, HOST, 0, None))
    directory.unlock()
