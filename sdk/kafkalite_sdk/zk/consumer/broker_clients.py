"""The brokers of a consumer: what fetches its records, and what reads and commits offsets in the broker.

1. The addresses of the brokers are those below `/brokers/ids`. A client without `zookeeper_config` follows them
   (`zk.bootstrap`, which has no TLS and identity); else they are read when a client starts, which then knows the
   brokers from their metadata. The client that fetches is started with the first partition: a group without partitions
   needs no broker.
2. While no broker can be reached, the start is repeated; partitions wait meanwhile. Rejected credentials end the
   consumer.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Generic

from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError
from kafkalite.errors import AuthenticationError, ClientUseError, KafkaConnectionError, KafkaError
from kafkalite.model import TopicPartition
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.consumer.driver import Driver, K, V
from kafkalite_sdk.consumer.offsets.positions import PartitionState
from kafkalite_sdk.consumer.parts import Deserializers, new_parts
from kafkalite_sdk.consumer.settings import consumer_settings
from kafkalite_sdk.zk.bootstrap import addresses_of
from kafkalite_sdk.zk.consumer.options import ConnectorSettings
from kafkalite_sdk.zk.consumer.streams import MessageStreams
from kafkalite_sdk.zk.groups import ZooKeeperGroups
from kafkalite_sdk.zk.membership.effects import FetchStart
from kafkalite_sdk.zk.session import within

if TYPE_CHECKING:
    from kafkalite_sdk.admin.admin import Admin

LOGGER = logging.getLogger("kafkalite_sdk.zk.consumer")
RETRY_S = 1.0
CLOSE_S = 5.0


class BrokerClients(Generic[K, V]):
    """The clients of one consumer.

    Arguments:
        settings: of the consumer.
        addresses: returns the addresses of the brokers. Raises KafkaError, CoordinationError.
        deserializers: of keys and values.
        environment: connections and randomness.

    Attributes:
        starts: the assignment: where each partition begins.
        streams: return the records.
    """

    streams: MessageStreams[K, V]

    def __init__(
        self,
        settings: ConnectorSettings,
        addresses: "Callable[[], Any]",
        deserializers: Deserializers[K, V],
        environment: Environment | None = None,
    ) -> None:
        self.starts: Mapping[TopicPartition, FetchStart] = {}
        self._settings = settings
        self._addresses = addresses
        self._deserializers = deserializers
        self._environment = environment
        self._driver: Driver[K, V] | None = None
        self._admin: Admin | None = None
        self._beginning = False
        self._admin_starting = asyncio.Lock()
        self._starting = asyncio.Lock()  # one client of each kind, whatever is assigned while it starts
        self._closed = False

    # The assignment.

    async def fetch(self) -> None:
        """Begin to fetch `starts`, once a broker can be reached. Raises AuthenticationError."""
        starts = self.starts
        async with self._starting:
            while self._driver is None and starts is self.starts:
                try:
                    await self._start_driver()
                except AuthenticationError:
                    raise
                except (KafkaError, CoordinationError) as error:
                    LOGGER.warning("group %s: no broker can be reached: %s", self._settings.membership.group, error)
                    await asyncio.sleep(RETRY_S)
        if self._driver is not None and starts is self.starts:
            self._begin(self._driver)

    async def _start_driver(self) -> None:
        settings = consumer_settings(await self._addresses(), self._settings.fetch)
        parts = new_parts(settings, self._environment, self._deserializers, (), None, check_crcs=True)
        await parts.driver.start(None)
        parts.driver.positions.on_move.append(self._report_reset)
        self._driver = parts.driver

    def _begin(self, driver: Driver[K, V]) -> None:
        positions = driver.positions
        self._beginning = True
        try:
            driver.assign(self.starts.keys())
            for each, start in self.starts.items():
                state = positions.states[each]
                if start.offset is not None:
                    positions.seek(state, start.offset)
                elif positions.policy is not None:
                    positions.begin_reset(state, positions.policy)
        finally:
            self._beginning = False
        self.streams.begin(driver, {each: start.stream for each, start in self.starts.items()})
        driver.work(fetch=True)

    def _report_reset(self, state: PartitionState) -> None:
        """Log that a position was not valid any more: `auto_offset_reset` decides."""
        if state.reset is not None and not self._beginning:
            LOGGER.warning(
                "group %s: the offset of %s is not in its log any more, reading continues at the %s one",
                self._settings.membership.group, state.topic_partition, self._settings.reset,
            )  # fmt: skip

    def release(self) -> None:
        """Fetch nothing any more, and drop what was fetched and not returned."""
        self.starts = {}
        self.streams.release()
        if self._driver is not None:
            self._driver.assign(())

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset behind the last record that was returned, else where reading begins, if that is known."""
        begin = {
            each: offset
            for each in partitions
            if each in self.starts and (offset := self.starts[each].offset) is not None
        }
        return begin | self.streams.positions(partitions)

    # Offsets in the broker.

    async def admin(self) -> "Admin":
        """Return a client for offsets in the broker.

        Raises: KafkaError, CoordinationError: no broker is reachable. ClientUseError: the consumer is closed.
        """
        from kafkalite_sdk.admin.admin import Admin

        async with self._admin_starting:
            if self._admin is None:
                admin = Admin(await self._addresses(), environment=self._environment, **self._settings.client)
                await admin.start()
                self._admin = admin
            admin = self._admin
        if self._closed:
            self._admin = None
            await admin.close()
            raise ClientUseError("the consumer was shut down")
        return admin

    async def close(self) -> None:
        """End all connections."""
        self._closed = True
        driver, self._driver = self._driver, None
        admin, self._admin = self._admin, None
        try:
            if driver is not None:
                await driver.close(CLOSE_S)
        finally:
            if admin is not None:
                await admin.close()


async def read_addresses(session: Coordination | None, protocol: str, timeout_s: float) -> list[str]:
    """Return the addresses of the live brokers, of their first listener with a security protocol.

    Arguments:
        session: with ZooKeeper; None = it is lost, and there is no other one yet.
        protocol: `security_protocol` of the client.
        timeout_s: of each read.

    Raises: KafkaConnectionError without such a broker; CoordinationError.
    """
    if session is None:
        raise KafkaConnectionError("there is no session with ZooKeeper, which has the addresses of the brokers")
    async with within(2 * timeout_s):
        brokers = await ZooKeeperGroups(session, timeout_s).brokers()
    for path, reason in brokers.problems.items():
        LOGGER.warning("a broker is ignored: %s: %s", path, reason)
    found = addresses_of(brokers.registrations.values(), protocol)
    if not found:
        raise KafkaConnectionError(f"no broker below {znodes.BROKER_IDS} has a listener with {protocol}")
    return [f"{host}:{port}" for host, port in found]
