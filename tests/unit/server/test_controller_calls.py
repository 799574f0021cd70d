"""Calls to the controller: to this broker, or to the one in the image."""

from dataclasses import replace
from typing import Any, cast

from kafkalite.cluster.broker_peers import BrokerPeers, CallResult
from kafkalite.cluster.metadata.image import ClusterTables
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kafkalite.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from kafkalite.server.running.controller_calls import CallsToController
from kafkalite.testing.virtual_clock import VirtualClock

REQUEST = AlterPartitionRequest(broker_id=1, broker_epoch=5, topics=[])
RESPONSE = AlterPartitionResponse(error_code=0, topics=[])


class Rig:
    """Broker 1 with the controller 3 in its image; its own controller answers at once."""

    def __init__(self) -> None:
        self.active = False
        self.clock = VirtualClock()
        self.called: list[tuple[int, Any]] = []
        self.results: list[Any] = []
        self.then: Any = None
        self.disconnected: list[int] = []
        self.tables = ClusterTables("cluster", 3)
        self.calls = CallsToController(self, self.tables, cast(BrokerPeers, self), self.clock)

    def alter_partition(self, _request: Any, then: Any) -> None:
        then(RESPONSE)

    def controlled_shutdown(self, _request: Any, then: Any) -> None:
        then(RESPONSE)

    def call(self, broker_id: int, request: Any, then: Any) -> None:
        self.called.append((broker_id, request))
        self.then = then

    def brokers_changed(self) -> None:
        """Another test has the brokers."""

    def disconnect(self, broker_id: int) -> None:
        self.disconnected.append(broker_id)

    def receive(self, controller_id: int, controller_epoch: int) -> None:
        image = replace(self.tables.image, controller_id=controller_id, controller_epoch=controller_epoch)
        self.tables.swap(image)
        self.calls.image_changed()


def test_controller_of_the_image_is_called() -> None:
    rig = Rig()
    rig.calls.alter_partition(REQUEST, rig.results.append)
    assert rig.called == [(3, REQUEST)]
    rig.then(CallResult(RESPONSE))
    shutdown = ControlledShutdownRequest(broker_id=1)
    rig.calls.controlled_shutdown(shutdown, rig.results.append)
    assert rig.called[1] == (3, shutdown)
    rig.then(CallResult(None, KafkaErrorCode.REQUEST_TIMED_OUT))
    assert rig.results == [RESPONSE, None]


def test_calls_to_another_term_of_the_controller_end() -> None:
    """Broker 3 was the controller, ended, and is elected again: it has no call of before."""
    rig = Rig()
    rig.receive(3, 0)
    assert rig.disconnected == []
    rig.receive(3, 2)
    rig.receive(3, 2)
    assert rig.disconnected == [3]
    rig.receive(2, 3)
    rig.receive(1, 4)
    assert rig.disconnected == [3, 3, 2]


def test_own_controller_answers_in_the_next_iteration() -> None:
    rig = Rig()
    rig.active = True
    rig.calls.alter_partition(REQUEST, rig.results.append)
    assert rig.called == [] and rig.results == []
    rig.clock.advance(0)
    assert rig.results == [RESPONSE]
