"""Any request to any broker: `poll` sends requests, and returns the responses that have arrived.

Source: the proposal of Kafka's client rewrite, and its NetworkClient.poll (ClientRequest, ClientResponse).
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any, Self, Unpack

from kafkalite.errors import BufferExhaustedError, ClientUseError, KafkaError
from kafkalite.model import TopicPartition
from kafkalite.net.client.core import Answer, Fail
from kafkalite.protocol.schema import Request
from kafkalite_sdk.client.arguments import readable
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.coordinators import GROUP, TRANSACTION
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.client.options import AdminOptions, client_settings
from kafkalite_sdk.client.routes import Route
from kafkalite_sdk.rpc.call import Call, Reply

CALLS_MAX = 10_000
"""Calls of one connection whose replies the application has not received."""


class Connection:
    """Sends requests to the brokers of a cluster, over one connection to each. It belongs to one event loop.

        async with Connection("localhost:9092") as connection:
            calls = [Call(DescribeLogDirsRequest(topics=None), broker=broker) for broker in connection.brokers]
            replies = await connection.poll(1.0, *calls)
            while connection.open_calls:
                replies += await connection.poll(1.0)

    Requests to one broker leave in the order of `poll`; nothing is repeated. The application reads the error codes of
    responses; after NOT_COORDINATOR it calls `forget_coordinator`.

    Arguments:
        bootstrap_servers: "host:port,host:port" or a list of addresses; the first brokers to connect to.
        environment: connections and randomness; simulations replace it.
        options: see `help(kafkalite_sdk.AdminOptions)`.

    Raises:
        TypeError: an option is unknown. ValueError: a value is not valid.
    """

    @readable("kafkalite_sdk.AdminOptions")
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        environment: Environment | None = None,
        **options: Unpack[AdminOptions],
    ) -> None:
        settings = client_settings("Connection", bootstrap_servers, options)
        self._client = ClusterClient(settings, environment, name="Connection")
        self._replies: deque[Reply] = deque()
        self._open = 0
        self._waiter: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect to the cluster. After a failure it may be called again.

        Raises:
            KafkaConnectionError: no bootstrap server is reachable. KafkaTimeoutError: `default_api_timeout_ms` has
            passed. ClientUseError: it is started or closed.
        """
        await self._client.start()

    async def close(self) -> None:
        """Close all connections; open calls end with ClientUseError. A second call does nothing."""
        await self._client.close()

    @property
    def brokers(self) -> list[int]:
        """The ids of the known brokers, sorted."""
        return sorted(self._client.view.brokers)

    @property
    def open_calls(self) -> int:
        """The number of calls whose replies `poll` has not returned."""
        return self._open + len(self._replies)

    async def poll(self, timeout: float | None, *requests: Request | Call) -> list[Reply]:
        """Send requests, and wait until a reply has arrived, of these or of earlier ones.

        It returns at once if replies have arrived before, or if no call is open. A cancelled `poll` loses nothing: the
        next one returns the replies.

        Arguments:
            timeout: in seconds; None = until a reply arrives, which each call does by `request_timeout_ms`.
            requests: a `Call` names its broker; a bare request is sent to any broker or to the controller.

        Returns: the replies that have arrived, in this order; none after the timeout.

        Raises:
            ValueError: a request needs an address. BufferExhaustedError: too many calls are open, none of these is
            sent. ClientUseError: another task polls, or the connection is not started, closed, or used in another loop.
        """
        self._client.check_owner()
        if self._waiter is not None:
            raise ClientUseError("this Connection is polled by another task; use one Connection per task")
        calls = [each if isinstance(each, Call) else Call(each) for each in requests]
        if self.open_calls + len(calls) > CALLS_MAX:
            raise BufferExhaustedError(
                f"{self.open_calls} calls are open, at most {CALLS_MAX} may be: poll without requests"
            )
        for call in calls:
            self._send(call)
        if not self._replies and self._open:
            await self._wait(timeout)
        replies = list(self._replies)
        self._replies.clear()
        return replies

    async def _wait(self, timeout: float | None) -> None:
        waiter = self._waiter = self._client.loop.create_future()
        try:
            await asyncio.wait((waiter,), timeout=timeout)
        finally:
            self._waiter = None

    def forget_coordinator(self, *, group: str | None = None, transactional_id: str | None = None) -> None:
        """A broker has answered that it is not the coordinator: the next call looks it up again.

        Arguments:
            group, transactional_id: one of both.
        """
        if group is not None:
            self._client.forget_coordinator(group, GROUP)
        if transactional_id is not None:
            self._client.forget_coordinator(transactional_id, TRANSACTION)

    async def offsets_before(
        self, topic: str, partition: int, time_ms: int, max_offsets: int, *, timeout: float | None = None
    ) -> list[int]:
        """Return the offsets at which segments begin that are not newer than a time, descending (getOffsetsBefore).

        Apache Kafka up to 3.9 compares the time when a segment was last written (ListOffsets v0), kafkalite the largest
        timestamp of its records (ListSegments).

        Arguments:
            topic, partition: the partition.
            time_ms: in ms since 1970; -1 = all segments and the log end, -2 = the first segment.
            max_offsets: the largest number of offsets.
            timeout: deadline in seconds; None = `default_api_timeout_ms`.

        Raises:
            UnsupportedVersionError: Apache Kafka 4 serves neither request. KafkaError: the leader cannot answer.
        """
        from kafkalite_sdk.rpc.offsets_before import offsets_before  # imports messages that few programs need

        return await offsets_before(self._client, TopicPartition(topic, partition), time_ms, max_offsets, timeout)

    # calls

    def _send(self, call: Call) -> None:
        self._open += 1
        answer, fail = partial(self._answered, call), partial(self._failed, call)
        if call.broker is not None:
            self._submit(call, answer, fail, call.broker)
        elif call.group is not None:
            self._to_coordinator(call, answer, fail, call.group, GROUP)
        elif call.transactional_id is not None:
            self._to_coordinator(call, answer, fail, call.transactional_id, TRANSACTION)
        else:
            self._submit(call, answer, fail, self._unaddressed(call))

    def _to_coordinator(self, call: Call, answer: Answer, fail: Fail, key: str, key_type: int) -> None:
        timeout_s = self._client.settings.request_timeout_s
        found = partial(self._submit, call, answer, fail)
        self._client.find_coordinator(key, key_type, found, fail, timeout_s=timeout_s)

    def _submit(self, call: Call, answer: Answer, fail: Fail, node: int) -> None:
        self._client.submit(node, call.request, answer, fail, version_max=call.version_max)

    def _unaddressed(self, call: Call) -> int:
        """Return the controller, or the connected broker with the fewest open calls, else a bootstrap server."""
        view = self._client.view
        if call.route is Route.CONTROLLER and view.controller_id in view.brokers:
            return view.controller_id
        nodes = self.brokers
        connected = [node for node in nodes if self._client.is_connected(node)]
        return min(connected or nodes or self._client.bootstrap_nodes[:1], key=self._client.in_flight)

    def _answered(self, call: Call, response: Any) -> None:
        self._end(Reply(call, response))

    def _failed(self, call: Call, error: KafkaError) -> None:
        self._end(Reply(call, error=error))

    def _end(self, reply: Reply) -> None:
        self._open -= 1
        self._replies.append(reply)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
