"""Reads from ZooKeeper for a command: a session that lasts as long as the command."""

import asyncio
import logging
import ssl as ssl_module
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from kafkalite_sdk.zk.session import load_access

from kafkalite.cli.failure import fail
from kafkalite.clock import LoopClock, Outcome, SystemRandom, Then, await_outcome
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import ConnectionLossError, CoordinationError
from kafkalite.coordination.served.coordination import SERVERS
from kafkalite.coordination.served.local_socket import dial_directory
from kafkalite.coordination.tree import Stat
from kafkalite.coordination.zookeeper.access import ANONYMOUS, Access
from kafkalite.coordination.zookeeper.access_files import explain
from kafkalite.coordination.zookeeper.coordination import ZooKeeperSession, connect_zookeeper
from kafkalite.net.client.connection import Dial, dial
from kafkalite.net.client.failures import reason_of

SESSION_MS = 10_000
CLOSE_S = 2.0
IN_CONFIG = " in --zookeeper-config"
logging.getLogger("kafkalite.coordination").addHandler(logging.NullHandler())  # the command reports failures itself


class ZooKeeperReader:
    """Reads nodes.

    Arguments:
        session: with the server.
        timeout_s: of each read.
    """

    def __init__(self, session: Coordination, timeout_s: float) -> None:
        self._session = session
        self._timeout_s = timeout_s

    async def get(self, path: str) -> tuple[bytes, Stat]:
        """Data and metadata of a node. Raises CoordinationError, TimeoutError."""
        found: tuple[bytes, Stat] = await self._read(lambda then: self._session.get(path, then))
        return found

    async def children(self, path: str) -> tuple[list[str], Stat]:
        """The names of the children, and the metadata of a node. Raises CoordinationError, TimeoutError."""
        found: tuple[list[str], Stat] = await self._read(lambda then: self._session.children(path, then))
        return found

    async def _read(self, call: Callable[[Then], object]) -> Any:
        async with asyncio.timeout(self._timeout_s):
            return (await await_outcome(call)).result()


@asynccontextmanager
async def open_reader(servers: str, timeout_s: float, config: str | None) -> AsyncIterator[ZooKeeperReader]:
    """Open a session, and close it at the end. Ends the command with the reason if there is none, or a read fails.

    Arguments:
        servers: as in zookeeper.connect.
        timeout_s: how long the servers are tried, and a read takes at most.
        config: see `access_of`.
    """
    access = access_of(config)
    async with opened_session(servers, timeout_s, dial, access) as session:
        try:
            yield ZooKeeperReader(session, timeout_s)
        except TimeoutError:
            fail(f"{servers}: no answer within {timeout_s:g} s; is ZooKeeper there?")
        except CoordinationError as error:
            fail(f"{servers}: {explain(error, access.identity_settings, IN_CONFIG)}")


def access_of(config: str | None) -> Access:
    """Return the security of a session; ends the command with the reason if it cannot be used.

    config: a file with the settings of a broker; None = plain text without an identity.
    """
    try:
        return load_access(config)
    except ValueError as error:
        fail(str(error))


@asynccontextmanager
async def opened_session(
    servers: str, timeout_s: float, connect: Dial, access: Access = ANONYMOUS
) -> AsyncIterator[ZooKeeperSession]:
    """Open a session, and close it at the end. Ends the command with the reason if there is none.

    Arguments:
        servers: as in zookeeper.connect; or the coordination directory of a machine, a path that begins with / or .
        timeout_s: how long the servers are tried.
        connect: connects to one of them.
        access: TLS, identity, and access control lists of created nodes.
    """
    reasons: list[str] = []
    directory = servers if servers.startswith(("/", ".")) else None
    if directory is not None:
        connect, servers = partial(dial_directory, directory), SERVERS

    async def connecting(
        protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int, ssl: ssl_module.SSLContext | None
    ) -> None:
        try:
            await connect(protocol, host, port, ssl)
        except OSError as error:
            reasons[:] = [f"{directory or f'{host}:{port}'}: {reason_of(error)}"]
            raise
        except ConnectionLossError as error:
            reasons[:] = [str(error)]
            raise

    clock = LoopClock(asyncio.get_running_loop())
    established: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def ended(outcome: Outcome) -> None:
        if not established.done():
            established.set_result(outcome)

    try:
        session = connect_zookeeper(
            servers, SESSION_MS, ended, dial=connecting, clock=clock, random=SystemRandom(), access=access
        )
    except ValueError as error:
        fail(f"{error}; write SERVERS as in zookeeper.connect: HOST:PORT,HOST:PORT/CHROOT")
    try:
        try:
            async with asyncio.timeout(timeout_s):
                (await established).result()
        except TimeoutError:
            reason = "".join(f" ({each})" for each in reasons)
            fail(f"{servers}: no answer within {timeout_s:g} s{reason}; is ZooKeeper there?")
        except CoordinationError as error:
            fail(f"{servers}: {explain(error, access.identity_settings, IN_CONFIG)}")
        yield session
    finally:
        if not session.lost:
            await closed(session)
        session.stop()
        clock.close()


async def closed(session: Coordination) -> None:
    """End the session; one that cannot be closed ends with its timeout."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await await_outcome(session.close)
    except TimeoutError:
        return
