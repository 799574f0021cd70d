"""Asks the controller to move this broker's leaderships, before its listeners close: controlled shutdown.

1. Only brokers with a partition of which another replica is alive ask. The others stop at once.
2. The request is repeated while another member of an ISR that this broker leads is alive, at most for
   `controlled.shutdown.max.retries` times `controlled.shutdown.retry.backoff.ms`. So brokers that stop together do not
   wait for each other: followers that stop leave the ISR, and the last broker leads alone.
3. It is repeated at once when the controller or the live brokers change, else after the back-off.
4. Without a connection to the coordination service nothing is waited for: no leadership can be moved.

Deviation: Kafka always repeats the request `max.retries` times, also where no other broker is alive.
Source: KafkaServer.controlledShutdown of Apache Kafka 3.9.
"""

import logging
from collections.abc import Callable, Set
from functools import partial
from typing import Protocol

from kafkalite.clock import Clock, Outcome, Timer
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.tree import WatchEvent
from kafkalite.coordination.znodes import BROKER_IDS
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

LOGGER = logging.getLogger("kafkalite.server")


class StoppingBroker(Protocol):
    """The broker, as its controlled shutdown uses it."""

    broker_id: int
    config: BrokerConfig

    @property
    def controller_id(self) -> int:
        """The controller in the image."""

    @property
    def registered_epoch(self) -> int:
        """The broker epoch; -1 while it is not registered."""

    @property
    def is_replicated(self) -> bool:
        """Whether another replica of a hosted partition is alive in the image."""

    def other_members(self) -> Set[int]:
        """The other members of the ISRs that this broker leads."""


class ShutdownCalls(Protocol):
    """Sends requests to the controller."""

    def controlled_shutdown(
        self, request: ControlledShutdownRequest, then: Callable[[ControlledShutdownResponse | None], object]
    ) -> None: ...


class ControlledShutdown:
    """The controlled shutdown of one broker.

    Arguments:
        broker: this broker.
        calls: to the controller.
        session: with the coordination service; has the live brokers.
        clock: for the back-off.
    """

    def __init__(self, broker: StoppingBroker, calls: ShutdownCalls, session: Coordination, clock: Clock) -> None:
        self._broker = broker
        self._calls = calls
        self._session = session
        self._clock = clock
        self._then: Callable[[Outcome], object] | None = None
        self._timer: Timer | None = None  # while it waits for the next attempt
        self._end_s = 0.0
        self._reason = ""
        self._controller_id = -1  # of the last attempt

    @property
    def in_progress(self) -> bool:
        """Whether it has begun and not ended."""
        return self._then is not None

    def begin(self, then: Callable[[Outcome], object]) -> None:
        """Move the leaderships; `then` is called at the end, with or without success, perhaps at once."""
        config, broker = self._broker.config, self._broker
        self._then = then
        wait_ms = config.controlled_shutdown_max_retries * config.controlled_shutdown_retry_backoff_ms
        self._end_s = self._clock.monotonic() + wait_ms / 1000
        can_move = broker.registered_epoch >= 0 and not self._session.suspended
        if config.controlled_shutdown_enable and can_move and broker.is_replicated:
            self._request()
        else:
            self.end()

    def end(self) -> None:
        """End it now; a response that is still to come is ignored."""
        then, self._then = self._then, None
        self._cancel_timer()
        if then is not None:
            then(Outcome())

    def image_changed(self) -> None:
        """Repeat the request if it waits for the next attempt, and there is another controller."""
        if self._timer is not None and self._broker.controller_id != self._controller_id:
            self._request()

    def _request(self) -> None:
        self._cancel_timer()
        broker, self._controller_id = self._broker, self._broker.controller_id
        request = ControlledShutdownRequest(broker_id=broker.broker_id, broker_epoch=broker.registered_epoch)
        self._calls.controlled_shutdown(request, self._answered)

    def _answered(self, response: ControlledShutdownResponse | None) -> None:
        if self._then is None:
            return
        if response is None:
            self._reason = "the controller has not answered"
        elif response.error_code:
            self._reason = KafkaErrorCode(response.error_code).name
        elif response.remaining_partitions:
            self._reason = f"{len(response.remaining_partitions)} partitions have no other leader"
        else:
            self.end()
            return
        self._see_others()

    def _see_others(self, *, changed: bool = False) -> None:
        """Repeat the request while another broker could lead: at once if they have changed."""
        if self._session.suspended:
            self._give_up()
        else:
            self._session.children(BROKER_IDS, partial(self._others_read, changed), self._others_changed)

    def _others_changed(self, _event: WatchEvent) -> None:
        if self._timer is not None:
            self._cancel_timer()
            self._see_others(changed=True)

    def _others_read(self, changed: bool, outcome: Outcome) -> None:
        if self._then is None:
            return
        if outcome.error is not None:
            self._give_up()
            return
        live = {int(name) for name in outcome.value[0] if name.isdigit()}
        now = self._clock.monotonic()
        if not self._broker.other_members() & live:
            self.end()  # no broker could lead any of the partitions
        elif now >= self._end_s:
            self._give_up()
        elif changed:
            self._request()
        elif self._timer is None:
            wait_s = self._broker.config.controlled_shutdown_retry_backoff_ms / 1000
            self._timer = self._clock.call_at(min(now + wait_s, self._end_s), self._request)

    def _give_up(self) -> None:
        LOGGER.warning("the controlled shutdown has not moved all leaderships: %s", self._reason)
        self.end()

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
