"""One connection to a broker, opened when a request needs it and again after it was lost.

Invariants:
1. Requests leave in the order of `submit`, also those that wait for the connection.
2. Each request ends exactly once: `answer(response)` or `fail(error)`, at its deadline at the latest.
3. A task exists only while the channel connects.
4. After a failure the channel connects again when the back-off has passed, not before.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from math import inf

from kafkalite.backoff import Backoff
from kafkalite.callbacks import call_all, call_each
from kafkalite.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from kafkalite.net.client.connection import ClientConnection
from kafkalite.net.client.core import Answer, Fail
from kafkalite.protocol.schema import Request
from kafkalite_sdk.client.alarm import Alarm


class Submission:
    """A request that waits for its connection.

    Arguments:
        request: the message; None = `answer` receives the versions that the broker serves, once it is connected.
        answer, fail: exactly one of both is called, once.
        deadline: in seconds of the loop's clock.
        version_max: highest version to use; None = any.
        one_way: the broker sends no response (Produce with acks=0); `answer(None)` once it is written.
    """

    __slots__ = ("answer", "deadline", "fail", "one_way", "request", "version_max")

    def __init__(
        self,
        request: Request | None,
        answer: Answer,
        fail: Fail,
        deadline: float,
        version_max: int | None = None,
        *,
        one_way: bool = False,
    ) -> None:
        self.request = request
        self.answer = answer
        self.fail = fail
        self.deadline = deadline
        self.version_max = version_max
        self.one_way = one_way


class Channel:
    """A connection to one broker.

    Arguments:
        open_connection: creates the connection; receives the function that is called when it ends.
        name: of the broker in error texts.
        loop: the event loop.
        backoff: pause between attempts to connect.
        changed: called with the channel when it has connected, has failed to, or has lost requests.
        failed: called with an unexpected exception of a timer or a callback.

    Attributes:
        name: of the broker in error texts.
        blocked_until: no attempt to connect before this time of the loop's clock.
        failures: failed attempts in a row; a connection that was lost before the first response counts, too.
        last_error: of the last attempt; None after a successful one.
        used_at: time of the last request.
        connecting_since: begin of the attempt that is open; infinity = none.
    """

    def __init__(
        self,
        open_connection: Callable[[Callable[[KafkaError], object]], ClientConnection],
        name: str,
        loop: asyncio.AbstractEventLoop,
        backoff: Backoff,
        changed: "Callable[[Channel], object]",
        failed: Callable[[Exception], object],
    ) -> None:
        self.blocked_until = -inf
        self.failures = 0
        self.last_error: KafkaError | None = None
        self.used_at = loop.time()
        self.connecting_since = inf
        self.name = name
        self._open_connection = open_connection
        self._loop = loop
        self._backoff = backoff
        self._changed = changed
        self._queue: deque[Submission] = deque()
        self._connection: ClientConnection | None = None
        self._responses = 0  # of the negotiation; more of them show that the broker works
        self._worked = False
        self._task: asyncio.Task[ClientConnection] | None = None
        self._report = failed
        self._alarm = Alarm(loop, self._wake, failed)
        self._closed_by: KafkaError | None = None

    @property
    def connection(self) -> ClientConnection | None:
        """The connection that accepts calls, or None."""
        connection = self._connection
        return None if connection is None or connection.failure is not None else connection

    @property
    def worked(self) -> bool:
        """Whether a connection has had responses beyond those of the negotiation."""
        connection = self._connection
        return self._worked or (connection is not None and connection.responses > self._responses)

    @property
    def open_calls(self) -> int:
        """Number of requests that are not answered, waiting ones included."""
        return len(self._queue) + (0 if self._connection is None else self._connection.open_calls)

    @property
    def ended(self) -> bool:
        """Whether neither a connection nor an attempt to connect is left."""
        return self._task is None and (self._connection is None or self._connection.closed)

    @property
    def connecting(self) -> bool:
        """Whether an attempt to connect is open."""
        return self._task is not None

    def submit(self, submission: Submission) -> None:
        """Send a request, as soon as the channel is connected. Errors go to its `fail`."""
        if self._closed_by is not None:
            submission.fail(self._closed_by)
            return
        self.used_at = self._loop.time()
        if self.connection is not None and not self._queue:
            self._send(submission)
            return
        self._queue.append(submission)
        self._alarm.set(submission.deadline)
        self.connect()

    def submit_now(
        self, request: Request, answer: Answer, fail: Fail, now: float, deadline: float, version_max: int | None
    ) -> bool:
        """Write a request at once if the channel is connected. Errors go to `fail`.

        Arguments:
            request, answer, fail, deadline, version_max: as in `Submission`.
            now: in seconds of the loop's clock.

        Returns:
            Whether the channel is connected; if not, nothing is done.
        """
        connection = self._connection
        if connection is None or self._queue or self._closed_by is not None:
            return False
        self.used_at = now
        try:
            return connection.submit_now(request, answer, fail, deadline, version_max)
        except KafkaError as error:  # an unsupported version, or a value that does not fit
            failure = error
        fail(failure)
        return True

    def connect(self) -> None:
        """Connect, unless the channel is connected or connecting; during the back-off, at its end."""
        if self.connection is not None or self._task is not None or self._closed_by is not None:
            return
        now = self._loop.time()
        if now < self.blocked_until:
            self._alarm.set(self.blocked_until)
            return
        self.connecting_since = now
        self._connection = None
        self._task = self._loop.create_task(self._open(), name=f"kafkalite: connect to {self.name}")
        self._task.add_done_callback(self._opened)

    async def _open(self) -> ClientConnection:
        connection: ClientConnection | None = None

        def lost(error: KafkaError) -> None:
            if connection is not None:
                self._lost(connection, error)

        connection = self._open_connection(lost)
        await connection.connect()
        return connection

    def _opened(self, task: asyncio.Task[ClientConnection]) -> None:
        self._task, self.connecting_since = None, inf
        if self._closed_by is not None:
            if not task.cancelled() and task.exception() is None:
                task.result().abort(self._closed_by)
            return
        error = KafkaConnectionError(f"{self.name}: connecting was cancelled") if task.cancelled() else task.exception()
        if error is None:
            error = task.result().failure  # the connection has ended before this call
        if error is None:
            self._connection, self.last_error = task.result(), None
            self._responses = self._connection.responses
            end = self._send_queue
        else:
            end = partial(self._failed, _as_kafka_error(self.name, error))
        try:
            call_all(end, lambda: self._changed(self))
        except Exception as failure:
            self._report(failure)

    def _failed(self, error: KafkaError) -> None:
        self.last_error = error
        self._block()
        queue, self._queue = self._queue, deque()
        call_each(lambda each: each.fail(error), queue)

    def _lost(self, connection: ClientConnection, error: KafkaError) -> None:
        """The connection has ended; its open calls fail afterwards. An idle connection may be opened again at once."""
        if self._connection is not connection:
            return
        self._connection = None
        if connection.responses > self._responses:
            self.failures = 0
            self._worked = True
        if connection.open_calls:
            self.last_error = error
            self._block()
            self._changed(self)

    def _block(self) -> None:
        self.failures += 1
        self.blocked_until = self._loop.time() + self._backoff.delay_s(self.failures)

    def _send_queue(self) -> None:
        self._alarm.cancel()
        call_each(self._send, self._take_queue())
        self._wait()

    def _wait(self) -> None:
        """Let the requests that wait have a connection, or fail at their deadlines."""
        if self._queue:
            self._alarm.set(min(each.deadline for each in self._queue))
            self.connect()

    def _take_queue(self) -> Iterator[Submission]:
        """Take the waiting requests one by one: requests that their callbacks submit stay behind them."""
        while self._queue and self.connection is not None:
            yield self._queue.popleft()

    def _send(self, submission: Submission) -> None:
        connection = self.connection
        assert connection is not None, "the caller has checked"
        now = self._loop.time()
        if submission.deadline <= now:
            submission.fail(self._late(submission))
            return
        request, answer, fail = submission.request, submission.answer, submission.fail
        timeout_s, version_max = submission.deadline - now, submission.version_max
        try:
            if request is None:
                answer(connection.api_versions)
            elif submission.one_way:
                connection.send(request, partial(answer, None), fail, timeout_s=timeout_s, version_max=version_max)
            else:
                connection.submit(request, answer, fail, timeout_s=timeout_s, version_max=version_max)
        except KafkaError as error:  # an unsupported version, or a value that does not fit
            failure = error
        else:
            return
        submission.fail(failure)

    def _late(self, submission: Submission) -> KafkaTimeoutError:
        reason = f": {self.last_error}" if self.last_error is not None else ""
        return KafkaTimeoutError(f"{self.name}: not connected in time{reason}")

    def _wake(self) -> None:
        """Fail the waiting requests whose deadlines have passed; connect if the back-off has passed."""
        now = self._loop.time()
        late = [each for each in self._queue if each.deadline <= now]
        self._queue = deque(each for each in self._queue if each.deadline > now)
        self._wait()
        call_each(lambda each: each.fail(self._late(each)), late)

    def begin_close(self, error: KafkaError) -> None:
        """Begin to end the connection. Waiting requests fail with `error` at once, later ones too."""
        self._closed_by = error
        self._alarm.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._connection is not None:
            self._connection.begin_close(error)
        queue, self._queue = self._queue, deque()
        call_each(lambda each: each.fail(error), queue)

    async def wait_closed(self) -> None:
        """Wait until the connection and the attempt to connect have ended, after `begin_close`."""
        if self._task is not None:
            await asyncio.wait((self._task,))
        if self._connection is not None:
            await self._connection.wait_closed()

    def abort(self, error: KafkaError) -> None:
        """End the connection without writing requests that are queued."""
        self.begin_close(error)
        if self._connection is not None:
            self._connection.abort(error)


def _as_kafka_error(name: str, error: BaseException) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    failure = KafkaConnectionError(f"{name}: connecting failed: {error!r}")
    failure.__cause__ = error
    return failure
