"""Controlled shutdown against a scripted controller and a scripted list of live brokers, in virtual time."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from kafkalite.clock import Outcome
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import ConnectionLossError
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from kafkalite.server.running.controlled_shutdown import ControlledShutdown
from kafkalite.testing.virtual_clock import VirtualClock

MOVED = ControlledShutdownResponse(error_code=0, remaining_partitions=[])
LEFT = ControlledShutdownResponse.RemainingPartition(topic_name="t", partition_index=0)
REMAINING = ControlledShutdownResponse(error_code=0, remaining_partitions=[LEFT])
REFUSED = ControlledShutdownResponse(error_code=KafkaErrorCode.NOT_CONTROLLER, remaining_partitions=[])


class Rig:
    """Broker 1, whose led partitions have the ISR 1, 2; all three brokers are alive, 3 is the controller."""

    def __init__(self, **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.config = BrokerConfig({"log.dirs": "/data", "broker.id": "1", **named})
        self.broker_id, self.controller_id, self.registered_epoch = 1, 3, 7
        self.is_replicated, self.suspended = True, False
        self.members, self.live = {2}, {1, 2, 3}
        self.clock = VirtualClock()
        self.requests: list[ControlledShutdownRequest] = []
        self.ended: list[float] = []
        self.error: Exception | None = None
        self._answer: Any = None
        self._watches: list[Callable[[Any], object]] = []
        self.shutdown = ControlledShutdown(self, self, cast(Coordination, self), self.clock)

    def other_members(self) -> set[int]:
        return self.members

    def controlled_shutdown(self, request: ControlledShutdownRequest, then: Any) -> None:
        self.requests.append(request)
        self._answer = then

    def children(self, _path: str, then: Any, watch: Any) -> None:
        self._watches.append(watch)
        found = [str(each) for each in self.live], 0
        then(Outcome(error=self.error) if self.error else Outcome(found))

    def begin(self) -> None:
        self.shutdown.begin(lambda _outcome: self.ended.append(self.clock.monotonic()))

    def answer(self, response: ControlledShutdownResponse | None) -> None:
        then, self._answer = self._answer, None
        then(response)

    def brokers_change(self, *live: int) -> None:
        self.live = set(live)
        watches, self._watches = self._watches, []
        for each in watches:
            each(None)


def test_leaderships_that_are_moved_end_it() -> None:
    rig = Rig()
    rig.begin()
    (request,) = rig.requests
    assert (request.broker_id, request.broker_epoch, rig.ended) == (1, 7, [])
    rig.answer(MOVED)
    assert rig.ended == [0.0] and rig.clock.timers == 0


@pytest.mark.parametrize("response", [None, REMAINING, REFUSED])
def test_request_is_repeated_while_another_member_is_alive(response: ControlledShutdownResponse | None) -> None:
    rig = Rig(controlled_shutdown_max_retries="2", controlled_shutdown_retry_backoff_ms="1000")
    rig.begin()
    for number in (1, 2):
        rig.answer(response)
        rig.clock.advance(1_000)
        assert len(rig.requests) == number + 1 and not rig.ended
    rig.answer(response)
    assert rig.ended == [2.0]


def test_last_member_does_not_wait() -> None:
    """Its followers have stopped, too: they have left the ISR, or are gone."""
    for members, live in (set[int](), {1, 2, 3}), ({2}, {1, 3}):
        rig = Rig()
        rig.begin()
        rig.members, rig.live = members, live
        rig.answer(REMAINING)
        assert rig.ended == [0.0] and rig.clock.timers == 0


def test_last_other_member_that_stops_ends_the_wait() -> None:
    rig = Rig()
    rig.begin()
    rig.answer(REMAINING)
    rig.brokers_change(1, 3)
    assert rig.ended == [0.0] and len(rig.requests) == 1


def test_another_controller_is_asked_at_once() -> None:
    rig = Rig()
    rig.begin()
    rig.answer(None)
    rig.shutdown.image_changed()
    assert len(rig.requests) == 1
    rig.brokers_change(1, 2)
    assert len(rig.requests) == 2
    rig.answer(None)
    rig.controller_id = 2
    rig.shutdown.image_changed()
    assert len(rig.requests) == 3
    rig.answer(MOVED)
    assert rig.ended == [0.0]


def test_brokers_without_live_replicas_ask_nothing() -> None:
    for change in ({"is_replicated": False}, {"registered_epoch": -1}, {"suspended": True}):
        rig = Rig()
        vars(rig).update(change)
        rig.begin()
        assert rig.ended == [0.0] and not rig.requests
    rig = Rig(controlled_shutdown_enable="false")
    rig.begin()
    assert rig.ended == [0.0] and not rig.requests


@pytest.mark.parametrize("is_suspended", [True, False])
def test_nothing_waits_for_a_lost_coordination_service(is_suspended: bool) -> None:
    rig = Rig()
    rig.begin()
    rig.suspended, rig.error = is_suspended, ConnectionLossError()
    rig.answer(None)
    assert rig.ended == [0.0]


def test_ended_shutdown_ignores_the_response() -> None:
    rig = Rig()
    rig.begin()
    rig.shutdown.end()
    rig.answer(REMAINING)
    rig.shutdown.end()
    assert rig.ended == [0.0] and rig.clock.timers == 0
