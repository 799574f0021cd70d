"""Requests that any broker may answer: the least loaded connection is used, and another broker after a failure.

Invariants:
1. A request is repeated on other brokers after connection errors and timeouts, until its deadline.
2. Known brokers come first. While none of them can be reached, the bootstrap addresses are tried (KIP-899).
3. While no broker is connected and one has rejected the credentials (or TLS has failed), requests fail at once with
   that error, which is fatal (KIP-152). A request after the back-off tries again.
4. While an attempt to connect takes longer than `ATTEMPT_DELAY_S`, the next broker is tried beside it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf

from kafkalite.callbacks import call_all, call_each
from kafkalite.errors import AuthenticationError, KafkaConnectionError, KafkaError, KafkaTimeoutError
from kafkalite.net.client.core import Answer, Fail
from kafkalite.protocol.schema import Request
from kafkalite_sdk.client.alarm import Alarm
from kafkalite_sdk.client.channel import Channel, Submission
from kafkalite_sdk.client.channels import Channels

ATTEMPT_DELAY_S = 1.0


class AnyCall:
    """A request that waits for a broker.

    Arguments:
        request, answer, fail: as in `Submission`.
        deadline: of the call with all its repetitions, in seconds of the loop's clock.
        attempt_s: deadline of one attempt, in seconds.
        fail_fast: the call fails when no broker can be reached; otherwise it waits until its deadline.

    Attributes:
        last_error: of the last attempt.
    """

    __slots__ = ("answer", "attempt_s", "deadline", "fail", "fail_fast", "last_error", "request")

    def __init__(
        self, request: Request, answer: Answer, fail: Fail, *, deadline: float, attempt_s: float, fail_fast: bool
    ) -> None:
        self.request = request
        self.answer = answer
        self.fail = fail
        self.deadline = deadline
        self.attempt_s = attempt_s
        self.fail_fast = fail_fast
        self.last_error: KafkaError | None = None


class AnyBroker:
    """Sends requests to any broker.

    Arguments:
        loop: the event loop.
        channels: the connections.
        randrange: returns an integer from 0 to below its argument.
        failed: called with an unexpected exception of a timer.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        channels: Channels,
        randrange: Callable[[int], int],
        failed: Callable[[Exception], object],
    ) -> None:
        self._loop = loop
        self._channels = channels
        self._randrange = randrange
        self._waiting: deque[AnyCall] = deque()
        self._alarm = Alarm(loop, self.advance, failed)
        self._closed_by: KafkaError | None = None

    def submit(self, call: AnyCall) -> None:
        """Send a request to any broker; it is repeated on others until its deadline."""
        if self._closed_by is not None:
            call.fail(self._closed_by)
            return
        self._waiting.append(call)
        self.advance()

    def advance(self) -> None:
        """Send what waits, if a broker is connected; else connect. Called when a channel or the time has changed."""
        self._alarm.cancel()
        now = self._loop.time()
        call_all(partial(self._fail_late, now), partial(self._send_waiting, now), partial(self._wait, now))

    def _send_waiting(self, now: float) -> None:
        while self._waiting and (channel := self._least_loaded()) is not None:
            self._send(channel, self._waiting.popleft(), now)

    def _wait(self, now: float) -> None:
        if self._waiting:
            self._alarm.set(min(self._connect(now), *(call.deadline for call in self._waiting), inf))
            self._fail_rejected()
            self._fail_unreachable()

    def _fail_late(self, now: float) -> None:
        late = [call for call in self._waiting if call.deadline <= now]
        self._waiting = deque(call for call in self._waiting if call.deadline > now)
        call_each(lambda call: call.fail(self._timeout(call)), late)

    def _timeout(self, call: AnyCall) -> KafkaTimeoutError:
        reason = call.last_error or self._reasons()
        return KafkaTimeoutError(f"no broker answered {type(call.request).__name__} in time: {reason}")

    def _least_loaded(self) -> Channel | None:
        connected = [channel for channel in self._channels.data_channels() if channel.connection is not None]
        return min(connected, key=lambda channel: channel.open_calls, default=None)

    def _send(self, channel: Channel, call: AnyCall, now: float) -> None:
        deadline = min(call.deadline, now + call.attempt_s)
        channel.submit(Submission(call.request, call.answer, partial(self._attempt_failed, call), deadline))

    def _attempt_failed(self, call: AnyCall, error: KafkaError) -> None:
        call.last_error = error
        now = self._loop.time()
        if self._closed_by is not None or not isinstance(error, KafkaConnectionError | KafkaTimeoutError):
            call.fail(error)
        elif call.deadline <= now:
            call.fail(self._timeout(call))
        else:
            self._waiting.append(call)
            self._alarm.set(now)  # not at once: other calls of the same connection may fail, too

    def _connect(self, now: float) -> float:
        """Connect to one more broker if none is being connected for less than the delay; return when to try again."""
        channels = [self._channels.get(node) for node in self._channels.addresses]
        newest = max((channel.connecting_since for channel in channels if channel.connecting), default=-inf)
        if now < newest + ATTEMPT_DELAY_S:
            return newest + ATTEMPT_DELAY_S
        nodes = self._candidates(now)
        if nodes:
            self._channels.get(nodes[self._randrange(len(nodes))]).connect()
            return now + ATTEMPT_DELAY_S
        return min((channel.blocked_until for channel in channels if not channel.connecting), default=inf)

    def _candidates(self, now: float) -> list[int]:
        """Return the brokers that may be connected now, else the bootstrap addresses."""
        free = [
            node
            for node in self._channels.addresses
            if not (channel := self._channels.get(node)).connecting and channel.blocked_until <= now
        ]
        fewest = min((self._channels.get(node).failures for node in free), default=0)
        known = [node for node in free if node >= 0 and self._channels.get(node).failures == fewest]
        return known or [node for node in free if self._channels.get(node).failures == fewest]

    def _fail_rejected(self) -> None:
        """Fail all calls if authentication has failed and no broker is connected, or being connected."""
        channels = [self._channels.get(node) for node in self._channels.addresses]
        if any(channel.connecting or channel.connection is not None for channel in channels):
            return
        errors = (channel.last_error for channel in channels)
        rejection = next((error for error in errors if isinstance(error, AuthenticationError)), None)
        if rejection is not None:
            waiting, self._waiting = self._waiting, deque()
            call_each(lambda call: call.fail(rejection), waiting)

    def _fail_unreachable(self) -> None:
        """Fail the calls that do not wait for a broker, if every address has failed."""
        channels = [self._channels.get(node) for node in self._channels.addresses]
        if any(channel.connecting or not channel.failures for channel in channels):
            return
        hasty = [call for call in self._waiting if call.fail_fast]
        self._waiting = deque(call for call in self._waiting if not call.fail_fast)
        call_each(lambda call: call.fail(self._reasons()), hasty)

    def unreachable(self) -> KafkaError | None:
        """Return why no broker is connected; None = one is, or none has failed."""
        channels = list(self._channels.data_channels())
        failed = any(channel.last_error is not None for channel in channels)
        return self._reasons() if failed and not any(channel.connection is not None for channel in channels) else None

    def _reasons(self) -> KafkaError:
        errors = [channel.last_error for channel in self._channels.data_channels() if channel.last_error is not None]
        if len(errors) == 1:
            return errors[0]
        return KafkaConnectionError("no broker is reachable: " + "; ".join(dict.fromkeys(map(str, errors))))

    def close(self, error: KafkaError) -> None:
        """Fail what waits, and all later requests."""
        self._closed_by = error
        self._alarm.cancel()
        waiting, self._waiting = self._waiting, deque()
        call_each(lambda call: call.fail(error), waiting)
