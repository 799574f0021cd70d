"""The high-level consumer of Kafka 0.8 to 1.1, whose group is in ZooKeeper: `ConsumerConnector`.

    async with ConsumerConnector("zk1:2181/kafka", "billing", auto_offset_reset="smallest") as connector:
        [first, second] = connector.create_message_streams({"orders": 2})["orders"]
        async for record in first:          # `second` in another task
            handle(record)

Source: ConsumerConnector.scala, ZookeeperConsumerConnector.scala of Kafka 1.1.1. docs/legacy.md lists differences.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack

from kafkalite.clock import SystemRandom
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError
from kafkalite.coordination.znodes.consumers import Registration
from kafkalite.errors import ClientUseError, KafkaError, KafkaTimeoutError
from kafkalite.model import TopicPartition
from kafkalite_sdk.client.arguments import readable
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.consumer.parts import Deserializer
from kafkalite_sdk.values import OffsetAndMetadata
from kafkalite_sdk.zk.bootstrap import SCHEME
from kafkalite_sdk.zk.consumer.broker_clients import BrokerClients, read_addresses
from kafkalite_sdk.zk.consumer.listener import ConsumerRebalanceListener
from kafkalite_sdk.zk.consumer.member_driver import MemberDriver
from kafkalite_sdk.zk.consumer.options import KAFKA, ConnectorOptions, connector_settings
from kafkalite_sdk.zk.consumer.streams import MessageStream, MessageStreams
from kafkalite_sdk.zk.membership.errors import OffsetCommitError
from kafkalite_sdk.zk.membership.machine import Membership
from kafkalite_sdk.zk.membership.settings import new_consumer_id
from kafkalite_sdk.zk.membership.subscription import filtered_subscription, static_subscription
from kafkalite_sdk.zk.offsets.storage import Failures, OffsetStorage
from kafkalite_sdk.zk.offsets.zookeeper_offsets import ZooKeeperOffsets
from kafkalite_sdk.zk.session import ClientSessions, SessionCallbacks, load_access

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")

END_EXTRA_S = 10.0
"""The machine ends in time by itself; what it waits for is given this time in addition."""


class ConsumerConnector(Generic[K, V]):
    """A consumer of a group in ZooKeeper, an async context manager.

    Arguments:
        zookeeper_connect: `HOST:PORT,HOST:PORT/CHROOT`, or the directory that the brokers of this machine share.
        group_id: the group.
        key_decoder, value_decoder: a function of the bytes, or a `Deserializer`; None = bytes.
        environment: connections to the brokers and randomness; simulations replace it.
        options: see `help(kafkalite_sdk.zk.ConnectorOptions)`.

    Raises: TypeError, ValueError: an argument is not valid.
    """

    @readable("kafkalite_sdk.zk.ConnectorOptions")
    def __init__(
        self,
        zookeeper_connect: str,
        group_id: str,
        *,
        key_decoder: Callable[[bytes], K] | Deserializer[K] | None = None,
        value_decoder: Callable[[bytes], V] | Deserializer[V] | None = None,
        environment: Environment | None = None,
        **options: Unpack[ConnectorOptions],
    ) -> None:
        self._settings = settings = connector_settings(group_id, options)
        self._environment = Environment() if environment is None else environment
        protocol = options.get("security_protocol", "PLAINTEXT")
        self._sessions = ClientSessions(
            zookeeper_connect,
            SessionCallbacks(self._established, self._lost, self._suspended, self._resumed, self._failed),
            session_timeout_ms=settings.session_timeout_ms,
            access=load_access(settings.zookeeper_config),
        )

        async def addresses() -> str | list[str]:
            if settings.zookeeper_config is None:
                return SCHEME + zookeeper_connect
            return await read_addresses(self._sessions.current, protocol, settings.offsets_timeout_s)

        deserializers = (key_decoder, value_decoder)
        self._clients: BrokerClients[K, V] = BrokerClients(settings, addresses, deserializers, self._environment)
        self._storage = self._new_storage()
        self._listener: ConsumerRebalanceListener | None = None
        self._driver: MemberDriver[K, V] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._session_end: asyncio.Future[None] | None = None
        self.consumer_id = ""

    def _new_storage(self) -> OffsetStorage:
        settings = self._settings
        group, timeout_s = settings.membership.group, settings.offsets_timeout_s
        zookeeper = ZooKeeperOffsets(group, lambda: self._sessions.current, timeout_s)
        if settings.storage != KAFKA:
            return zookeeper
        from kafkalite_sdk.zk.offsets.broker_offsets import BrokerOffsets
        from kafkalite_sdk.zk.offsets.dual_commit import DualOffsets

        broker = BrokerOffsets(group, self._clients.admin, timeout_s)
        return DualOffsets(broker, zookeeper) if settings.dual_commit else broker

    # Start and end.

    async def start(self) -> None:
        """Open the session; `async with` does it.

        Raises: CoordinationError without a session within `zookeeper_connection_timeout_ms`, or without the chroot.
        """
        if self._closing is not None:
            raise ClientUseError("this ConsumerConnector was shut down")
        await self._sessions.open(self._settings.connection_timeout_s)

    async def shutdown(self) -> None:
        """End the streams, commit if commits are automatic, leave the group and close all connections.

        A later call, or one while another one runs, waits for the end of that one.

        Raises: what has prevented the consumer from leaving its group; streams raise errors that came before.
        """
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._shut_down())
        await asyncio.shield(self._closing)

    async def _shut_down(self) -> None:
        driver = self._driver
        try:
            if driver is not None and not driver.ended.done():
                driver.shut_down()
                limit_s = self._settings.membership.rebalance_timeout_s + END_EXTRA_S
                _, waiting = await asyncio.wait([driver.ended], timeout=limit_s)
                if waiting:
                    raise KafkaTimeoutError(f"the consumer has not left its group within {limit_s:g} s")
                driver.ended.result()
        finally:
            async with AsyncExitStack() as ends:  # each one, even if another one fails
                ends.push_async_callback(self._end_session)
                ends.push_async_callback(self._clients.close)
                if driver is not None:
                    self._clients.streams.end(None)
                    ends.push_async_callback(driver.close)

    def _member_ended(self, _ended: asyncio.Future[None]) -> None:
        """The nodes of a consumer that has ended do not outlive it: the application may shut it down much later."""
        self._session_end = asyncio.ensure_future(self._sessions.close())

    async def _end_session(self) -> None:
        if self._session_end is not None:
            await self._session_end
        await self._sessions.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    # Streams.

    def set_consumer_rebalance_listener(self, listener: ConsumerRebalanceListener) -> None:
        """Call a listener at each rebalance. Raises ClientUseError: the streams exist already."""
        if not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError(
                f"listener is {listener!r}, expected an instance of a subclass of ConsumerRebalanceListener"
            )
        if self._driver is not None:
            raise ClientUseError("set the listener before the streams are created")
        self._listener = listener

    def create_message_streams(self, topic_count_map: Mapping[str, int]) -> dict[str, list[MessageStream[K, V]]]:
        """Join the group, and return streams of topics; once per connector.

        Arguments:
            topic_count_map: number of streams by topic.

        Returns: the streams by topic. They have partitions once the group has assigned them, see `wait_until_assigned`.
        Raises: ValueError: a topic or a number is not valid. ClientUseError: the connector has streams, or is not open.
        """
        streams = self._join(static_subscription(topic_count_map), dict(topic_count_map))
        return {topic: each for topic, each in streams.items() if topic is not None}

    def create_message_streams_by_filter(
        self, *, whitelist: str | None = None, blacklist: str | None = None, streams: int = 1
    ) -> list[MessageStream[K, V]]:
        """Join the group, and return streams of all topics that match, also of later ones; once per connector.

        Arguments:
            whitelist: a regular expression (RE2) of the names of topics; "," means "|".
            blacklist: topics that do not match, instead.
            streams: their number.

        Raises: as `create_message_streams`. ValueError: not exactly one expression, or RE2 rejects it.
        """
        if (whitelist is None) is (blacklist is None):
            raise ValueError("give either whitelist or blacklist")
        text = whitelist if whitelist is not None else blacklist
        assert text is not None
        subscription = filtered_subscription(text, streams, whitelist=whitelist is not None)
        return self._join(subscription, {None: streams})[None]

    async def wait_until_assigned(self, timeout: float = 60.0) -> None:
        """Wait until the first rebalance is complete and fetching has begun.

        Arguments:
            timeout: in seconds.

        Raises: KafkaTimeoutError; what has ended the consumer.
        """
        await _within(self._member().assigned, timeout, "the first assignment")

    def _join(
        self, subscription: Registration, counts: Mapping[Any, int]
    ) -> dict[str | None, list[MessageStream[K, V]]]:
        session = self._sessions.current
        if self._driver is not None:
            raise ClientUseError("this ConsumerConnector has streams; they are created once")
        if session is None or self._closing is not None:
            raise ClientUseError("this ConsumerConnector is not open: use `async with`, or await start()")
        self._clients.streams = MessageStreams(counts, self._settings.stream_timeout_s)
        self.consumer_id = self._new_id()
        timeout_ms = getattr(session, "timeout_ms", self._settings.session_timeout_ms)
        settings = self._settings.membership._replace(
            consumer_id=self.consumer_id, subscription=subscription, session_timeout_s=timeout_ms / 1000
        )
        wall_ms, listener = self._environment.now_ms, self._listener
        machine = Membership(settings)
        self._driver = MemberDriver(machine, self._sessions, self._clients, self._storage, listener, wall_ms)
        self._driver.ended.add_done_callback(self._member_ended)
        self._driver.established(session)
        return self._clients.streams.streams

    def _new_id(self) -> str:
        group = self._settings.membership.group
        if self._settings.consumer_id:
            return f"{group}_{self._settings.consumer_id}"
        number = int.from_bytes(SystemRandom().bytes(8))
        return new_consumer_id(group, socket.gethostname(), self._environment.now_ms(), number)

    # Offsets.

    async def commit_offsets(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None, *, timeout: float = 60.0
    ) -> None:
        """Commit offsets and wait until they are committed.

        Arguments:
            offsets: of the next records to read; None = behind the records that the streams have returned, of the
                partitions that are fetched: none during a rebalance, which has committed if commits are automatic.
            timeout: in seconds.

        Raises: OffsetCommitError: names partitions that were not committed after all retries. SessionLostError.
            KafkaTimeoutError.
        """
        driver = self._member()
        if offsets is None:
            await _within(driver.commit(), timeout, "the commit")
            return
        wanted = {
            TopicPartition(*each): to if isinstance(to, OffsetAndMetadata) else OffsetAndMetadata(to)
            for each, to in offsets.items()
        }
        try:
            async with asyncio.timeout(timeout):
                await self._commit(wanted)
        except TimeoutError as error:
            raise KafkaTimeoutError(f"the commit is not complete within {timeout:g} s") from error

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        settings, left = self._settings.membership, dict(offsets)
        failures: Failures = {}
        for attempt in range(settings.commit_retries + 1):
            if attempt:
                await asyncio.sleep(settings.commit_backoff_s)
            failures = await self._attempt(left)
            if not failures:
                return
            left = {each: left[each] for each in failures}
        shown = ", ".join(f"{each}: {error}" for each, error in failures.items())
        raise OffsetCommitError(f"group {settings.group}: not committed: {shown}")

    async def _attempt(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Failures:
        """One attempt of a commit; an error that concerns all partitions is that of each."""
        try:
            return await self._storage.commit(offsets)
        except ClientUseError:
            raise
        except (KafkaError, CoordinationError) as error:
            return dict.fromkeys(offsets, error)

    def _member(self) -> MemberDriver[K, V]:
        if self._driver is None:
            raise ClientUseError("this ConsumerConnector has no streams yet")
        return self._driver

    # Events of the session.

    def _established(self, session: Coordination) -> None:
        self._notify(partial(MemberDriver.established, session=session))

    def _lost(self) -> None:
        self._notify(MemberDriver.lost)

    def _suspended(self) -> None:
        self._notify(MemberDriver.suspended)

    def _resumed(self) -> None:
        self._notify(MemberDriver.resumed)

    def _failed(self, error: CoordinationError) -> None:
        self._notify(partial(MemberDriver.failed, error=error))

    def _notify(self, event: Callable[[MemberDriver[K, V]], object]) -> None:
        if self._driver is not None:
            event(self._driver)


async def _within(future: asyncio.Future[None], timeout_s: float, subject: str) -> None:
    """Wait for a future; it is not cancelled. Raises KafkaTimeoutError."""
    _, waiting = await asyncio.wait([future], timeout=timeout_s)
    if waiting:
        raise KafkaTimeoutError(f"{subject} is not complete within {timeout_s:g} s")
    future.result()
