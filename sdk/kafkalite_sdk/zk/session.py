"""The sessions of a client with ZooKeeper, or with the tree that the brokers of one machine serve.

    sessions = ClientSessions("zk1:2181,zk2:2181/kafka", SessionCallbacks(lost=on_lost), session_timeout_ms=6_000)
    session = await sessions.open(timeout_s=6.0)        # has the interface of coordination.backend.Coordination
    data, stat = await result_of(partial(session.get, "/brokers/ids/1"), timeout_s=6.0)
    await sessions.close()

1. There is one session at a time. When it is lost, `lost` is called, and another one is opened, as long as it takes.
2. A client does not create the chroot, unlike a broker: `open` fails if it does not exist.
3. The library that declares ZooKeeper's protocol is imported with the first session, not with this module.
"""

import asyncio
import os
import ssl as ssl_module
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.clock import BrokerClock, LoopClock, Outcome, Random, SystemRandom, Then, await_outcome
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import ConnectionLossError, CoordinationError, NoNodeError, SessionExpiredError
from kafkalite.coordination.served.local_socket import dial_directory
from kafkalite.coordination.zookeeper.access import ANONYMOUS, Access
from kafkalite.coordination.zookeeper.address import parse_address
from kafkalite.model import shown_address
from kafkalite.net.client.connection import Dial, dial
from kafkalite.net.client.failures import reason_of

if TYPE_CHECKING:
    from kafkalite.coordination.zookeeper.coordination import ZooKeeperSession

SESSION_TIMEOUT_MS = 6_000
"""zookeeper.session.timeout.ms of the consumer of Kafka 0.8 to 1.1."""

CLOSE_S = 2.0
SERVED = "coordination-directory:1"


class Service(NamedTuple):
    """Where the tree is.

    Attributes:
        servers: as `connect_zookeeper` takes them.
        directory: of the tree that brokers of this machine serve (kafkalite.coordination.directory); None = ZooKeeper.
        chroot: the path that must exist, "" = none.
    """

    servers: str
    directory: str | None
    chroot: str


def parse_connect(connect: str) -> Service:
    """Return where a connect string leads.

    Arguments:
        connect: `HOST:PORT,HOST:PORT/CHROOT` as in zookeeper.connect; or the path of the directory that brokers of this
            machine share (kafkalite.coordination.directory), which begins with "/" or ".".

    Raises ValueError: it is neither.
    """
    if connect.startswith(("/", ".")):
        return Service(SERVED, connect, "")
    return Service(connect, None, parse_address(connect).chroot)


def load_access(path: str | None) -> Access:
    """Return the security of sessions from a file with the settings of a broker (zookeeper.ssl.*, ...).

    Arguments:
        path: of the file; None = plain text without an identity.

    Raises ValueError: the file, or one that it names, cannot be used.
    """
    if path is None:
        return ANONYMOUS
    from kafkalite.config.files import load
    from kafkalite.coordination.zookeeper.access_files import load_access as access_of

    return access_of(load(path).broker_config().zookeeper_security)


async def result_of(call: Callable[[Then], object], timeout_s: float) -> Any:
    """Make a call of a session, and return its value.

    Arguments:
        call: takes the callback only: `partial(session.get, path)`.
        timeout_s: longest wait, in seconds.

    Raises:
        CoordinationError: the call failed; ConnectionLossError also if there is no answer in time, after which a change
        may still be made.
    """
    async with within(timeout_s):
        return (await await_outcome(call)).result()


