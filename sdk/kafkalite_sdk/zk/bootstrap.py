"""Addresses of brokers from ZooKeeper, as `bootstrap_servers` of every client: the registrations below `/brokers/ids`.

    Producer("zookeeper://zk1:2181,zk2:2181/kafka?listener=PLAINTEXT")

1. The client keeps one session while it is open, and follows the registrations by watches.
2. While no broker is registered, and while no server can be reached, the addresses stay as they are.
3. After a lost session another one is begun, and everything is read again.
4. A registration that cannot be read is logged with its path; those of other brokers are used.
"""

import asyncio
import builtins
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

from kafkalite.callbacks import gather
from kafkalite.clock import Outcome, Then
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError, NoNodeError
from kafkalite.coordination.znodes.brokers import BrokerRegistration, decode_registration, registration_path
from kafkalite.coordination.znodes.names import is_number
from kafkalite.errors import ClientUseError, KafkaConnectionError
from kafkalite.model import Endpoint, shown_address
from kafkalite_sdk.client.settings import Addresses
from kafkalite_sdk.zk.session import ClientSessions, SessionCallbacks, parse_connect

if TYPE_CHECKING:
    from kafkalite_sdk.client.environment import Environment
    from kafkalite_sdk.client.security import Security

LOGGER = logging.getLogger("kafkalite_sdk.zk.bootstrap")
SCHEME = "zookeeper://"
SESSION_MS = 18_000  # the session has no ephemeral nodes: it ends early only to free the server's memory
RETRY_S = 1.0  # before another session
CLOSE_S = 1.0


class TreeOfBrokers(NamedTuple):
    """`zookeeper://SERVERS/CHROOT?listener=NAME`.

    Attributes:
        servers: "host:port,host:port/chroot", as in zookeeper.connect; or a directory as in
            kafkalite.coordination.directory.
        listener: whose addresses are used; "" = the first one of each broker with the client's security protocol.
    """

    servers: str
    listener: str = ""

    def __str__(self) -> str:
        return f"{SCHEME}{self.servers}" + (f"?listener={self.listener}" if self.listener else "")

    def follow(
        self, security: "Security", environment: "Environment", use: Callable[[Addresses], object]
    ) -> "BrokerAddresses":
        """Return the source of a client; see `kafkalite_sdk.client.settings.AddressService`."""
        protocol = ("SASL_" if security.sasl is not None else "") + ("PLAINTEXT" if security.tls is None else "SSL")
        return BrokerAddresses(self, protocol, environment, use)


def parse_source(text: str) -> TreeOfBrokers:
    """Parse `zookeeper://host:port,host:port/chroot?listener=NAME`; raises ValueError that names the wrong part."""
    shown = shown_address(text)
    servers, mark, query = text.removeprefix(SCHEME).partition("?")
    servers = servers.removesuffix("/")
    try:
        options = parse_qsl(query, strict_parsing=True) if mark else []
        parse_connect(servers)
    except ValueError as error:
        raise ValueError(
            f"bootstrap_servers: {shown}: {error}; expected {SCHEME}HOST:PORT/CHROOT?listener=NAME"
        ) from None
    names = [name for name, _value in options]
    if names not in ([], ["listener"]):
        raise ValueError(f"bootstrap_servers: {shown}: {', '.join(names)} are set, expected at most listener=NAME")
    return TreeOfBrokers(servers, dict(options).get("listener", ""))


def addresses_of(brokers: Iterable[BrokerRegistration], protocol: str, listener: str = "") -> Addresses:
    """Return the addresses of brokers.

    Arguments:
        brokers: registrations.
        protocol: security protocol of the client; the first listener of each broker that has it is used.
        listener: the name of the listener that is used instead; "" = none.
    """

    def is_used(each: Endpoint) -> bool:
        return each.listener == listener if listener else each.security_protocol == protocol

    found = (next(filter(is_used, broker.endpoints), None) for broker in brokers)
    return tuple(dict.fromkeys((each.host, each.port) for each in found if each is not None))


