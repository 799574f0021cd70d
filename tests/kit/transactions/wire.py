"""Requests of a client to a cluster: connections, leaders and coordinators, without a client library.

`Wire` retries nothing: the callers decide. A failed call forgets its connection, and what it was found by.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from kafkalite.errors import KafkaError, KafkaErrorCode, KafkaTimeoutError
from kafkalite.net.client import ClientConnection
from kafkalite.net.client.connection import Dial, dial
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from tests.kit.transactions.history import Partition

GROUP, TRANSACTION = 0, 1  # key types of FindCoordinator
Address = tuple[str, int]
NO_CONNECTION = (OSError, KafkaError)  # of a call that has no response
COORDINATOR_VERSION, METADATA_VERSION = 3, 9
MOVED = frozenset(
    (
        KafkaErrorCode.NOT_COORDINATOR,
        KafkaErrorCode.COORDINATOR_NOT_AVAILABLE,
        KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
)


async def pause(seconds: float) -> None:
    """Let time pass, real or virtual."""
    loop = asyncio.get_running_loop()
    passed = asyncio.Event()
    timer = loop.call_later(seconds, passed.set)
    try:
        await passed.wait()
    finally:
        timer.cancel()


def addresses_of(bootstrap: str) -> list[Address]:
    """The addresses in a list of bootstrap servers."""
    pairs = [each.rsplit(":", 1) for each in bootstrap.split(",")]
    return [(host, int(port)) for host, port in pairs]


class Wire:
    """The connections of one client; `close` ends them.

    Arguments:
        bootstrap: the bootstrap servers.
        dial: connects.
        timeout_s: deadline of a call in seconds.
        via: the address to connect to instead, for proxies.
        keeps_late: a connection stays open when a call is not in time, so that its request may arrive late.
    """

    def __init__(
        self,
        bootstrap: str,
        dial: Dial = dial,
        *,
        timeout_s: float = 5.0,
        via: Mapping[Address, Address] | None = None,
        keeps_late: bool = False,
    ) -> None:
        self._bootstrap = addresses_of(bootstrap)
        self._dial = dial
        self._timeout_s = timeout_s
        self._via = via or {}
        self._keeps_late = keeps_late
        self._late: list[ClientConnection] = []
        self._connections: dict[Address, ClientConnection] = {}
        self._leaders: dict[Partition, Address] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._asked = 0

    def abort(self) -> None:
        """End all connections at once, as the end of a process does."""
        for connection in (*self._connections.values(), *self._late):
            connection.abort()
        self._connections.clear()
        self._late.clear()

    async def close(self) -> None:
        """End all connections."""
        connections, self._connections = [*self._connections.values(), *self._late], {}
        self._late = []
        for connection in connections:
            await connection.close()

    async def call(self, address: Address, request: Any, version: int) -> Any:
        """The response of a broker. Raises NO_CONNECTION; the connection is forgotten then."""
        address = self._via.get(address, address)
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            connection = self._connections[address] = ClientConnection(
                *address, timeout_s=self._timeout_s, connect_timeout_s=self._timeout_s, dial=self._dial
            )
            await self._guarded(address, connection, connection.connect())
        future = connection.call(request, version_max=version, keep_connection=self._keeps_late)
        return await self._guarded(address, connection, future)

    async def _guarded(self, address: Address, connection: ClientConnection, step: Awaitable[Any]) -> Any:
        try:
            return await step
        except NO_CONNECTION as error:
            if self._connections.get(address) is connection:
                del self._connections[address]
            if self._keeps_late and isinstance(error, KafkaTimeoutError):
                self._late.append(connection)
            else:
                connection.abort()
            raise

    async def any_call(self, request: Any, version: int) -> Any:
        """The response of one of the bootstrap servers, in turns. Raises NO_CONNECTION."""
        self._asked += 1
        return await self.call(self._bootstrap[self._asked % len(self._bootstrap)], request, version)

    async def coordinator(self, kind: int, key: str) -> Address:
        """The coordinator of a group or a transactional id. Raises NO_CONNECTION, also where there is none now."""
        if (kind, key) not in self._coordinators:
            found = await self.any_call(FindCoordinatorRequest(key=key, key_type=kind), COORDINATOR_VERSION)
            if found.error_code:
                raise KafkaTimeoutError(f"no coordinator of {key}: error {found.error_code}")
            self._coordinators[kind, key] = found.host, found.port
        return self._coordinators[kind, key]

    async def leader(self, partition: Partition) -> Address:
        """The leader of a partition. Raises NO_CONNECTION, also where there is none now."""
        if partition not in self._leaders:
            await self._find_leaders(partition[0])
        if partition not in self._leaders:
            raise KafkaTimeoutError(f"{partition} has no leader now")
        return self._leaders[partition]

    async def _find_leaders(self, topic: str) -> None:
        names = [MetadataRequest.MetadataRequestTopic(name=topic)]
        found = await self.any_call(MetadataRequest(topics=names, allow_auto_topic_creation=False), METADATA_VERSION)
        brokers = {each.node_id: (each.host, each.port) for each in found.brokers}
        for each in found.topics:
            for part in each.partitions:
                if part.leader_id in brokers:
                    self._leaders[topic, part.partition_index] = brokers[part.leader_id]

    def forget_leaders(self, partitions: Iterable[Partition]) -> None:
        """The next requests find the leaders again."""
        for partition in partitions:
            self._leaders.pop(partition, None)

    async def coordinated(self, kind: int, key: str, request: Any, version: int) -> Any:
        """The response of a coordinator. Raises NO_CONNECTION; the coordinator is then found again."""
        address = await self.coordinator(kind, key)
        try:
            return await self.call(address, request, version)
        except NO_CONNECTION:
            self.forget_coordinator(kind, key)
            raise

    def forget_coordinator(self, kind: int, key: str) -> None:
        """The next request finds the coordinator again."""
        self._coordinators.pop((kind, key), None)


class Retries:
    """Repeats an attempt until it returns a result, or until a deadline.

    Arguments:
        now: returns the time in seconds.
        timeout_s: for all attempts together.
        backoff_s: between two attempts.
    """

    def __init__(self, now: Callable[[], float], timeout_s: float, backoff_s: float) -> None:
        self._now = now
        self._until = now() + timeout_s
        self._backoff_s = backoff_s

    async def wait(self, cause: object) -> None:
        """Wait for the next attempt. Raises KafkaTimeoutError with the cause after the deadline."""
        if self._now() >= self._until:
            raise KafkaTimeoutError(f"not in time: {cause}")
        await pause(self._backoff_s)
