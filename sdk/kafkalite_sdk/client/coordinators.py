"""Finds and remembers the coordinators of groups and transactional ids.

Invariants:
1. Lookups of one key share one request.
2. Errors that may pass are retried with back-off until the deadline of the lookup.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.backoff import Backoff
from kafkalite.callbacks import call_each
from kafkalite.errors import KafkaError, KafkaErrorCode, KafkaTimeoutError, error_class, error_for, with_right
from kafkalite.model import Node
from kafkalite.net.client.core import Answer, Fail
from kafkalite.protocol.schema import Request
from kafkalite_sdk.client.alarm import Alarm

if TYPE_CHECKING:
    from kafkalite.protocol.messages.find_coordinator import FindCoordinatorResponse

LOGGER = logging.getLogger("kafkalite_sdk.retries")
GROUP, TRANSACTION = 0, 1
NAMES = {GROUP: "group", TRANSACTION: "transactional id"}

Key = tuple[str, int]
Ask = Callable[[Request, Answer, Fail, float], object]
"""Sends a request to any broker: the request, its two ends, its timeout in seconds."""


class Lookup:
    """An open lookup.

    Attributes:
        waiting: the ends of those that wait for it, with their deadlines.
        failures: attempts that have failed.
        alarm: of the next attempt.
    """

    __slots__ = ("alarm", "deadline", "failures", "waiting")

    def __init__(self, deadline: float, alarm: Alarm) -> None:
        self.waiting: list[tuple[Callable[[int], object], Fail]] = []
        self.failures = 0
        self.deadline = deadline
        self.alarm = alarm


class Coordinators:
    """The coordinators that a client knows.

    Arguments:
        loop: the event loop.
        ask: sends a request to any broker.
        found: called with the address of each coordinator.
        backoff: pause between the attempts of a lookup.
        failed: called with an unexpected exception of a timer.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ask: Ask,
        found: Callable[[Node], object],
        backoff: Backoff,
        failed: Callable[[Exception], object],
    ) -> None:
        self._loop = loop
        self._ask = ask
        self._found = found
        self._backoff = backoff
        self._alarm_failed = failed
        self._known: dict[Key, int] = {}
        self._lookups: dict[Key, Lookup] = {}

    def get(self, key: str, key_type: int) -> int | None:
        """Return the broker id of a coordinator, None = not known."""
        return self._known.get((key, key_type))

    def forget(self, key: str, key_type: int) -> None:
        """The coordinator has moved: the next lookup asks the cluster."""
        self._known.pop((key, key_type), None)

    def forget_all(self) -> None:
        """Forget every coordinator."""
        self._known.clear()

    def find(self, key: str, key_type: int, answer: Callable[[int], object], fail: Fail, timeout_s: float) -> None:
        """Find a coordinator.

        Arguments:
            key: group id or transactional id.
            key_type: GROUP or TRANSACTION.
            answer: called with its broker id.
            fail: called with the error instead.
            timeout_s: deadline in seconds; that of an open lookup of the same key holds for all.
        """
        node = self._known.get((key, key_type))
        if node is not None:
            answer(node)
            return
        lookup = self._lookups.get((key, key_type))
        if lookup is not None:
            lookup.waiting.append((answer, fail))
            return
        alarm = Alarm(self._loop, partial(self._attempt, (key, key_type)), self._alarm_failed)
        lookup = self._lookups[key, key_type] = Lookup(self._loop.time() + timeout_s, alarm)
        lookup.waiting.append((answer, fail))
        self._attempt((key, key_type))

    def _attempt(self, key: Key) -> None:
        from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest  # with the first lookup

        request = FindCoordinatorRequest(key=key[0], key_type=key[1], coordinator_keys=[key[0]])
        timeout_s = self._lookups[key].deadline - self._loop.time()
        self._ask(request, partial(self._answered, key), partial(self._fail, key), timeout_s)

    def _answered(self, key: Key, response: "FindCoordinatorResponse") -> None:
        each = response.coordinators[0] if response.coordinators else response
        code = each.error_code or (0 if each.host else KafkaErrorCode.COORDINATOR_NOT_AVAILABLE)
        if code:
            reason = each.error_message or error_class(code).code.message
            text = with_right(code, f"{NAMES[key[1]]} {key[0]}: {reason}", "describe", key[0])
            self._attempt_failed(key, error_for(code, text))
            return
        self._found(Node(each.node_id, each.host, each.port))
        self._known[key] = each.node_id
        call_each(lambda end: end[0](each.node_id), self._lookups.pop(key).waiting)

    def _attempt_failed(self, key: Key, error: KafkaError) -> None:
        lookup = self._lookups[key]
        if not error.retriable:
            self._fail(key, error)
            return
        LOGGER.debug("%s", error)
        lookup.failures += 1
        at = self._loop.time() + self._backoff.delay_s(lookup.failures)
        if at < lookup.deadline:
            lookup.alarm.set(at)
            return
        text = f"the coordinator of {NAMES[key[1]]} {key[0]} was not found in time: {error}"
        self._fail(key, KafkaTimeoutError(text))

    def _fail(self, key: Key, error: KafkaError) -> None:
        lookup = self._lookups.pop(key, None)
        if lookup is not None:  # else `close` has failed it, before its request ends
            lookup.alarm.cancel()
            call_each(lambda end: end[1](error), lookup.waiting)

    def close(self, error: KafkaError) -> None:
        """Fail the open lookups."""
        call_each(lambda key: self._fail(key, error), list(self._lookups))
