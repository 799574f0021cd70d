"""Executes what the machine of a consumer decides: calls of the session, fetches, listeners, the offset storage, time.

1. Inputs of the machine are plain calls; its effects are executed at once, in their order.
2. A task exists only while a listener, the offset storage or the start of the clients that fetch is waited for.
3. An exception of a listener, or one that nothing expects, shuts the consumer down, and its streams raise it.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Generic, Protocol

from kafkalite.clock import Outcome
from kafkalite.coordination import tree
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError, SessionExpiredError
from kafkalite.coordination.znodes.consumers import StreamId
from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from kafkalite_sdk.consumer.driver import K, V
from kafkalite_sdk.values import OffsetAndMetadata
from kafkalite_sdk.zk.consumer.broker_clients import BrokerClients
from kafkalite_sdk.zk.consumer.listener import ConsumerRebalanceListener
from kafkalite_sdk.zk.membership import effects
from kafkalite_sdk.zk.membership.errors import ReleaseTimeoutError
from kafkalite_sdk.zk.membership.machine import Membership
from kafkalite_sdk.zk.offsets.storage import OffsetStorage

LOGGER = logging.getLogger("kafkalite_sdk.zk.consumer")


class Sessions(Protocol):
    """The sessions of the consumer; `ClientSessions`."""

    @property
    def current(self) -> Coordination | None: ...


class MemberDriver(Generic[K, V]):
    """The machine of one consumer, on its event loop.

    Arguments:
        machine: of the consumer.
        sessions: with ZooKeeper.
        clients: fetch, and return the records.
        storage: of the offsets.
        listener: of the application.
        wall_ms: returns the milliseconds since 1970.

    Attributes:
        ended: done when the machine has ended.
        assigned: done with the first assignment.
    """

    def __init__(
        self,
        machine: Membership,
        sessions: Sessions,
        clients: BrokerClients[K, V],
        storage: OffsetStorage,
        listener: ConsumerRebalanceListener | None,
        wall_ms: Callable[[], int],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.assigned: asyncio.Future[None] = self._loop.create_future()
        self._machine = machine
        self._sessions = sessions
        self._clients = clients
        self._storage = storage
        self._listener = listener
        self._wall_ms = wall_ms
        self._commits: dict[int, asyncio.Future[None]] = {}  # by ticket
        self._work = _Work(self._loop, self._fail)
        self._error: Exception | None = None

    # Inputs.

    def established(self, session: Coordination) -> None:
        """A session began."""
        self._call(self._machine.established, session.session_id, self._wall_ms())

    def lost(self) -> None:
        """The session is over."""
        self._call(self._machine.lost)

    def suspended(self) -> None:
        """The session has no connection."""
        self._call(self._machine.suspended)

    def resumed(self) -> None:
        """The session has a connection again."""
        self._call(self._machine.resumed)

    def failed(self, error: Exception) -> None:
        """There will be no other session."""
        self._end(error)

    def shut_down(self) -> None:
        """Leave the group; `ended` follows."""
        self._call(self._machine.shut_down)

    def commit(self) -> asyncio.Future[None]:
        """Commit what the streams have returned; the future ends with the commit.

        After the end of the consumer it has the error that has ended it.
        """
        if self.ended.done():
            return self.ended
        future: asyncio.Future[None] = self._loop.create_future()
        ticket = self._machine.commit(self._loop.time())
        self._commits[ticket] = future
        self._execute_all()
        return future

    def _call(self, input: Callable[..., object], *args: object) -> None:
        """Call an input of the machine with the time, and execute what follows from it."""
        if not self.ended.done():
            input(*args, self._loop.time())
            self._execute_all()

    def _execute_all(self) -> None:
        if self._work.executing:
            return  # the caller continues
        self._work.executing = True
        try:
            while found := self._machine.take_effects():
                for each in found:
                    EXECUTORS[type(each)](self, each)
        except Exception as error:
            self._end(error)
            raise
        finally:
            self._work.executing = False
        if not self.ended.done():
            self._work.set_timer(self._machine.deadline, self._expire)

    def _expire(self) -> None:
        self._call(self._machine.expire)

    # The tree.

    def _operate(self, effect: effects.Operation) -> None:
        token, call, session = effect.token, effect.call, self._sessions.current

        def then(outcome: Outcome) -> None:
            self._call(self._machine.completed, token, outcome)

        def fired(_event: tree.WatchEvent) -> None:
            self._call(self._machine.fired, token)

        if session is None:
            then(Outcome(error=SessionExpiredError()))
        elif isinstance(call, effects.Get):
            session.get(call.path, then, fired if call.watch else None)
        elif isinstance(call, effects.Exists):
            session.exists(call.path, then, fired if call.watch else None)
        elif isinstance(call, effects.Children):
            session.children(call.path, then, fired if call.watch else None)
        elif isinstance(call, tree.Create):
            session.create(call.path, call.data, then, ephemeral=call.ephemeral, sequence=call.sequence)
        elif isinstance(call, tree.Set):
            session.set(call.path, call.data, then, call.version)
        elif isinstance(call, tree.Delete):
            session.delete(call.path, then, call.version)
        else:
            session.multi(call, then)

    # Streams.

    def _release(self, effect: effects.Release) -> None:
        positions = self._clients.positions(effect.partitions)
        self._clients.release()
        listener = self._listener

        async def called() -> None:
            if listener is not None:
                await self._listen(listener.before_releasing_partitions(effect.partitions))
            answer()

        def answer() -> None:
            self._call(self._machine.released, effect.token, positions)

        if listener is None:
            answer()
        else:
            self._work.start(called(), on_failure=answer)

    def _fetch(self, effect: effects.Fetch) -> None:
        self._clients.starts = starts = effect.partitions
        listener = self._listener

        async def begin() -> None:
            if listener is not None:
                await self._begin_with(listener, effect.group)
            if starts is self._clients.starts:
                if starts:
                    await self._clients.fetch()
                if not self.assigned.done():
                    self.assigned.set_result(None)

        self._work.start(begin())

    async def _begin_with(self, listener: ConsumerRebalanceListener, group: Mapping[TopicPartition, StreamId]) -> None:
        """Call the listener before fetching; the machine has no deadline for it. Raises ReleaseTimeoutError."""
        settings = self._machine.state.settings
        limit = asyncio.timeout(settings.rebalance_timeout_s)
        try:
            async with limit:
                await self._listen(listener.before_starting_fetchers(settings.consumer_id, group))
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ReleaseTimeoutError("before_starting_fetchers of the listener did not return in time") from error

    @staticmethod
    async def _listen(result: Awaitable[None] | None) -> None:
        if inspect.isawaitable(result):
            await result

    def _read_positions(self, effect: effects.ReadPositions) -> None:
        self._call(self._machine.positions_read, effect.token, self._clients.positions(effect.partitions))

    # Offsets.

    def _commit_offsets(self, effect: effects.CommitOffsets) -> None:
        offsets = {each: OffsetAndMetadata(offset) for each, offset in effect.offsets.items()}

        async def commit() -> None:
            outcome = await _outcome_of(self._storage.commit(offsets))
            self._call(self._machine.committed, effect.token, outcome)

        self._work.start(commit())

    def _read_offsets(self, effect: effects.ReadOffsets) -> None:
        async def read() -> None:
            outcome = await _outcome_of(self._storage.read(effect.partitions))
            if outcome.error is None:
                found = outcome.value.items()
                outcome = Outcome({each: to.offset if isinstance(to, OffsetAndMetadata) else to for each, to in found})
            self._call(self._machine.offsets_read, effect.token, outcome)

        self._work.start(read())

    def _commit_done(self, effect: effects.CommitDone) -> None:
        future = self._commits.pop(effect.ticket, None)
        if future is not None and not future.done():
            if effect.error is None:
                future.set_result(None)
            else:
                future.set_exception(effect.error)

    # The end.

    def _report(self, effect: effects.Problem) -> None:
        LOGGER.warning("group %s: %s", self._machine.state.settings.group, effect.error)

    def _fail(self, error: Exception) -> None:
        """Shut down because of an error of the application, or an unforeseen one."""
        if self._error is None:
            self._error = error
            self.shut_down()

    def _machine_failed(self, effect: effects.Failed) -> None:
        self._end(effect.error)

    def _machine_ended(self, effect: effects.Ended) -> None:
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self.ended.done():
            return
        error = self._error or error
        self._clients.release()
        self._clients.streams.end(error)
        self._work.set_timer(None, self._expire)
        for each in (*self._commits.values(), self.ended, self.assigned):
            if not each.done():
                _finish(each, error)

    async def close(self) -> None:
        """Cancel what still runs; after `ended`."""
        await self._work.close()


def _finish(future: asyncio.Future[None], error: Exception | None) -> None:
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        future.exception()  # the streams raise it, too: the loop need not report it


async def _outcome_of(call: Awaitable[Any]) -> Outcome:
    """Return the outcome of a call of the storage; an error that is not of Kafka or the tree is raised."""
    try:
        return Outcome(await call)
    except (KafkaError, CoordinationError) as error:
        return Outcome(error=error)


EXECUTORS: dict[type, Callable[[MemberDriver[Any, Any], Any], None]] = {
    effects.Operation: MemberDriver._operate,
    effects.Release: MemberDriver._release,
    effects.ReadPositions: MemberDriver._read_positions,
    effects.CommitOffsets: MemberDriver._commit_offsets,
    effects.ReadOffsets: MemberDriver._read_offsets,
    effects.Fetch: MemberDriver._fetch,
    effects.CommitDone: MemberDriver._commit_done,
    effects.Problem: MemberDriver._report,
    effects.Failed: MemberDriver._machine_failed,
    effects.Ended: MemberDriver._machine_ended,
}


class _Work:
    """The tasks and the timer of a driver.

    Arguments:
        loop: runs them.
        failed: called with the exception of a task.

    Attributes:
        executing: effects are being executed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, failed: Callable[[Exception], object]) -> None:
        self.executing = False
        self._loop = loop
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def set_timer(self, at: float | None, callback: Callable[[], object]) -> None:
        """Call a function at a time of the loop's clock, in place of the last timer; None = never."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if at is None else self._loop.call_at(at, callback)

    def start(self, work: Coroutine[Any, Any, None], on_failure: Callable[[], object] | None = None) -> None:
        """Run a task; `on_failure` is called after `failed`."""

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if isinstance(error, Exception):
                self._failed(error)
                if on_failure is not None:
                    on_failure()

        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(done)

    async def close(self) -> None:
        """Cancel all tasks, and wait for their ends."""
        tasks = list(self._tasks)
        for each in tasks:
            each.cancel()
        if tasks:
            await asyncio.wait(tasks)
