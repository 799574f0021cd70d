"""Sends the requests of an operation to the brokers that serve its resources, and repeats them where that is safe.

Invariants:
1. Each resource has one outcome, by the deadline: a result or an error.
2. A request that a broker has rejected without effect (it is not the leader, coordinator or controller) is repeated.
3. A request whose response was lost is repeated only if it is `repeatable`; a change that is not fails with
   OutcomeUnknownError. A request that was not sent, as no connection could be opened, is repeated.
4. A resource that fails delays no other one beyond the deadline, and only failed ones are repeated.
Source: AdminApiDriver.java of Apache Kafka 4.3.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

from kafkalite.backoff import Backoff
from kafkalite.errors import (
    BrokerResponseError,
    KafkaConnectionError,
    KafkaError,
    KafkaErrorCode,
    KafkaTimeoutError,
    OutcomeUnknownError,
    UnsupportedVersionError,
    error_for,
)
from kafkalite.net.client.connection import completing
from kafkalite.protocol.schema import Request
from kafkalite_sdk.admin.addresses import ANY_NODE, coordinators, describe, leaders
from kafkalite_sdk.admin.operation import Address, Operation
from kafkalite_sdk.admin.outcomes import Outcomes
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.routes import Route

LOGGER = logging.getLogger("kafkalite_sdk.retries")  # DEBUG: each error after which a request is repeated

K = TypeVar("K")
V = TypeVar("V")

CREATION_S = 2.0
"""How long a leader is looked for in a topic that does not exist: a new one may not have reached every broker."""

COORDINATOR_MOVED = {KafkaErrorCode.NOT_COORDINATOR, KafkaErrorCode.COORDINATOR_NOT_AVAILABLE}
MISSING = {KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, KafkaErrorCode.UNKNOWN_TOPIC_ID}
REJECTED = COORDINATOR_MOVED | {
    KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaErrorCode.NOT_CONTROLLER,
    KafkaErrorCode.NOT_LEADER_OR_FOLLOWER,
    KafkaErrorCode.LEADER_NOT_AVAILABLE,
    KafkaErrorCode.REPLICA_NOT_AVAILABLE,
    KafkaErrorCode.FENCED_LEADER_EPOCH,
    KafkaErrorCode.UNKNOWN_LEADER_EPOCH,
    KafkaErrorCode.OFFSET_NOT_AVAILABLE,
    KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED,
    KafkaErrorCode.CONCURRENT_TRANSACTIONS,
}
"""Errors of requests without an effect."""

PASSING = {KafkaErrorCode.REQUEST_TIMED_OUT, KafkaErrorCode.NETWORK_EXCEPTION, KafkaErrorCode.UNSTABLE_OFFSET_COMMIT}
"""Errors after which a repeatable request is sent again."""

TIMEOUTS = (KafkaErrorCode.REQUEST_TIMED_OUT, KafkaErrorCode.NETWORK_EXCEPTION)


class Driver:
    """Runs operations.

    Arguments:
        client: of the cluster.

    Attributes:
        client: the argument.
        topic_ids: of topics whose leaders were looked up.
    """

    def __init__(self, client: ClusterClient) -> None:
        settings, random = client.settings, client.environment.random.random
        self.client = client
        self.topic_ids: dict[str, bytes] = {}
        self.backoff = Backoff(settings.retry_backoff_s, settings.retry_backoff_max_s, random)

    @property
    def request_timeout_ms(self) -> int:
        """How long a broker may wait before it answers, in ms."""
        return int(self.client.settings.request_timeout_s * 1000)

    async def run(
        self, operation: Operation[K, V], keys: Collection[K], timeout_s: float | None = None
    ) -> Outcomes[K, V]:
        """Run an operation on resources.

        Arguments:
            operation: what to ask.
            keys: the resources.
            timeout_s: deadline in seconds, repetitions included; None = `default_api_timeout_s`.

        Raises:
            ClientUseError: the client is not started, closed, or used in another loop.
        """
        self.client.check_owner()
        seconds = self.client.settings.default_api_timeout_s if timeout_s is None else timeout_s
        return Outcomes(await _Run(self, operation, keys, seconds).finish())

    async def in_thread(self, function: Callable[[], V]) -> V:
        """Return the result of a function that takes long; a thread runs it."""
        return await asyncio.to_thread(function)

    def countdown(self, timeout_s: float | None) -> Callable[[], float]:
        """Return a function that returns how much of a timeout is left, for calls of several operations.

        Arguments:
            timeout_s: in seconds, from now on; None = `default_api_timeout_s`.

        Raises:
            ClientUseError: the client is not started, closed, or used in another loop.
        """
        self.client.check_owner()
        loop = self.client.loop
        deadline = loop.time() + (self.client.settings.default_api_timeout_s if timeout_s is None else timeout_s)
        return lambda: max(deadline - loop.time(), 0.0)

    def coordinator(self, group: str) -> int:
        """Return the broker id of a group's coordinator that has just answered, -1 = it has moved meanwhile."""
        node = self.client.coordinator(group)
        return -1 if node is None else node

    def serves(self, node: int, request: type[Request]) -> bool:
        """Return whether a broker that has answered before serves a request."""
        try:
            return self.client.version(node, request) is not None
        except UnsupportedVersionError:
            return False

    async def brokers(self, timeout_s: float | None = None) -> list[int]:
        """Return the ids of all live brokers."""
        seconds = self.client.settings.default_api_timeout_s if timeout_s is None else timeout_s
        await describe(self.client, (), seconds)
        return sorted(self.client.view.brokers)