class LoopTime:
    """The clock of an event loop, as a session with ZooKeeper uses it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wall_ms: Callable[[], int]) -> None:
        self._loop = loop
        self.wall_ms = wall_ms

    def monotonic(self) -> float:
        """Return the time of the loop, in seconds."""
        return self._loop.time()

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        """Call `callback(*args)` when the time of the loop reaches `when`."""
        return self._loop.call_at(when, callback, *args)

    def close(self) -> None:
        """The session cancels its timers."""


class ClientRandom:
    """The random numbers of a client, as a session with ZooKeeper uses them; not for secrets."""

    def __init__(self, randrange: Callable[[int], int]) -> None:
        self.below = randrange

    def bytes(self, size: int) -> bytes:
        """Return `size` random bytes."""
        return bytes(self.below(256) for _ in range(size))

    def uuid(self) -> builtins.bytes:
        """Return 16 random bytes."""
        return self.bytes(16)


class BrokerAddresses:
    """Follows the addresses of the brokers below `/brokers/ids` for one client.

    Arguments:
        tree: where they are registered.
        protocol: security protocol of the client's connections.
        environment: connections and randomness.
        use: called with the addresses at first, and whenever they have changed.
    """

    def __init__(
        self, tree: TreeOfBrokers, protocol: str, environment: "Environment", use: Callable[[Addresses], object]
    ) -> None:
        self._tree = tree
        self._protocol = protocol
        self._use = use
        self._loop = asyncio.get_running_loop()
        self._first: asyncio.Future[None] = self._loop.create_future()
        self._sessions = ClientSessions(
            tree.servers,
            SessionCallbacks(established=self._established, lost=self._lost, failed=self._failed),
            session_timeout_ms=SESSION_MS,
            dial=environment.dial,
            random=ClientRandom(environment.random.randrange),
            clock=LoopTime(self._loop, environment.now_ms),
        )
        self._retry: asyncio.TimerHandle | None = None
        self._reading = self._stale = False
        self._addresses: Addresses = ()

    async def open(self, timeout_s: float) -> None:
        """Begin a session, and return when the first addresses were passed on.

        Arguments:
            timeout_s: deadline in seconds.

        Raises KafkaConnectionError: no server answers in time, or no broker is registered. ClientUseError: closed.
        """
        until = self._loop.time() + timeout_s
        try:
            await self._sessions.open(timeout_s)
        except (CoordinationError, OSError) as error:
            self._fail(KafkaConnectionError(f"{self._tree}: {error}"))
        await asyncio.wait((self._first,), timeout=max(0.0, until - self._loop.time()))
        self._fail(KafkaConnectionError(f"{self._tree}: the brokers were not read within {timeout_s:g} s"))
        self._first.result()

    async def close(self) -> None:
        """End the session."""
        self._fail(ClientUseError(f"{self._tree}: the client was closed"))
        if self._retry is not None:
            self._retry.cancel()
        await self._sessions.close(CLOSE_S)

    # The session.

    def _established(self, _session: Coordination) -> None:
        self._reading = False
        self._read()

    def _lost(self) -> None:
        LOGGER.info("%s: the session is lost, another one begins", self._tree)

    def _failed(self, error: CoordinationError) -> None:
        LOGGER.error("%s: %s; the addresses of brokers stay as they are", self._tree, error)

    # Registrations.

    def _changed(self, _event: object) -> None:
        self._read()

    def _read(self) -> None:
        session = self._sessions.current
        if session is None:
            return
        self._stale = self._reading
        if not self._reading:
            self._reading = True
            session.children(znodes.BROKER_IDS, partial(self._ids_read, session), self._changed)

    def _ids_read(self, session: Coordination, outcome: Outcome) -> None:
        if session is not self._sessions.current:
            return
        if isinstance(outcome.error, NoNodeError):
            self._reading = False
            text = (
                f"{self._tree}: {znodes.BROKER_IDS} does not exist, so no cluster has used this path; check the chroot"
            )
            self._fail(KafkaConnectionError(text))
            session.exists(znodes.BROKER_IDS, self._ignore, self._changed)
        elif outcome.error is not None:
            self._read_failed(outcome.error)
        else:
            ids = [int(name) for name in outcome.value[0] if is_number(name)]
            reads = [partial(self._read_registration, session, each) for each in ids]
            gather(reads, partial(self._registrations_read, session, ids))

    def _read_failed(self, error: BaseException) -> None:
        self._reading = False
        if not self._fail(KafkaConnectionError(f"{self._tree}: {error}")):
            LOGGER.warning("%s: %s, next attempt in %.0f s", self._tree, error, RETRY_S)
            self._retry = self._loop.call_later(RETRY_S, self._read)

    def _ignore(self, _outcome: Outcome) -> None:
        """Else the session is lost, which `_lost` handles."""

    def _read_registration(self, session: Coordination, broker_id: int, then: Then) -> None:
        session.get(registration_path(broker_id), then, self._changed)

    def _registrations_read(self, session: Coordination, ids: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        if session is not self._sessions.current:
            return
        self._reading = False
        found = {each: outcome.value[0] for each, outcome in zip(ids, outcomes, strict=True) if outcome.error is None}
        failed = [each.error for each in outcomes if each.error and not isinstance(each.error, NoNodeError)]
        if failed and not found:
            self._read_failed(failed[0])
            return
        self._apply([each for broker_id, data in found.items() if (each := self._decoded(broker_id, data)) is not None])
        if self._stale:
            self._read()

    def _decoded(self, broker_id: int, data: bytes) -> BrokerRegistration | None:
        try:
            return decode_registration(broker_id, data)
        except znodes.ZnodeError as error:
            LOGGER.warning("%s: a registration is ignored: %s", self._tree, error)
            return None

    def _apply(self, brokers: Sequence[BrokerRegistration]) -> None:
        addresses = addresses_of(brokers, self._protocol, self._tree.listener)
        if not addresses:
            error = KafkaConnectionError(f"{self._tree}: {self._none_found(brokers)}")
            if not self._fail(error) and brokers:
                LOGGER.warning("%s", error)
        elif addresses != self._addresses:
            self._addresses = addresses
            self._use(addresses)
        if addresses and not self._first.done():
            self._first.set_result(None)

    def _none_found(self, brokers: Sequence[BrokerRegistration]) -> str:
        if not brokers:
            return f"no broker is registered below {znodes.BROKER_IDS}"
        known = sorted(
            {f"{each.listener} ({each.security_protocol})" for broker in brokers for each in broker.endpoints}
        )
        wanted = f"named {self._tree.listener}" if self._tree.listener else f"with {self._protocol}"
        return f"no registered broker has a listener {wanted}; they have {', '.join(known)}"

    def _fail(self, error: Exception) -> bool:
        """Let `open` raise an error; False = it has ended."""
        if self._first.done():
            return False
        self._first.set_exception(error)
        self._first.exception()  # `open` may have ended: the loop need not report it
        return True
