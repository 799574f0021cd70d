"""Sends the requests of this broker to the controller, which may be this broker itself."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from kafkalite.clock import Clock
from kafkalite.cluster.broker_peers import BrokerPeers, CallResult
from kafkalite.cluster.metadata.image import ClusterTables
from kafkalite.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kafkalite.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from kafkalite.protocol.schema import Request

Then = Callable[[Any], object]


class ElectedController(Protocol):
    """The controller on this broker, if it is elected."""

    @property
    def active(self) -> bool:
        """Whether this broker is the controller."""

    def alter_partition(
        self, request: AlterPartitionRequest, then: Callable[[AlterPartitionResponse], object]
    ) -> None: ...

    def controlled_shutdown(
        self, request: ControlledShutdownRequest, then: Callable[[ControlledShutdownResponse], object]
    ) -> None: ...


class CallsToController:
    """Calls the controller: this broker's, or the one in the image. The caller repeats what has no response.

    Arguments:
        local: the controller on this broker.
        tables: name the controller.
        peers: the other brokers; a call ends within their time limit (`controller.socket.timeout.ms`).
        clock: ends calls without a controller in the next loop iteration.
    """

    def __init__(self, local: ElectedController, tables: ClusterTables, peers: BrokerPeers, clock: Clock) -> None:
        self._local = local
        self._tables = tables
        self._peers = peers
        self._clock = clock
        self._controller = self._in_image()

    def _in_image(self) -> tuple[int, int]:
        """Broker id and epoch of the controller."""
        return self._tables.image.controller_id, self._tables.image.controller_epoch

    def alter_partition(
        self, request: AlterPartitionRequest, then: Callable[[AlterPartitionResponse | None], object]
    ) -> None:
        """Request ISR changes; `then` is called once, never inside: with the response, None without one."""
        self._call(request, self._local.alter_partition, then)

    def controlled_shutdown(
        self, request: ControlledShutdownRequest, then: Callable[[ControlledShutdownResponse | None], object]
    ) -> None:
        """Request that leaders are moved away; `then` is called once, never inside."""
        self._call(request, self._local.controlled_shutdown, then)

    def image_changed(self) -> None:
        """End the calls to a controller that is not alive, or not the controller any more, without a response.

        The next call connects again: a connection to an earlier process may be half open
        (BrokerToControllerRequestThread.doWork).
        """
        self._peers.brokers_changed()
        former, self._controller = self._controller, self._in_image()
        if self._controller != former:
            self._peers.disconnect(former[0])

    def close(self) -> None:
        """End the connections; open calls end without a response."""
        self._peers.close()

    def _call(self, request: Request, local: Callable[[Any, Then], object], then: Then) -> None:
        if self._local.active:
            local(request, partial(self._soon, then))
        else:
            self._peers.call(self._tables.image.controller_id, request, partial(end, then))

    def _soon(self, then: Then, response: Any) -> None:
        """The local controller may answer at once."""
        self._clock.call_at(self._clock.monotonic(), then, response)


def end(then: Then, result: CallResult) -> None:
    """End a call to another broker."""
    then(result.response)
