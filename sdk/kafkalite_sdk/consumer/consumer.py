"""The consumer of the SDK: reads records of topics, alone or in a group.

One task polls. There are no other tasks and no threads: `poll` runs the network work, prefetching included, and between
polls one timer of the event loop sends heartbeats. A handler may await for a long time, up to `max_poll_interval_ms`,
and stays in its group.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Generic, Protocol, Self, Unpack

from kafkalite.errors import ClientUseError, KafkaError
from kafkalite.model import TopicPartition
from kafkalite_sdk._speedups.consumer_records import Record, RecordDecoder
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.consumer.assignment_changes import AssignmentChanges
from kafkalite_sdk.consumer.auto_commit import AutoCommit
from kafkalite_sdk.consumer.decompression import OFFLOAD_BYTES
from kafkalite_sdk.consumer.driver import Driver
from kafkalite_sdk.consumer.fetcher import Fetcher
from kafkalite_sdk.consumer.health import ConsumerHealth, health_of, lag_of
from kafkalite_sdk.consumer.listeners import RebalanceListener
from kafkalite_sdk.consumer.offset_and_metadata import OffsetAndMetadata, OffsetAndTimestamp
from kafkalite_sdk.consumer.poll_loop import PollLoop
from kafkalite_sdk.consumer.positions import PartitionState, Positions
from kafkalite_sdk.consumer.queries import Queries
from kafkalite_sdk.consumer.reset_policy import EARLIEST, EARLIEST_TIMESTAMP, LATEST, LATEST_TIMESTAMP, ResetPolicy
from kafkalite_sdk.consumer.settings import ConsumerOptions, check_deserializer, consumer_settings
from kafkalite_sdk.consumer.subscriptions import Subscriptions

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
    T = TypeVar("T", covariant=True)
else:
    from typing import TypeVar

    K, V, T = TypeVar("K"), TypeVar("V"), TypeVar("T", covariant=True)

Headers = tuple[tuple[str, bytes | None], ...]
Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]
CLOSE_TIMEOUT_S = 30.0


class Deserializer(Protocol[T]):
    """Turns the bytes of keys or values into objects."""

    def deserialize(self, topic: str, headers: Headers, data: bytes, /) -> T:
        """Return the object. Null keys and values are not passed."""


class Consumer(Generic[K, V]):
    """A consumer of records, an async context manager and an async iterator of `Record[K, V]`.

    Leaving `async with` closes the consumer. After an exception it does not commit: what the last poll has returned is
    returned again to the next consumer.

    Arguments:
        bootstrap_servers: `host:port` of brokers, separated by commas or as a list.
        key_deserializer, value_deserializer: a function of the bytes, or a `Deserializer`; None = bytes.
        environment: connections and randomness; another one in simulations.
        options: see `ConsumerOptions`.

    Raises:
        TypeError, ValueError: an argument is not valid.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        key_deserializer: Callable[[bytes], K] | Deserializer[K] | None = None,
        value_deserializer: Callable[[bytes], V] | Deserializer[V] | None = None,
        environment: Environment | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        settings = consumer_settings(bootstrap_servers, options)
        check_deserializer(key_deserializer, "key_deserializer")
        check_deserializer(value_deserializer, "value_deserializer")
        client = ClusterClient(settings.client, environment, name="Consumer")
        positions = Positions(settings.policy)
        decoder: RecordDecoder[K, V] = RecordDecoder(
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            read_committed=bool(settings.isolation_level),
            check_crcs=options.get("check_crcs", True),
            offload_bytes=OFFLOAD_BYTES,
        )
        fetcher: Fetcher[K, V] = Fetcher(settings.fetch, decoder, positions, client.view)
        driver: Driver[K, V] = Driver(settings, client, positions, fetcher)
        self._driver = driver
        auto_commit = changes = None
        if driver.group is not None:
            if settings.auto_commit_interval_s is not None:
                auto_commit = AutoCommit(driver, driver.group, settings.auto_commit_interval_s)
            changes = AssignmentChanges(driver, driver.group, auto_commit)
        self._queries = Queries(driver)
        self._loop = PollLoop(driver, changes, auto_commit)
        self._subscriptions = Subscriptions(driver, changes, auto_commit)
        self._iteration = driver.iteration.records

    # start and close

    async def start(self, timeout: float | None = None) -> None:
        """Connect to the cluster; `async with` does it.

        Arguments:
            timeout: in seconds, None = `default_api_timeout_ms`.

        Raises:
            KafkaConnectionError: no bootstrap server is reachable. KafkaTimeoutError: the timeout has passed.
        """
        await self._driver.start(timeout)
        self._subscriptions.start()

    async def close(self, timeout: float = CLOSE_TIMEOUT_S, *, commit: bool = True) -> None:
        """Release all partitions, leave the group and close the connections. A second call does nothing.

        Arguments:
            timeout: in seconds; the consumer is closed then, also if no broker answers.
            commit: with automatic commits, commit what the last poll has returned.
        """
        await self._subscriptions.close(timeout, commit=commit)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(commit=kind is None)

    # subscription

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | None = None,
        exclude: str | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read topics as a member of the group, in place of those before. The group assigns the partitions.

        It may be called before `start`, as `add_topic` and `assign`.

        Arguments:
            topics: a name, or several.
            pattern: RE2 text that matches whole names, instead of names.
            exclude: RE2 text of topics that the pattern leaves out.
            listener: called when partitions are assigned, revoked or lost.

        Raises:
            ClientUseError: the consumer has no group, or `assign` was called. ValueError: a pattern is not valid.
            TypeError: the listener is not a `RebalanceListener`.
        """
        self._check_error()
        if listener is not None and not isinstance(listener, RebalanceListener):
            raise TypeError(f"listener is {listener!r}, expected an instance of a subclass of RebalanceListener")
        names = [topics] if isinstance(topics, str) else list(topics)
        self._subscriptions.subscribe(names, pattern, exclude, listener)

    def add_topic(self, topic: str, partition: int | None = None) -> None:
        """Read one more topic, or claim one partition that no other member gets (a static claim, kafkalite only).

        Arguments:
            topic: its name.
            partition: None = the group assigns the partitions of the topic.

        Raises:
            ClientUseError: the consumer has no group, or `assign` was called.
        """
        self._check_error()
        self._subscriptions.add_topic(topic, partition)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, in place of those before. The group, if any, is used for commits only.

        Raises:
            ClientUseError: `subscribe` was called.
        """
        self._check_error()
        self._subscriptions.assign(_partitions(partitions))

    async def unsubscribe(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Release all partitions and leave the group; `subscribe` or `assign` may follow.

        Arguments:
            timeout: in seconds, for the commits and the request that leaves the group.
        """
        self._check()
        await self._subscriptions.unsubscribe(timeout)

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that the consumer reads."""
        self._check_owner()
        return self._driver.assignment()

    # records

    async def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Record[K, V]]:
        """Return the next records, in order per partition; wait for the first one.

        Arguments:
            timeout: in seconds, 0 = do not wait; then the list is empty.
            max_records: None = `max_poll_records`.

        Raises:
            KafkaError: of a partition or of the group; it names them and the next step.
            ClientUseError: another task polls, or the consumer is not open. ValueError: `max_records` is less than 1.
        """
        if max_records is None:
            max_records = self._driver.settings.records_max
        elif max_records < 1:
            raise ValueError(f"max_records is {max_records}, expected a number above 0")
        return await self._loop.poll(timeout, max_records)

    def __aiter__(self) -> Self:
        self._check_owner()
        return self

    async def __anext__(self) -> Record[K, V]:
        records, driver = self._iteration, self._driver
        if records and not driver.attention:
            driver.iterated = True
            return records.pop()
        return await self._loop.next()

    # commits

    async def commit(self, what: str | TopicPartition | Offsets | None = None, *, timeout: float | None = None) -> None:
        """Commit offsets and wait until they are committed.

        Arguments:
            what: None = what the application has received, of all partitions; a topic or a partition = of these only;
                a mapping = these offsets, each the offset of the next record to read.
            timeout: in seconds, None = `default_api_timeout_ms`.

        Raises:
            KafkaError: names the partition that was not committed. KafkaTimeoutError: no answer in time.
        """
        self._check()
        await self._queries.commit(self._offsets(what), timeout)

    def commit_nowait(
        self,
        what: str | TopicPartition | Offsets | None = None,
        done: Callable[[KafkaError | None], object] | None = None,
    ) -> None:
        """Commit offsets without waiting.

        Arguments:
            what: as `commit`.
            done: called with None, or with the error; None = an error is ignored, as a later commit covers it.
        """
        self._check()
        self._queries.commit_nowait(self._offsets(what), _ignore if done is None else done)

    def _offsets(self, what: str | TopicPartition | Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets of the argument of `commit`."""
        if isinstance(what, Mapping):
            return {_partition(each): _offset(each, offset) for each, offset in what.items()}
        self._queries.group()
        consumed = self._driver.consumed()
        if what is None:
            return consumed
        if isinstance(what, str):
            return {each: offset for each, offset in consumed.items() if each.topic == what}
        state = self._state(what)
        return {what: consumed[what]} if state.topic_partition in consumed else {}

    async def committed(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of the group; None = none is committed.

        Arguments:
            partitions: None = those that are assigned.
            timeout: in seconds, None = `default_api_timeout_ms`.
        """
        self._check()
        return await self._queries.committed(self._named(partitions), timeout)

    async def rewind(
        self,
        offsets: Mapping[TopicPartition, int] | None = None,
        *,
        timestamps_ms: Mapping[TopicPartition, int] | None = None,
        timeout: float | None = None,
    ) -> dict[TopicPartition, int]:
        """Set committed offsets of the whole group while it runs; its members continue there (kafkalite only).

        Arguments:
            offsets: by partition.
            timestamps_ms: by partition, the first record of this time or later; -2 = the beginning, -1 = the end.
            timeout: in seconds, None = `default_api_timeout_ms`.

        Returns: the offsets that are committed now.
        Raises: UnsupportedVersionError on Apache Kafka.
        """
        self._check()
        targets = {_partition(each): (offset, -1) for each, offset in (offsets or {}).items()}
        targets |= {_partition(each): (-1, timestamp) for each, timestamp in (timestamps_ms or {}).items()}
        return await self._queries.rewind(targets, timeout)

    # positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue at an offset; prefetched records of the partition are dropped.

        Arguments:
            partition: an assigned one.
            offset: of the next record.
        """
        self._check()
        state = self._state(partition)
        target = _offset(partition, offset)
        self._driver.drop_fetched([partition])
        self._driver.positions.seek(state, target.offset, target.leader_epoch)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first record of partitions (none named = all that are assigned)."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue behind the last record of partitions (none named = all that are assigned)."""
        self._reset(partitions, LATEST)

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Continue at the first record of a time or later; without such a record, at the end.

        Arguments:
            timestamp_ms: in ms since 1970.
            partitions: none named = all that are assigned.
        """
        if timestamp_ms < 0:
            raise ValueError(f"timestamp_ms is {timestamp_ms}, expected milliseconds since 1970")
        self._reset(partitions, ResetPolicy(timestamp_ms))

    def _reset(self, partitions: Iterable[TopicPartition], policy: ResetPolicy) -> None:
        self._check()
        driver = self._driver
        states = [self._state(each) for each in partitions or driver.assignment()]
        driver.drop_fetched([state.topic_partition for state in states])
        for state in states:
            driver.positions.begin_reset(state, policy)

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record that the application receives.

        Arguments:
            partition: an assigned one.
            timeout: in seconds, None = `default_api_timeout_ms`.
        """
        self._check()
        self._state(partition)
        return await self._queries.position(partition, timeout)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition.

        Arguments:
            partitions: None = those that are assigned.
            timeout: in seconds, None = `default_api_timeout_ms`.
        """
        return await self._ends(partitions, EARLIEST_TIMESTAMP, timeout)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset behind the last record of each partition (of a committed transaction: `isolation_level`).

        Arguments:
            partitions: None = those that are assigned.
            timeout: in seconds, None = `default_api_timeout_ms`.
        """
        return await self._ends(partitions, LATEST_TIMESTAMP, timeout)

    async def _ends(
        self, partitions: Iterable[TopicPartition] | None, timestamp: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        self._check()
        found = await self._queries.find_offsets(dict.fromkeys(self._named(partitions), timestamp), timeout)
        return {each: result.offset for each, result in found.items()}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of a time or later; None = there is none.

        Arguments:
            timestamps_ms: by partition, in ms since 1970.
            timeout: in seconds, None = `default_api_timeout_ms`.
        """
        self._check()
        for each, timestamp in timestamps_ms.items():
            if timestamp < 0:
                raise ValueError(f"the timestamp of {each} is {timestamp}, expected milliseconds since 1970")
        found = await self._queries.find_offsets({_partition(each): t for each, t in timestamps_ms.items()}, timeout)
        return {each: OffsetAndTimestamp(*result) if result.offset >= 0 else None for each, result in found.items()}

    def lag(self) -> dict[TopicPartition, int | None]:
        """Return the number of records behind each position, as the last responses report it; None = not known yet."""
        self._check_owner()
        return lag_of(self._driver)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of partitions until `resume` (none named = all). Prefetched records are kept."""
        self._check()
        states = [self._state(each) for each in partitions or self._driver.assignment()]
        self._driver.iteration.hold({state.topic_partition for state in states})
        for state in states:
            self._driver.positions.pause(state)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of paused partitions again (none named = all)."""
        self._check()
        states = [self._state(each) for each in partitions or self._driver.assignment()]
        self._driver.iteration.release({state.topic_partition for state in states})
        for state in states:
            self._driver.positions.resume(state)

    def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions that are paused."""
        self._check_owner()
        return frozenset(each for each, state in self._driver.positions.states.items() if state.paused)

    # state

    def health(self) -> ConsumerHealth:
        """Return the assignment, the last poll and heartbeat, the lag, the brokers, and what the consumer waits for."""
        self._check_owner()
        return health_of(self._driver, self._loop.polled_at, polling=self._loop.busy)

    def _check_owner(self) -> None:
        self._driver.client.check_owner()

    def _check(self) -> None:
        """Raise what the application must know before anything else happens."""
        self._check_owner()
        self._check_error()

    def _check_error(self) -> None:
        self._driver.check_not_closed()
        if self._driver.group is not None:
            self._driver.group.raise_error()

    def _state(self, partition: TopicPartition) -> PartitionState:
        state = self._driver.positions.states.get(_partition(partition))
        if state is None or state.revoking:
            raise ClientUseError(f"{partition} is not assigned to this Consumer; see assignment()")
        return state

    def _named(self, partitions: Iterable[TopicPartition] | None) -> list[TopicPartition]:
        if partitions is None:
            return sorted(self._driver.assignment())
        return _partitions(partitions)


def _partitions(values: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Validate partitions; a single one is rejected, because its fields are no partitions."""
    if isinstance(values, TopicPartition):
        raise TypeError(f"{values!r} is a single partition; pass a list: [TopicPartition(topic, number)]")
    return list(map(_partition, values))


def _partition(value: TopicPartition) -> TopicPartition:
    """Validate a partition; a tuple of topic and number is accepted."""
    if (
        not isinstance(value, tuple)
        or len(value) != 2
        or not isinstance(value[0], str)
        or not isinstance(value[1], int)
    ):
        raise TypeError(f"{value!r} is not a partition; pass TopicPartition(topic, number)")
    if value[1] < 0:
        raise ValueError(f"partition {value[1]} of topic {value[0]} is negative")
    return TopicPartition(*value)


def _offset(partition: TopicPartition, value: int | OffsetAndMetadata) -> OffsetAndMetadata:
    offset = OffsetAndMetadata(value) if isinstance(value, int) else value
    if not isinstance(offset, OffsetAndMetadata):
        raise TypeError(f"the offset of {partition} is {value!r}, expected a number or OffsetAndMetadata(offset)")
    if offset.offset < 0:
        raise ValueError(f"offset {offset.offset} of {partition} is negative")
    return offset


def _ignore(_: KafkaError | None) -> None:
    pass