class _Run(Generic[K, V]):
    """An operation that runs."""

    def __init__(self, driver: Driver, operation: Operation[K, V], keys: Collection[K], timeout_s: float) -> None:
        self._driver = driver
        self._client = driver.client
        self._operation = operation
        self._row = operation.row
        self._begin = self._client.loop.time()
        self._deadline = self._begin + timeout_s
        self._pending: dict[K, KafkaError | None] = dict.fromkeys(keys)
        self._ended: dict[K, V | KafkaError] = {}
        self._failures = 0

    @property
    def _left_s(self) -> float:
        return max(self._deadline - self._client.loop.time(), 0.0)

    @property
    def _attempt_s(self) -> float:
        return min(self._left_s, self._client.settings.request_timeout_s)

    async def finish(self) -> dict[K, V | KafkaError]:
        """Return the outcome of each key, in their order."""
        keys = list(self._pending)
        while self._pending:
            by_node = await self._addressed()
            requests = [(node, group) for node, keys in by_node.items() for group in self._groups(keys)]
            await asyncio.gather(*(self._send(node, keys) for node, keys in requests))
            if self._pending:
                await self._pause()
        return {key: self._ended[key] for key in keys}

    def _groups(self, keys: list[K]) -> list[list[K]]:
        return [[key] for key in keys] if self._operation.single else [keys]

    async def _pause(self) -> None:
        """Wait before the next attempt; at the deadline, end what is left."""
        self._failures += 1
        pause_s = self._driver.backoff.delay_s(self._failures)
        if pause_s < self._left_s:
            await asyncio.sleep(pause_s)
            return
        for key, error in self._pending.items():
            assert error is not None, "it has failed before"
            self._ended[key] = error if isinstance(error, BrokerResponseError) else _late(self._operation, error)
        self._pending.clear()

    # addresses

    async def _addressed(self) -> dict[int, list[K]]:
        """Return the pending keys by broker; those whose broker is not found have failed."""
        addresses = {key: self._operation.address(key) for key in self._pending}
        found = await self._nodes(addresses)
        by_node: dict[int, list[K]] = {}
        for key, address in addresses.items():
            node = address if isinstance(address, int) else found[address]
            if isinstance(node, KafkaError):
                self._failed(key, node)
            else:
                by_node.setdefault(node, []).append(key)
        return by_node

    async def _nodes(self, addresses: dict[K, Address]) -> dict[Any, int | KafkaError]:
        wanted: list[Any] = [each for each in addresses.values() if not isinstance(each, int)]
        if not wanted:
            return {}
        route = self._row.route
        try:
            if route is Route.LEADER:
                nodes, ids = await leaders(self._client, wanted, self._left_s)
                self._driver.topic_ids.update(ids)
                return dict(nodes)
            if route in (Route.GROUP, Route.TRANSACTION):
                return dict(await coordinators(self._client, route, wanted, self._left_s))
            return {None: await self._unaddressed(route)}
        except KafkaError as error:
            return dict.fromkeys(wanted, error)

    async def _unaddressed(self, route: Route) -> int:
        """Return the broker for a request to any broker or to the controller."""
        if route is Route.ANY and self._row.repeatable:
            return ANY_NODE
        if self._failures:
            await describe(self._client, (), self._left_s)
        view = self._client.view
        nodes = sorted(view.brokers)
        if route is Route.CONTROLLER and view.controller_id in view.brokers:
            return view.controller_id
        if not nodes:
            raise KafkaConnectionError("no broker is known: the client connects to its bootstrap servers again")
        return nodes[self._client.environment.random.randrange(len(nodes))]

    # requests

    async def _send(self, node: int, keys: list[K]) -> None:
        unanswered = dict.fromkeys(keys)
        try:
            response = await self._call(node, self._operation.build(keys))
            for key, outcome in self._operation.read(response, keys):
                if key in unanswered:
                    del unanswered[key]
                    self._receive(key, outcome)
            missing: KafkaError = error_for(
                KafkaErrorCode.UNKNOWN_SERVER_ERROR, "the response does not contain this resource"
            )
        except KafkaError as error:
            missing = error
        for key in unanswered:
            self._failed(key, missing)

    async def _call(self, node: int, request: Request) -> Any:
        client, version_max = self._client, self._operation.version_max
        if node == ANY_NODE:
            return await client.call_any(request, timeout_s=self._left_s)
        if not self._row.repeatable:
            await _completed(client, lambda *ends: client.connect(node, *ends, timeout_s=self._attempt_s))
        try:
            return await client.call(node, request, timeout_s=self._attempt_s, version_max=version_max)
        except (KafkaConnectionError, KafkaTimeoutError) as error:
            if self._row.repeatable:
                raise
            name = type(request).__name__.removesuffix("Request")
            raise OutcomeUnknownError(f"{name} was sent, its response was lost: {error}") from error

    def _receive(self, key: K, outcome: V | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            self._failed(key, outcome)
        else:
            self._end(key, outcome)

    def _end(self, key: K, outcome: V | KafkaError) -> None:
        self._pending.pop(key, None)
        self._ended[key] = outcome

    def _failed(self, key: K, error: KafkaError) -> None:
        """End a resource with an error, or repeat its request."""
        if error.code in COORDINATOR_MOVED:
            address = self._operation.address(key)
            if isinstance(address, str):
                self._client.forget_coordinator(address, 0 if self._row.route is Route.GROUP else 1)
        if self._may_repeat(error):
            self._pending[key] = error
            LOGGER.debug("%s: %s", key, error)
        elif error.code in TIMEOUTS and not self._row.repeatable:
            name = self._operation.request.__name__.removesuffix("Request")
            self._end(key, OutcomeUnknownError(f"the broker does not know the outcome of {name}: {error}"))
        else:
            self._end(key, error)

    def _may_repeat(self, error: KafkaError) -> bool:
        if not isinstance(error, BrokerResponseError):
            return isinstance(error, KafkaConnectionError | KafkaTimeoutError)
        if error.code in MISSING:
            return self._row.route is Route.LEADER and self._client.loop.time() < self._begin + CREATION_S
        return error.code in REJECTED or (error.code in PASSING and self._row.repeatable)


def _late(operation: Operation[Any, Any], error: KafkaError) -> KafkaError:
    if isinstance(error, KafkaTimeoutError):
        return error
    name = operation.request.__name__.removesuffix("Request")
    failure = KafkaTimeoutError(f"{name} had no success in time: {error}")
    failure.__cause__ = error
    return failure


async def _completed(client: ClusterClient, begin: Callable[..., None]) -> Any:
    """Return what a function reports to its two ends."""
    future: asyncio.Future[Any] = client.loop.create_future()
    begin(*completing(future))
    return await future
