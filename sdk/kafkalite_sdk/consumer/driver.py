"""Runs the machines of a consumer on its event loop: sends their requests, reports the responses, waits.

Invariants:
1. There is no task, and no thread but that of `Decompression`. Waiting is one future and one timer.
2. Requests for records leave inside `poll` only, unless `fetch_between_polls` was called. All others also leave between
   polls, by the timer or after a response: heartbeats, commits and their retries, lookups of offsets.
3. A response is applied when it arrives; requests that follow from it leave in the next loop iteration.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from kafkalite.errors import AuthenticationError, KafkaError
from kafkalite.model import TopicPartition
from kafkalite.protocol.schema import Request, Response
from kafkalite_sdk._speedups.consumer_records import Record
from kafkalite_sdk.client.alarm import Alarm
from kafkalite_sdk.client.arguments import check_seconds
from kafkalite_sdk.client.closing import Closing
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.cluster_view import MetadataChanges
from kafkalite_sdk.consumer.fetch.decompression import Decompression
from kafkalite_sdk.consumer.fetch.fetcher import Fetcher
from kafkalite_sdk.consumer.iteration import Iteration
from kafkalite_sdk.consumer.missing_topics import MissingTopics
from kafkalite_sdk.consumer.offsets.leader_lookups import EpochLookups, LeaderLookups, OffsetLookups
from kafkalite_sdk.consumer.offsets.offset_reset import Loss, ResetPolicy, replacement
from kafkalite_sdk.consumer.offsets.offset_resolver import OffsetResolver
from kafkalite_sdk.consumer.offsets.positions import Positions
from kafkalite_sdk.consumer.settings import ConsumerSettings
from kafkalite_sdk.values import OffsetAndMetadata

if TYPE_CHECKING:
    from kafkalite_sdk.consumer.group_requests import GroupRequests

K = TypeVar("K")
V = TypeVar("V")

WAKE_S_MIN = 0.001
"""A machine that asks to be called at once, without effect, costs one call per millisecond at most."""


class Call(Protocol):
    """A request of a machine."""

    @property
    def request(self) -> Request: ...
    @property
    def version_max(self) -> int | None: ...


class Machine(Protocol):
    """A machine that receives the ends of its calls; each machine gets its own calls back."""

    def answered(self, call: Any, response: Any, now: float) -> None: ...
    def lost(self, call: Any, error: KafkaError, now: float) -> None: ...


class ReturnedRecords(Protocol[K, V]):
    """The streams of a consumer, as far as its other parts know them; see `kafkalite_sdk.consumer.streams.streams`."""

    def bounds(self) -> dict[TopicPartition, Record[K, V]]: ...
    def resumed(self) -> None: ...
    def lost(self, partitions: Collection[TopicPartition], /) -> None: ...
    async def release(
        self, partitions: Collection[TopicPartition], began: float, deadline: float | None, /
    ) -> None: ...
    def suspend(self, deadline: float, /) -> AbstractAsyncContextManager[None]: ...


def ignore(_: object) -> None:
    """Receive the outcome of a request whose outcome does not matter."""


class Driver(Generic[K, V]):
    """The machines of one consumer, and its event loop.

    Arguments:
        settings: of the consumer.
        fetcher: of the records.
        client, positions: as the fetcher knows them.

    Attributes:
        iteration: records that `async for` has taken.
        offsets: lookups of offsets, also for the application.
        resolver: gives partitions their positions.
        group: the requests to the coordinator, None = the consumer has no group.
        iterated: the last record of `async for`, or what else the application has received without a poll.
        unhandled: with automatic commits, the records of the last poll.
        columns_start: where the records of the last poll of columns begin. The application has handled them, and
            `unhandled`, when it calls `poll` again.
        attention: the next record of `async for` must come from `poll`: it has more to do.
        attention_at: time at which that is so in any case, on the loop's clock.
        on_drop: called with partitions whose positions have changed.
        streams: return the records to several tasks, None = `poll` returns them.
        on_attention: called whenever `work` finds that the group needs a poll; None = nothing.
        closing: the close of the consumer.
        closed: its connections end.
        released: partitions that were revoked and whose records are kept until the next assignment.
        awaits_topics: partitions will be assigned by the caller when their topics exist: `poll` waits for them.
        missing: topics that the cluster does not have.
    """

    closed = False
    _loop: asyncio.AbstractEventLoop

    def __init__(
        self, settings: ConsumerSettings, client: ClusterClient, positions: Positions, fetcher: Fetcher[K, V]
    ) -> None:
        self.settings = settings
        self.client = client
        self.positions = positions
        self.fetcher = fetcher
        self.iteration: Iteration[K, V] = Iteration()
        self.closing: Closing[None] = Closing(client.owner, "Consumer")
        self._decompression = Decompression(fetcher, self.changed, client.owner.guard)
        backoff_s = settings.client.retry_backoff_s
        self.offsets = OffsetLookups(client.view, backoff_s, settings.isolation_level)
        self._epochs = EpochLookups(client.view, backoff_s)
        self.missing = MissingTopics(client.view, self._name())
        self.group = self._group_requests()
        committed = None if self.group is None else self.group.committed
        self.resolver = OffsetResolver(positions, client.view, self.offsets, self._epochs, committed, self.drop_fetched)
        self.released: frozenset[TopicPartition] = frozenset()
        self.awaits_topics = False
        self.iterated: object = None
        self._counted: object = None  # what `iterated` was at the last `work`
        self.unhandled: Collection[Record[K, V]] = ()
        self.columns_start: dict[TopicPartition, OffsetAndMetadata] = {}
        self._withheld: dict[TopicPartition, Record[K, V] | OffsetAndMetadata] = {}
        self.attention = False
        self.attention_at = inf
        self.streams: ReturnedRecords[K, V] | None = None
        self.on_drop: list[Callable[[set[TopicPartition]], object]] = []
        self.on_attention: Callable[[], object] | None = None
        self._alarm: Alarm | None = None
        self._waiters: dict[asyncio.Future[None], None] = {}  # in the order of their calls
        self._scheduled = False
        self._blocked_until = inf
        self._temporary_topics: dict[str, int] = {}
        client.on_metadata.append(client.owner.guard(self._metadata_changed))
        client.owner.on_failure.append(lambda _: self._wake())
        client.on_rejected.append(self._rejected)

    def _name(self) -> str:
        settings = self.settings
        return "a consumer" if settings.group is None else f"a consumer of group {settings.group.group_id}"

    def _group_requests(self) -> "GroupRequests | None":
        if self.settings.group is None:
            return None
        from kafkalite_sdk.consumer.group_requests import GroupRequests  # a third of the SDK: without a group unused

        return GroupRequests(self.settings.group, self.client, self.now, self.changed)

    def __str__(self) -> str:
        """Return the consumer as text for people, without secrets."""
        group = "" if self.group is None else f", group {self.group.group}"
        partitions = f"{len(self.assignment())} partitions"
        state = "closed" if self.closed else partitions if self.started else "not started"
        return f"<Consumer of {self.client.settings.servers_text()}{group}, {state}>"

    async def start(self, timeout_s: float | None) -> None:
        """Connect; see `ClusterClient.start`."""
        if timeout_s is not None:
            check_seconds("timeout", timeout_s)
        self._loop = asyncio.get_running_loop()
        await self.client.start(timeout_s)
        self._alarm = Alarm(self._loop, self._ring, self.client.owner.fail)

    async def close(self, timeout_s: float) -> None:
        """End the connections and the timer; those that wait continue and find the client closed."""
        self.closed = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
            self._decompression.close()
            self._end_fetch_sessions()
        try:
            await self.client.close(timeout_s)
        finally:
            if self.group is not None:
                self.group.close()
            self._wake()

    def _end_fetch_sessions(self) -> None:
        """Ask the brokers to forget the fetch sessions; the connections end without waiting for the responses."""
        for call in self.fetcher.final_calls():
            if self.client.is_connected(call.node):
                self.client.submit(call.node, call.request, ignore, ignore)

    @property
    def started(self) -> bool:
        """Whether the consumer is open."""
        return self._alarm is not None

    @property
    def reads(self) -> bool:
        """Whether the application has subscribed or assigned anything."""
        subscribed = self.group is not None and self.group.subscribed
        return bool(self.positions.states) or subscribed or self.awaits_topics

    def check_not_closed(self) -> None:
        """Raise ClientUseError if the consumer was closed."""
        if self.closed:
            self.client.check_owner()

    def now(self) -> float:
        """Time of the loop's clock in seconds."""
        return self._loop.time()

    # work

    def work(self, *, fetch: bool = False) -> None:
        """Send every request that is due, and set the timer for the next ones.

        Arguments:
            fetch: also those for records.
        """
        if self._alarm is None:
            return
        now = self.now()
        self._blocked_until = inf
        wake_at = self._watch_iteration(now)
        usable = partial(self._usable, now)
        self.resolver.advance(self.client.environment.now_ms())
        wake_at = min(wake_at, self._send_lookups(now, usable))
        if self.group is not None:
            wake_at = min(wake_at, self.group.work(now))
            self._watch_group()  # a change that this work has begun must not wait for the next heartbeat
        if fetch:
            wake_at = min(wake_at, self._send_fetches(now, usable))
        self._alarm.set(max(min(wake_at, self._blocked_until), now + WAKE_S_MIN))

    def _watch_iteration(self, now: float) -> float:
        """Count records of `async for` as polls, and have it poll when there is more to do; return the next time."""
        if self.group is not None:
            if self.iterated is not self._counted:
                self.group.membership.poll(now)
            self.attention = False
            self._watch_group()
        self._counted = self.iterated
        self.attention |= self.attention_at <= now
        return inf if self.attention else self.attention_at

    def _watch_group(self) -> None:
        if self.group is not None and self.group.needs_poll:
            self.attention = True
            if self.on_attention is not None:
                self.on_attention()

    def _usable(self, now: float, node: int) -> bool:
        blocked_until = self.client.blocked_until(node)
        if blocked_until <= now:
            return True
        self._blocked_until = min(self._blocked_until, blocked_until)
        return False

    def _send_lookups(self, now: float, usable: partial[bool]) -> float:
        wake_at = inf
        machines: tuple[LeaderLookups[Any, Any, Any], ...] = self.offsets, self._epochs
        for machine in machines:
            for call in machine.requests(now, usable):
                self._send(machine, call.node, call)
            if machine.stale_topics:
                self._refresh(machine.stale_topics)
            wake_at = min(wake_at, machine.wake_at(now))
        return wake_at

    def _send_fetches(self, now: float, usable: partial[bool]) -> float:
        self._decompression.start_jobs(self._loop)
        for call in self.fetcher.requests(now, usable):
            self._send(self.fetcher, call.node, call)
        if self.fetcher.stale_topics:
            self._refresh(self.fetcher.stale_topics)
        return self.fetcher.wake_at()

    def _refresh(self, stale_topics: set[str]) -> None:
        self.client.refresh_metadata(sorted(stale_topics))
        stale_topics.clear()

    def _send(self, machine: Machine, node: int, call: Call) -> None:
        def answered(response: Response) -> None:
            machine.answered(call, response, self.now())
            if machine is self.fetcher and self._waiters:
                self.work(fetch=True)  # the broker reads the next records while the poll that waits decodes these
            self.changed()

        def lost(error: KafkaError) -> None:
            machine.lost(call, error, self.now())
            self.changed()

        guard = self.client.owner.guard
        try:
            self.client.submit(node, call.request, guard(answered), guard(lost), version_max=call.version_max)
        except Exception as error:
            self.client.owner.fail(error)  # the machine would wait for the end of the call
            raise

    def _metadata_changed(self, changes: MetadataChanges) -> None:
        self._reset_recreated(changes.recreated)
        self.missing.update(self._read_topics(), self.now())
        self.resolver.metadata_changed()
        self.fetcher.metadata_changed()
        if self.group is not None:
            self.group.metadata_changed()
        self.changed()

    def _rejected(self, error: AuthenticationError) -> None:
        """No broker accepts the credentials: `poll` raises the error."""
        self.fetcher.fail(error)
        self.changed()

    def _reset_recreated(self, topics: Collection[str]) -> None:
        """Topics were deleted and created again: positions of the former logs mean nothing in the new ones.

        Without a reset policy they stay, and the broker's response to the next fetch is an error of `poll`.
        """
        found = replacement(self.positions.policy, Loss.RECREATED)
        if not isinstance(found, ResetPolicy):
            return
        for each, state in self.positions.states.items():
            if each.topic in topics and state.position >= 0:
                self.drop_fetched([each])
                self.positions.begin_reset(state, found)

    # waiting

    def changed(self) -> None:
        """Something has arrived: continue those that wait, or else send what follows from it."""
        if self._waiters:
            self._wake()
        elif not self._scheduled and self._alarm is not None:
            self._scheduled = True
            self._loop.call_soon(self.client.owner.guard(self._continue))

    def _continue(self) -> None:
        self._scheduled = False
        self._work_between_polls()

    def _ring(self) -> None:
        if self._waiters:
            self._wake()
        else:
            self._work_between_polls()

    def _work_between_polls(self) -> None:
        self.work(fetch=self.settings.fetches_between_polls and not self.fetcher.has_records)

    def fetch_between_polls(self) -> None:
        """From now on keep a request for records open at each broker between polls, while no fetched record waits."""
        if not self.settings.fetches_between_polls:
            self.settings = self.settings._replace(fetches_between_polls=True)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, deadline: float) -> None:
        """Wait until something has changed, at most until `deadline` in seconds of the loop's clock.

        Raises: ClientUseError if the consumer was closed meanwhile.
        """
        self.client.check_owner()
        assert self._alarm is not None
        if deadline < inf:
            self._alarm.set(deadline)
        waiter = self._loop.create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        except asyncio.CancelledError:
            self._loop.call_soon(self.changed)  # what has woken this wait may still need requests
            raise
        finally:
            del self._waiters[waiter]
        self.client.check_owner()

    @staticmethod
    def limit(deadline: float | None) -> asyncio.Timeout:
        """A block that is cancelled at `deadline`, in seconds of the loop's clock; None = never."""
        return asyncio.timeout_at(deadline)

    # the assignment

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        return frozenset(each for each, state in self.positions.states.items() if not state.revoking)

    def drop_fetched(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget fetched records of partitions: their positions have changed."""
        dropped = set(partitions)
        self.fetcher.drop(dropped)
        self.iteration.drop(dropped)
        for drop in self.on_drop:
            drop(dropped)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Replace the partitions that are read; those in both assignments keep their positions and records."""
        _, removed = self.positions.assign(partitions)
        if removed:
            self.drop_fetched(removed)
        self.use_topics()

    def use_topics(self) -> None:
        """Keep the metadata of exactly those topics current that are needed."""
        needed = self._read_topics() | self._temporary_topics.keys()
        if self.group is not None:
            needed |= self.group.membership.topics
        view = self.client.view
        unused = (view.topics.keys() | view.errors.keys()) - needed
        if unused:
            self.client.drop_topics(sorted(unused))
        self.client.use_topics(sorted(needed))

    def _read_topics(self) -> set[str]:
        """The topics of the assignment and of the subscription."""
        assigned = {each.topic for each in self.positions.states}
        return assigned if self.group is None else assigned | self.group.membership.wanted_topics

    def use_temporarily(self, topics: Collection[str]) -> None:
        """Keep the metadata of topics current until `end_use` is called for them."""
        for topic in topics:
            self._temporary_topics[topic] = self._temporary_topics.get(topic, 0) + 1
        self.client.use_topics(topics)

    def end_use(self, topics: Collection[str]) -> None:
        """A temporary use of topics has ended."""
        for topic in topics:
            self._temporary_topics[topic] -= 1
            if not self._temporary_topics[topic]:
                del self._temporary_topics[topic]
        self.use_topics()

    def consumed_offsets(self, *, released: bool = False) -> dict[TopicPartition, OffsetAndMetadata]:
        """For each partition the offset behind the last record that the application has received.

        Arguments:
            released: partitions that were revoked and whose records are kept, too; they must not be committed.
        """
        first = self.iteration.first()
        if self.streams is not None:
            first |= self.streams.bounds()
        consumed = {}
        for each, state in self.positions.states.items():
            if each in self.released and not released:
                continue
            if (record := first.get(each)) is not None:
                consumed[each] = OffsetAndMetadata(record.offset, "", record.leader_epoch)
            elif state.position >= 0:
                consumed[each] = OffsetAndMetadata(state.position, "", state.leader_epoch)
        for each, found in self._withheld.items():
            if each in consumed and found.offset < consumed[each].offset:
                consumed[each] = OffsetAndMetadata(found.offset, "", found.leader_epoch)
        return consumed

    def handled(self) -> None:
        """The application has handled what it has received."""
        self.unhandled, self.columns_start = (), {}
        self.iterated = self._counted = None

    def withhold(self) -> None:
        """A cancellation ends the application: what it still handles is not committed."""
        if self.streams is not None:
            return  # they know what is complete
        if isinstance(self.iterated, Record):  # received after what `unhandled` has
            self._withheld = {TopicPartition(self.iterated.topic, self.iterated.partition): self.iterated}
            return
        self._withheld = {TopicPartition(each.topic, each.partition): each for each in reversed([*self.unhandled])}
        if self.settings.auto_commit_interval_s is not None:
            self._withheld |= self.columns_start


Limit: TypeAlias = asyncio.Timeout
"""The result of `Driver.limit`."""

AnyDriver: TypeAlias = Driver[Any, Any]
"""The driver of a consumer of any types."""
