"""The consumer of the SDK: reads records of topics, alone or in a group.

One task polls. There are no other tasks and no threads: `poll` runs the network work, prefetching included, and between
polls one timer of the event loop sends heartbeats. A handler may await for a long time, up to `max_poll_interval_ms`,
and stays in its group.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, Literal, Never, Self, Unpack

from kafkalite.errors import ClientUseError, KafkaError
from kafkalite.model import TopicPartition
from kafkalite_sdk._speedups.column_batch import COLUMNS, ColumnBatch
from kafkalite_sdk._speedups.column_builder import ColumnBuilder
from kafkalite_sdk._speedups.consumer_records import Record, by_partition
from kafkalite_sdk.client.arguments import check_seconds, readable
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.consumer.application_calls import check_not_inside
from kafkalite_sdk.consumer.arguments import (
    ignore_error,
    offset_of,
    partition_of,
    partitions_of,
    topics_of,
)
from kafkalite_sdk.consumer.listeners import RebalanceListener
from kafkalite_sdk.consumer.offsets.offset_reset import (
    EARLIEST,
    EARLIEST_TIMESTAMP,
    LATEST,
    LATEST_TIMESTAMP,
    ResetPolicy,
)
from kafkalite_sdk.consumer.parts import ConsumerParts, Deserializer, new_parts
from kafkalite_sdk.consumer.poison import PoisonPolicy
from kafkalite_sdk.consumer.queries import Offsets
from kafkalite_sdk.consumer.settings import ConsumerOptions, consumer_settings
from kafkalite_sdk.values import OffsetAndMetadata, OffsetAndTimestamp

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from kafkalite_sdk.consumer.health import ConsumerHealth
    from kafkalite_sdk.consumer.offsets.positions import PartitionState
    from kafkalite_sdk.consumer.streams.streams import Stream
    from kafkalite_sdk.interceptors.consumer import ConsumerInterceptor
    from kafkalite_sdk.membership.settings import MemberIdentity

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")

ROWS_MAX = 2**31 - 1


class Consumer(Generic[K, V]):
    """A consumer of records, an async context manager and an async iterator of `Record[K, V]`.

    Leaving `async with` closes the consumer. After an exception it does not commit: what the last poll has returned is
    returned again to the next consumer. A cancellation, and what else is no `Exception`, is a regular end: automatic
    commits commit what was handled, that is all that was received before the last call of `poll`, or before the record
    that `async for` has returned last; if the cancellation ends such a call, all that was received.

    Arguments:
        bootstrap_servers: `host:port` of brokers, separated by commas or as a list.
        key_deserializer, value_deserializer: a function of the bytes, or a `Deserializer`; None = bytes.
        interceptors: their methods are called with records and commits.
        on_poison: for records that cannot be deserialized or that an interceptor rejects: "raise" = `poll` raises
            PoisonRecordError, "skip", or a function of record and error, plain or async, such as `DeadLetterTopic`.
            None = keys and values are deserialized when they are read; where that is not possible, as "raise".
        environment: connections and randomness; another one in simulations.
        options: see `help(kafkalite_sdk.ConsumerOptions)`.

    Raises:
        TypeError, ValueError: an argument is not valid.
    """

    @readable("kafkalite_sdk.ConsumerOptions")
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *misplaced: Never,
        key_deserializer: Callable[[bytes], K] | Deserializer[K] | None = None,
        value_deserializer: Callable[[bytes], V] | Deserializer[V] | None = None,
        interceptors: "Sequence[ConsumerInterceptor]" = (),
        on_poison: PoisonPolicy | None = None,
        environment: Environment | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        parts: ConsumerParts[K, V] = new_parts(
            consumer_settings(bootstrap_servers, options, misplaced),
            environment,
            (key_deserializer, value_deserializer),
            interceptors,
            on_poison,
            check_crcs=options.get("check_crcs", True),
        )
        self._driver, self._queries, self._loop, self._subscriptions = parts
        self._iteration = self._driver.iteration.records

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

    async def close(self, timeout: float | None = None, *, commit: bool = True) -> None:
        """Release all partitions, leave the group and close the connections.

        A poll of another task ends with ClientUseError, an iteration ends. A call while another one runs waits for that
        one; a later call does nothing. If a call is cancelled, and no other task waits in `close`, the consumer is
        closed without waiting for open requests.

        Arguments:
            timeout: in seconds; the consumer is closed then, also if no broker answers. None = `close_timeout_ms`. Of a
                call that waits for another one, it is the time of this wait only.
            commit: with automatic commits, commit what the last poll has returned.

        Raises:
            What a listener has raised. KafkaTimeoutError: a listener, or the other call, has not ended in time.
            ClientUseError: a listener calls it, or another function that `poll` or `close` waits for; the consumer is
            still open.
        """
        driver = self._driver
        timeout_s = driver.settings.close_timeout_s if timeout is None else timeout
        check_seconds("timeout", timeout_s)
        if not driver.closing.begun:
            if not driver.started:
                await driver.close(0.0)
                return
            driver.client.owner.check_loop()
        check_not_inside(driver)
        driver.changed()  # the handler of a stream that calls this is not awaited any more
        await driver.closing.run(partial(self._subscriptions.close, timeout_s, commit=commit), timeout_s)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        stopped = kind is not None and not issubclass(kind, Exception)
        if stopped:
            self._driver.withhold()
        await self.close(commit=kind is None or stopped)

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
        self._subscriptions.subscribe(topics_of(topics), pattern, exclude, listener)

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
        self._subscriptions.assign(partitions_of(partitions))

    async def unsubscribe(self, timeout: float | None = None) -> None:
        """Release all partitions and leave the group; `subscribe` or `assign` may follow.

        A poll of another task waits meanwhile, and then reads what was subscribed next; without that it raises
        ClientUseError.

        Arguments:
            timeout: in seconds, for the commits and the request that leaves the group. None = `close_timeout_ms`.
        """
        self._check()
        await self._subscriptions.unsubscribe(self._driver.settings.close_timeout_s if timeout is None else timeout)

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
        return await self._loop.poll(timeout, max_records)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record[K, V]]]:
        """Return the next records by partition; as `poll`, under the names of aiokafka.

        Arguments:
            partitions: whose records are returned; none named = all that are assigned.
            timeout_ms: longest time to wait for the first record, in ms; 0 = do not wait.
            max_records: None = `max_poll_records`.

        Raises: as `poll`.
        """
        check_seconds("timeout_ms", timeout_ms)
        only = frozenset(partitions_of(partitions))
        return by_partition(await self._loop.poll(timeout_ms / 1000, max_records, only))

    async def poll_columns(
        self,
        timeout: float = 1.0,
        max_records: int = ROWS_MAX,
        *,
        max_bytes: int = 8 << 20,
        columns: Iterable[str] = COLUMNS,
        timestamp_unit: Literal["ms", "us"] = "ms",
    ) -> ColumnBatch:
        """Return the next records as columns, which pyarrow, polars and DuckDB read; wait for the first one.

        Positions, commits, rebalances and errors are those of `poll`; keys and values are bytes.

        Arguments:
            timeout: in seconds, 0 = do not wait; then the batch has no records.
            max_records: largest number of records.
            max_bytes: the batch ends with the record that reaches it; at most 1 GiB.
            columns: names of `COLUMNS`, in the order of the batch.
            timestamp_unit: "ms" as Kafka, or "us" as Spark; a record whose time microseconds cannot represent is a
                CorruptRecordError.

        Raises: as `poll`, and ClientUseError if the consumer has interceptors of records.
        """
        builder = ColumnBuilder(columns, rows_max=max_records, bytes_max=max_bytes, timestamp_unit=timestamp_unit)
        await self._loop.poll_columns(timeout, builder)
        return builder.finish()

    async def poll_lines(
        self,
        timeout: float = 1.0,
        max_records: int = ROWS_MAX,
        *,
        max_bytes: int = 8 << 20,
        line_end: bytes = b"\n",
        key_separator: bytes | None = None,
    ) -> ColumnBatch:
        """Return the next records as lines for a file or a pipe: `value_bytes` of the batch has all of them.

        Positions, commits, rebalances and errors are those of `poll`. A null key or value is empty.

        Arguments:
            timeout, max_records, max_bytes: as `poll_columns`.
            line_end: at the end of each line.
            key_separator: a line is the key, the separator and the value; None = the value.

        Raises: as `poll_columns`.
        """
        builder = ColumnBuilder(
            rows_max=max_records, bytes_max=max_bytes, line_end=line_end, key_separator=key_separator
        )
        await self._loop.poll_columns(timeout, builder)
        return builder.finish()

    def __aiter__(self) -> Self:
        self._check_owner()
        return self

    async def __anext__(self) -> Record[K, V]:
        records, driver = self._iteration, self._driver
        if records and not driver.attention:
            driver.iterated = record = records.pop()
            return record
        return await self._loop.next()

    def streams(self, count: int, *, explicit: bool = False, release_timeout: float = 30.0) -> list["Stream[K, V]"]:
        """Return async iterators for so many tasks, in place of `poll`. Each partition belongs to one of them.

        A commit covers the records that are complete; the lowest incomplete record of a partition bounds it. After
        `seek` the records before it count no more, also those that are not complete: commits begin at the new position.

        Arguments:
            count: number of streams.
            explicit: `Stream.complete` completes a record; False = the request for the next one does it, too.
            release_timeout: in seconds, how long a rebalance waits for records of revoked partitions to be completed,
                at most half of `max_poll_interval_ms`.

        Raises:
            ClientUseError: the consumer has streams. TypeError, ValueError: an argument is not valid.
        """
        from kafkalite_sdk.consumer.streams.streams import Streams

        if self._driver.streams is not None:
            raise ClientUseError("this Consumer has streams; streams() is called once")
        streams = Streams(self._driver, self._loop, count, explicit=explicit, release_s=release_timeout)
        self._driver.streams = streams
        return streams.streams

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
        await self._queries.commit(self._offsets_to_commit(what), timeout)

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
        self._queries.commit_nowait(self._offsets_to_commit(what), ignore_error if done is None else done)

    def _offsets_to_commit(
        self, what: str | TopicPartition | Offsets | None
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        if what is None:
            self._driver.handled()  # so a cancellation does not commit the begin of the last poll again
        return self._queries.offsets_of(what)

    async def committed(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of the group; None = none is committed.

        Arguments:
            partitions: None = those that are assigned.
            timeout: in seconds, None = `default_api_timeout_ms`.
        """
        self._check()
        return await self._queries.read_committed(self._named(partitions), timeout)

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
        targets = {partition_of(each): (offset, -1) for each, offset in (offsets or {}).items()}
        targets |= {partition_of(each): (-1, timestamp) for each, timestamp in (timestamps_ms or {}).items()}
        return await self._queries.rewind(targets, timeout)

    # positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue at an offset; prefetched records of the partition are dropped.

        Arguments:
            partition: an assigned one.
            offset: of the next record.
        """
        self._check()
        state = self._queries.state_of(partition)
        target = offset_of(partition, offset)
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

    def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Continue at the committed offsets of partitions (none named = all that are assigned), which the next `poll`
        reads. A partition without one continues at its first position in this assignment.

        An aborted transaction of a `Producer` does it by itself for its consumers.

        Raises:
            ClientUseError: the consumer has no group.
        """
        self._check()
        self._queries.group()
        self._return_to_committed([self._queries.state_of(each) for each in partitions or self._driver.assignment()])

    def _return_to_committed(self, states: "list[PartitionState]") -> None:
        driver = self._driver
        driver.drop_fetched([state.topic_partition for state in states])
        for state in states:
            driver.positions.return_to_committed(state)

    def _reset(self, partitions: Iterable[TopicPartition], policy: ResetPolicy) -> None:
        self._check()
        driver = self._driver
        states = [self._queries.state_of(each) for each in partitions or driver.assignment()]
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
        self._queries.state_of(partition)
        return await self._queries.position(partition, timeout)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record that the application receives, of each partition that has one."""
        self._driver.client.check_owner()
        return {each: found.offset for each, found in self._driver.consumed_offsets().items()}

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
        found = await self._queries.find_offsets({partition_of(each): t for each, t in timestamps_ms.items()}, timeout)
        return {each: OffsetAndTimestamp(*result) if result.offset >= 0 else None for each, result in found.items()}

    def lag(self) -> dict[TopicPartition, int | None]:
        """Return the number of records behind each position, as the last responses report it; None = not known yet."""
        self._check_owner()
        from kafkalite_sdk.consumer.health import lag_of

        return lag_of(self._driver)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of partitions until `resume` (none named = all). Prefetched records are kept."""
        self._check()
        states = [self._queries.state_of(each) for each in partitions or self._driver.assignment()]
        self._driver.iteration.hold({state.topic_partition for state in states})
        for state in states:
            self._driver.positions.pause(state)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of paused partitions again (none named = all)."""
        self._check()
        states = [self._queries.state_of(each) for each in partitions or self._driver.assignment()]
        self._driver.iteration.release({state.topic_partition for state in states})
        for state in states:
            self._driver.positions.resume(state)
        if self._driver.streams is not None:
            self._driver.streams.resumed()

    def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions that are paused."""
        self._check_owner()
        return frozenset(each for each, state in self._driver.positions.states.items() if state.paused)

    # transactions of a producer

    def group_metadata(self) -> "MemberIdentity":
        """Return the group, the generation or member epoch, the member id and the instance id, for `send_offsets`.

        Raises:
            UnknownMemberIdError: the consumer owns no partitions now. ClientUseError: it has no group.
        """
        self._check()
        group = self._queries.group()
        identity = group.identity()
        if identity is None:
            raise group.no_member()
        return identity

    def _offsets_to_send(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what `Producer.send_offsets` commits: of each partition the offset behind the last record that the
        application has received.

        Raises:
            ClientUseError: the consumer commits by itself, or has no group.
        """
        self._check()
        if self._driver.settings.auto_commit_interval_s is not None:
            raise ClientUseError(
                "a consumer of a transaction must not commit by itself; create it with enable_auto_commit=False"
            )
        return dict(self._offsets_to_commit(None))

    def _continue_at_committed(self) -> None:
        """Continue at the committed offsets after an aborted transaction; a closed consumer does nothing."""
        if self._driver.started and not self._driver.closed:
            states = [each for each in self._driver.positions.states.values() if not each.revoking]
            self._return_to_committed(states)
            self._driver.changed()

    # state

    def health(self) -> "ConsumerHealth":
        """Return the assignment, the last poll and heartbeat, the lag, the brokers, and what the consumer waits for."""
        self._check_owner()
        from kafkalite_sdk.consumer.health import health_of

        return health_of(self._driver, self._loop.polled_at, polling=self._loop.busy)

    def __repr__(self) -> str:
        return str(self._driver)

    def _check_owner(self) -> None:
        self._driver.client.check_owner()

    def _check(self) -> None:
        """Raise the error of a call from another loop, of a closed consumer, or of its group."""
        self._check_owner()
        self._check_error()

    def _check_error(self) -> None:
        self._driver.check_not_closed()
        if self._driver.group is not None:
            self._driver.group.raise_error()

    def _named(self, partitions: Iterable[TopicPartition] | None) -> list[TopicPartition]:
        if partitions is None:
            return sorted(self._driver.assignment())
        return partitions_of(partitions)
