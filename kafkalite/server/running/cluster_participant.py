"""Defines `ClusterParticipant`: a broker's part in its cluster, over all its sessions with the coordination service.

With each session it registers the broker, takes part in the election of the controller, and follows changes of configs.
While there is no session, the broker has no connections: its clients find the other brokers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from kafkalite.clock import Clock, Outcome, Then, await_outcome
from kafkalite.cluster.metadata.store import await_completion
from kafkalite.cluster.sessions.broker_sessions import BrokerSessions, Notify
from kafkalite.cluster.sessions.current_session import CurrentSession
from kafkalite.cluster.sessions.registration import address_in
from kafkalite.cluster.topics.node_writes import TopicWriter
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import ConnectionLossError, CoordinationError, SessionExpiredError
from kafkalite.coordination.served.coordination import SERVERS, ServedCoordination
from kafkalite.coordination.znodes.brokers import BrokerRegistration, registration_path
from kafkalite.coordination.zookeeper.access import ANONYMOUS
from kafkalite.coordination.zookeeper.access_files import explain, load_access
from kafkalite.server.configs.dynamic_configs import ConfigFollower, ConfiguredBroker
from kafkalite.server.configs.topic_reader import TopicReader
from kafkalite.server.process.resources import BrokerResources, StartError
from kafkalite.server.process.saved_session import SavedKey, SavedSession
from kafkalite.server.process.unclean_start import find_unclean_since
from kafkalite.server.running.local_controller import LocalController
from kafkalite.server.running.tree_counters import TreeCounters
from kafkalite.storage.dirs.log_directory import Identity

if TYPE_CHECKING:
    from kafkalite.cluster.producer_ids import ProducerIds
    from kafkalite.coordination.zookeeper.coordination import ZooKeeperSession
    from kafkalite.coordination.zookeeper.opening import SessionOpening
    from kafkalite.server.hosting.controller_requests import ControllerRequests
    from kafkalite.server.process.listeners import Listeners

T = TypeVar("T")

LOGGER = logging.getLogger("kafkalite.server")
WAIT_FACTOR = 2  # session timeouts after which another session has ended: of an earlier process, or of the controller


def ignore() -> None:
    """Do nothing at an event of a session that is only closed."""


class JoiningBroker(ConfiguredBroker, Protocol):
    """The broker, as its part in the cluster uses it: `RegisteredBroker`."""

    controller_requests: "ControllerRequests"
    listening: "Listeners"
    producer_ids: "ProducerIds"


class ClusterParticipant:
    """A broker's part in its cluster.

    Arguments:
        resources: clock, ports and logs.
        config: the static configuration.

    Raises StartError: the files that secure the sessions cannot be used.

    Attributes:
        session: the current session with the coordination service.
        controller: the controller, if this broker is elected.
        writer: writes nodes of topics and configs with it.
        topics: reads topics with it.
        counters: the counters of the tree.
        first_zxid: the last change of the tree when the session of the start began.
    """

    def __init__(self, resources: BrokerResources, config: BrokerConfig) -> None:
        self.session = CurrentSession()
        self.writer = TopicWriter(self.session)
        self.clock: Clock = resources.clock
        self.topics = TopicReader(self.session, resources.clock)
        self.controller = LocalController(resources, config)
        self.broker_id = -1
        self.first_zxid = -1
        self.cluster_id = ""
        self._resources = resources
        first = resources.logs.directories()[0]
        lock = resources.logs.lock_file(first) if resources.logs.is_locked(first) else None
        self._saved = SavedSession(resources.disk, first, lock, resources.ports.boot_id())
        reserved = config.reserved_broker_max_id if config.broker_id_generation_enable else None
        self.counters = TreeCounters(str(config.coordination), resources.logs, reserved)
        self._copied_from = 0  # the process whose log directory was copied to this one
        self._static = config
        try:
            self._access = load_access(config.zookeeper_security)
        except ValueError as error:
            raise StartError(str(error)) from error
        self._broker: JoiningBroker | None = None
        self._configs: ConfigFollower | None = None
        self._opening: SessionOpening | None = None  # until its session can be used
        self._opened: ZooKeeperSession | None = None  # the last one
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wait_ms = WAIT_FACTOR * config.zookeeper_session_timeout_ms
        self._served = self._served_coordination()
        if self._served is not None:
            self._access = ANONYMOUS
        self._sessions = BrokerSessions(self, self._connect, resources.clock, wait_ms)

    # The start and the stop.

    async def open(self) -> None:
        """Open the first session, as long as it takes. Raises StartError."""
        timeout_ms = self._static.zookeeper_connection_timeout_ms
        servers = self._static.coordination
        LOGGER.info("connecting to the coordination service at %s", servers)
        try:
            if self._served is not None:
                await self._served.open()
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                earlier = self._saved.load()
                directories = self._resources.logs.online()
                self._set_unclean_since(find_unclean_since(self._resources.disk, directories, earlier))
                if earlier.key is not None:
                    await self._end_earlier_session(earlier.key)
                self._copied_from = earlier.running
                outcome = await await_outcome(self._sessions.open)
        except ValueError as error:
            raise StartError(f"zookeeper.connect: {error}") from error
        except TimeoutError as error:
            raise StartError(
                f"{servers}: no session after {timeout_ms} ms (zookeeper.connection.timeout.ms)"
            ) from error
        if outcome.error is not None:
            raise self.refusal(outcome.error) from outcome.error
        self.session.session = outcome.value
        await await_outcome(partial(self.session.exists, "/"))  # its response has the last change of the tree
        self.first_zxid = outcome.value.last_zxid
        if self._copied_from:
            await self._refuse_copy()

    async def retry(self, part: Callable[[], Awaitable[T]]) -> T:
        """Run a part of the start until it succeeds: wait for the service, and retry in another session if one expires.

        Arguments:
            part: may run several times. Raises ConnectionLossError, SessionExpiredError; other errors end the start.
        """
        while True:
            try:
                await await_completion(partial(self.session.exists, "/"))  # it waits while the service is out of reach
                return await part()
            except ConnectionLossError as error:
                LOGGER.warning("the start waits for the coordination service: %s", error)
            except SessionExpiredError as error:
                LOGGER.warning("the start continues in another session: %s", error)
                await self.open()

    async def _refuse_copy(self) -> None:
        """Refuse a copy of the log directory of a broker that runs. Raises StartError."""
        directory, identity = self._resources.logs.directories()[0], self._resources.logs.identity()
        broker_id = -1 if identity is None else identity.broker_id
        node = await await_outcome(partial(self.session.get, registration_path(broker_id)))
        where = address_in(broker_id, b"" if node.error is not None else node.value[0])
        raise StartError(
            f"{directory} is a copy of the log directory of broker {broker_id}, which is alive, {where} (process "
            f"{self._copied_from}): stop that broker before its copy is started"
        )

    def _served_coordination(self) -> ServedCoordination | None:
        """The coordination service of this machine, None with ZooKeeper."""
        directory = self._static.kafkalite_coordination_directory
        if directory is None:
            return None
        resources = self._resources
        disk, jobs = resources.open_shared_files()
        return resources.ports.served(directory, disk, self.clock, resources.random, jobs)

    async def _end_earlier_session(self, key: SavedKey) -> None:
        """End the session of an earlier process of this broker, which was killed. Raises StartError."""
        while True:
            outcome = await await_outcome(lambda then: self._open(then, ignore, ignore, ignore, key))
            if isinstance(outcome.error, SessionExpiredError):
                break
            if outcome.error is not None:  # the key is kept for the next start
                raise self.refusal(outcome.error) from outcome.error
            if (await await_outcome(outcome.value.close)).error is None:  # else the connection broke
                LOGGER.info("the session 0x%x of an earlier process is closed", key.session_id)
                break
        if self._saved.unclean_since == 0:  # the next start is unclean, too, if this process is killed before it saves
            self._saved.remove()

    def refusal(self, error: BaseException) -> StartError:
        """Return why this broker cannot start, from an error of the coordination service."""
        settings = self._access.identity_settings
        text = explain(error, settings) if isinstance(error, CoordinationError) else str(error)
        return StartError(f"{self._static.coordination}: {text}")

    def identify(self, identity: Identity) -> None:
        """Be this broker of this cluster."""
        self.cluster_id, self.broker_id = identity
        self.counters.broker_id = identity.broker_id

    def attach(self, broker: JoiningBroker) -> None:
        """Use this broker."""
        self._broker = broker
        self.counters.producer_ids = broker.producer_ids

    async def join(self) -> None:
        """Register, and wait for it. Raises StartError."""
        self._sessions.start()
        await self._started

    async def close(self) -> None:
        """Leave the cluster, and end the session."""
        self._sessions.close()
        self._leave()
        if self._opening is not None:
            self._opening.stop()
        self._see_last_change()
        self._resources.clean_mark = self._resources.clean_mark._replace(tree_zxid=self.counters.last_zxid)
        session = self._sessions.session  # None: the key may be that of an earlier process
        if session is not None:
            error = (await await_outcome(session.close)).error
            self._saved.ended = error is None and not self._copied_from
            if error is not None:
                LOGGER.warning("cannot close the session, it ends with its timeout: %s", error)
        if self._served is not None:
            await self._served.close()

    def logs_closed(self) -> None:
        """All logs are closed cleanly: the key of the ended session is not needed any more."""
        if self._saved.ended:
            self._saved.remove()

    @property
    def suspended_ms(self) -> int:
        """How long the coordination service has been out of reach, in ms; -1 = it is connected."""
        return self._sessions.suspended_ms

    # Of `RegisteringBroker`.

    def _connect(self, then: Then, on_lost: Notify, on_suspended: Notify, on_resumed: Notify) -> None:
        def opened(outcome: Outcome) -> None:
            if outcome.error is None:
                self._see_last_change()
                self._opened = outcome.value
                if not self._copied_from:
                    self._saved.save(SavedKey(*outcome.value.key))
            then(outcome)

        self._open(opened, on_lost, on_suspended, on_resumed, None)

    def _open(
        self, then: Then, on_lost: Notify, on_suspended: Notify, on_resumed: Notify, key: SavedKey | None
    ) -> None:
        served = self._served
        servers = SERVERS if served is not None else self._static.zookeeper_connect
        assert servers is not None, "a broker of a cluster has them"

        def opened(outcome: Outcome) -> None:
            self._opening = None
            then(outcome)

        self._opening = self._resources.ports.cluster(
            servers, self._static.zookeeper_session_timeout_ms, opened,
            dial=self._resources.ports.dial if served is None else served.dial, clock=self.clock,
            random=self._resources.random, on_lost=on_lost, on_suspended=on_suspended, on_resumed=on_resumed,
            access=self._access, in_flight_max=self._static.zookeeper_max_in_flight_requests, key=key,
        )  # fmt: skip

    def _see_last_change(self) -> None:
        if self._opened is not None:
            self.counters.seen(self._opened.last_zxid)

    def registration(self) -> BrokerRegistration:
        """The node of this broker."""
        return BrokerRegistration(
            self.broker.listening.registered_endpoints(),
            self.clock.wall_ms(),
            self._static.broker_rack,
            unclean_since=self._saved.unclean_since,
        )

    def raise_counters(self, session: Coordination, then: Then) -> None:
        """Raise the counters of the tree above what this broker knows; `then` is called with the outcome.

        The broker registers next, so its leaderships and fetches of an earlier registration have to end before.
        """
        zxid = -1 if self._opened is None else self._opened.last_zxid
        self.broker.controller_requests.when_resigned(lambda: self.counters.raise_in(session, zxid, then))

    def joined(self, session: Coordination, broker_epoch: int) -> None:
        """Take part in the cluster with a session."""
        self.session.session = session
        self.broker.controller_requests.fence.registered(broker_epoch)
        self._resources.clean_mark = self._resources.clean_mark._replace(broker_epoch=broker_epoch)
        if self._saved.unclean_since == 0:
            self._set_unclean_since(broker_epoch)
            if self._opened is not None and not self._copied_from:
                self._saved.save(SavedKey(*self._opened.key))
        self._configs = ConfigFollower(self.broker, session, self.topics, self.clock)
        self._configs.start()
        self.controller.start(session, self.broker_id, self.broker.controller_requests)
        # Suspended, if a session was lost, also during the start: it leads nothing of before, and knows the ACLs.
        resume = partial(self.broker.controller_requests.when_applied, partial(self._resume, session))
        self._configs.when_rights_known(resume)
        if not self._started.done():
            self._started.set_result(None)

    def _set_unclean_since(self, broker_epoch: int) -> None:
        self._saved.unclean_since = broker_epoch
        self._resources.clean_mark = self._resources.clean_mark._replace(unclean_since=broker_epoch)

    def _resume(self, session: Coordination) -> None:
        is_current = self.session.session is session  # else it is lost again
        if is_current and self.controller.started:  # else the broker stops
            self.broker.listening.resume()

    def left(self) -> None:
        """The session is lost: close all connections, and lead nothing until the next registration is assigned it."""
        self._leave()
        self.session.session = None
        self.broker.listening.suspend("the session with the coordination service is lost")
        self.broker.controller_requests.unregistered()

    def refused(self, reason: str) -> None:
        """Stop: this broker cannot join the cluster."""
        if not self._started.done():
            self._started.set_exception(StartError(reason))
        else:
            LOGGER.critical("%s", reason)
            self._resources.fail(reason)

    def _leave(self) -> None:
        if self._configs is not None:
            self._configs.close()
            self._configs = None
        self.controller.close()

    # The broker.

    @property
    def broker(self) -> JoiningBroker:
        """This broker."""
        assert self._broker is not None, "the broker is attached before it joins"
        return self._broker
