"""Any request to any broker, for programs without an event loop."""

from collections.abc import Iterable
from functools import partial
from typing import Unpack

from kafkalite.protocol.schema import Request
from kafkalite_sdk.blocking.client import BlockingClient
from kafkalite_sdk.client.arguments import readable
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.client.options import AdminOptions
from kafkalite_sdk.rpc import connection as asynchronous
from kafkalite_sdk.rpc.call import Call, Reply


class _LoopConnection(asynchronous.Connection):
    """A connection of the SDK."""

    @property
    def cluster(self) -> ClusterClient:
        return self._client

    def give_back(self, replies: list[Reply]) -> None:
        """The application has not received replies: the next poll returns them."""
        self._replies.extendleft(reversed(replies))


class Connection(BlockingClient[_LoopConnection]):
    """Sends requests to the brokers of a cluster, over one connection to each, for programs without an event loop.

        with Connection("localhost:9092") as connection:
            calls = [Call(DescribeLogDirsRequest(topics=None), broker=broker) for broker in connection.brokers]
            replies = connection.poll(1.0, *calls)
            while connection.open_calls:
                replies += connection.poll(1.0)

    Methods, settings and errors are those of `kafkalite_sdk.rpc.Connection`.

    Arguments: as of `kafkalite_sdk.rpc.Connection`.
    Raises: as `kafkalite_sdk.rpc.Connection`.
    """

    @readable("kafkalite_sdk.AdminOptions")
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        environment: Environment | None = None,
        **options: Unpack[AdminOptions],
    ) -> None:
        client = _LoopConnection(bootstrap_servers, environment=environment, **options)
        super().__init__(client, client.cluster)

    @property
    def brokers(self) -> list[int]:
        """The ids of the known brokers, sorted."""
        return self._call(lambda: self._client.brokers)

    @property
    def open_calls(self) -> int:
        """The number of calls whose replies `poll` has not returned."""
        return self._call(lambda: self._client.open_calls)

    def poll(self, timeout: float | None, *requests: Request | Call) -> list[Reply]:
        """Send requests, and wait until a reply has arrived, of these or of earlier ones.

        Arguments:
            timeout: in seconds; None = until a reply arrives, which each call does by `request_timeout_ms`.
            requests: a `Call` names its broker; a bare request is sent to any broker or to the controller.

        Returns: the replies that have arrived, in this order; none after the timeout.

        Raises: as `kafkalite_sdk.rpc.Connection.poll`.
        """
        return self._thread().run_or_undo(self._client.give_back, partial(self._client.poll, timeout, *requests))

    def forget_coordinator(self, *, group: str | None = None, transactional_id: str | None = None) -> None:
        """A broker has answered that it is not the coordinator: the next call looks it up again.

        Arguments:
            group, transactional_id: one of both.
        """
        self._call(self._client.forget_coordinator, group=group, transactional_id=transactional_id)

    def offsets_before(
        self, topic: str, partition: int, time_ms: int, max_offsets: int, *, timeout: float | None = None
    ) -> list[int]:
        """Return the offsets at which segments begin that are not newer than a time, descending (getOffsetsBefore).

        Arguments: as of `kafkalite_sdk.rpc.Connection.offsets_before`.
        Raises: as `kafkalite_sdk.rpc.Connection.offsets_before`.
        """
        return self._run(self._client.offsets_before, topic, partition, time_ms, max_offsets, timeout=timeout)