@asynccontextmanager
async def within(timeout_s: float) -> AsyncIterator[None]:
    """A block that fails with ConnectionLossError after a time, in seconds."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        raise ConnectionLossError(detail=f"no answer within {timeout_s:g} s") from error


def ignore(*_: object) -> None:
    """Do nothing at an event."""


class SessionCallbacks(NamedTuple):
    """What is called with the events of sessions.

    Attributes:
        established: called with each session, the first included, when it can be used.
        lost: called when a session is lost; another one follows.
        suspended, resumed: the session has no connection; it has one again.
        failed: called with the error after which no other session follows: the credentials, TLS, or the chroot.
    """

    established: Callable[[Coordination], object] = ignore
    lost: Callable[[], object] = ignore
    suspended: Callable[[], object] = ignore
    resumed: Callable[[], object] = ignore
    failed: Callable[[CoordinationError], object] = ignore


NO_CALLBACKS = SessionCallbacks()


class ClientSessions:
    """The sessions of one client, one at a time.

    Arguments:
        connect: see `parse_connect`.
        callbacks: of the events.
        session_timeout_ms: the timeout to ask for; the server chooses one within its limits.
        access: TLS, identity, and access control lists of the nodes that the client creates.
        dial, random: connect, and choose the first server; others in simulations.
        clock: of the running loop; None = the system's.

    Raises ValueError: `connect` is not valid.

    Attributes:
        current: the session; None before the first one, and after a loss until there is another one.
    """

    def __init__(
        self,
        connect: str,
        callbacks: SessionCallbacks = NO_CALLBACKS,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        access: Access = ANONYMOUS,
        dial: Dial = dial,
        random: Random | None = None,
        clock: BrokerClock | None = None,
    ) -> None:
        self.current: Coordination | None = None
        self._callbacks = callbacks
        self._connect = connect
        self._service = parse_connect(connect)
        self._timeout_ms = session_timeout_ms
        self._access = access
        self._connecting = _Dialing(self._service, dial)
        self._random = SystemRandom() if random is None else random
        self._opened: asyncio.Future[Outcome] | None = None  # the first session
        self._session: ZooKeeperSession | None = None
        self._clock = clock

    async def open(self, timeout_s: float) -> Coordination:
        """Open the first session.

        Arguments:
            timeout_s: how long the servers are tried.

        Raises:
            CoordinationError: ConnectionLossError without an answer in time, NoNodeError without the chroot,
            AuthenticationError, TlsError. OSError: the directory cannot be used.
        """
        if self._service.directory is not None:
            os.listdir(self._service.directory)  # its error is better than that of each attempt
        loop = asyncio.get_running_loop()
        self._clock = self._clock or LoopClock(loop)
        self._opened = loop.create_future()
        try:
            self._begin()
            async with asyncio.timeout(timeout_s):
                session: Coordination = (await self._opened).result()
        except TimeoutError as error:
            await self.close(0.0)
            raise ConnectionLossError(detail=self._unreachable(timeout_s)) from error
        except CoordinationError:
            await self.close()
            raise
        except BaseException:
            await self.close(0.0)
            raise
        return session

    def _unreachable(self, timeout_s: float) -> str:
        reason = self._connecting.reason
        last = f", the last attempt: {reason}" if reason else ""
        return f"{shown_address(self._connect)}: no session within {timeout_s:g} s{last}"

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """End the session: its ephemeral nodes are deleted. A later call does nothing.

        Arguments:
            timeout_s: longest wait for the server; a session that cannot be closed ends with its timeout.
        """
        session, self._session = self._session, None
        self.current = None
        if self._opened is not None and not self._opened.done():  # `open` waits in another task
            self._opened.set_result(Outcome(error=SessionExpiredError(detail="the client was closed")))
        if session is None:
            return
        try:
            if not (session.lost or session.suspended) and timeout_s > 0:
                async with asyncio.timeout(timeout_s):
                    await await_outcome(session.close)
        except TimeoutError:
            return  # the session ends with its timeout
        finally:
            session.stop()
            if self._clock is not None:
                self._clock.close()

    # One session.

    def _begin(self) -> None:
        from kafkalite.coordination.zookeeper.coordination import connect_zookeeper

        assert self._clock is not None
        self._session = connect_zookeeper(
            self._service.servers, self._timeout_ms, self._established,
            dial=self._connecting, clock=self._clock, random=self._random, access=self._access,
            on_lost=self._lost, on_suspended=self._suspended, on_resumed=self._resumed,
        )  # fmt: skip

    def _established(self, outcome: Outcome) -> None:
        if self._session is None:
            return
        if outcome.error is not None:
            self._fail(outcome.error)
        elif self._service.chroot:
            self._session.exists("/", self._chroot_read)
        else:
            self._use()

    def _chroot_read(self, outcome: Outcome) -> None:
        if self._session is None or isinstance(outcome.error, SessionExpiredError):
            return  # `_lost` opens another one
        if outcome.error is not None:
            self._fail(outcome.error)
        elif outcome.value is None:
            chroot = self._service.chroot
            self._fail(NoNodeError(chroot, detail="the chroot in zookeeper.connect; the first broker creates it"))
        else:
            self._use()

    def _use(self) -> None:
        session = self.current = self._session
        assert session is not None
        self._callbacks.established(session)
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(Outcome(session))

    def _fail(self, error: BaseException) -> None:
        assert self._opened is not None and isinstance(error, CoordinationError)
        if not self._opened.done():
            self._opened.set_result(Outcome(error=error))
        else:
            self._callbacks.failed(error)

    def _lost(self) -> None:
        if self._session is None:
            return
        was_used, self.current = self.current is not None, None
        if was_used:
            self._callbacks.lost()
        if self._session is not None:  # the callback may have closed it
            self._begin()

    def _suspended(self) -> None:
        if self.current is not None:
            self._callbacks.suspended()

    def _resumed(self) -> None:
        if self.current is not None:
            self._callbacks.resumed()


class _Dialing:
    """Connects to a server, or to the broker that serves the tree now; remembers why the last attempt failed."""

    def __init__(self, service: Service, connect: Dial) -> None:
        self.reason = ""
        self._connect = connect
        self._directory = service.directory

    async def __call__(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int, ssl: ssl_module.SSLContext | None
    ) -> None:
        try:
            if self._directory is not None:
                await dial_directory(self._directory, protocol)
            else:
                await self._connect(protocol, host, port, ssl)
        except OSError as error:
            self.reason = f"{self._directory or f'{host}:{port}'}: {reason_of(error)}"
            raise
        except ConnectionLossError as error:
            self.reason = str(error)
            raise


@asynccontextmanager
async def opened_session(
    connect: str, timeout_s: float, *, access: Access = ANONYMOUS, session_timeout_ms: int = SESSION_TIMEOUT_MS
) -> AsyncIterator[Coordination]:
    """Open one session, and close it at the end of the block; for a command.

    Arguments:
        connect, access, session_timeout_ms: as of `ClientSessions`.
        timeout_s: how long the servers are tried, in seconds.

    Raises: as `ClientSessions.open`, and ValueError for a connect string that is not valid.
    """
    sessions = ClientSessions(connect, access=access, session_timeout_ms=session_timeout_ms)
    session = await sessions.open(timeout_s)
    try:
        yield session
    finally:
        await sessions.close()
