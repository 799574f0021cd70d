"""The blocking consumer: `poll` and `for record in consumer`, around a consumer of the SDK in a thread of its own."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Generic, Literal, Never, ParamSpec, TypeVar, Unpack

from kafkalite.errors import ClientUseError
from kafkalite.model import TopicPartition
from kafkalite_sdk._speedups.column_batch import COLUMNS, ColumnBatch
from kafkalite_sdk._speedups.consumer_records import Record
from kafkalite_sdk.blocking.client import BlockingClient
from kafkalite_sdk.blocking.derived import call_in_loop, wait_for
from kafkalite_sdk.blocking.loop_consumer import ApplicationListener, LoopConsumer
from kafkalite_sdk.client.arguments import readable
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.consumer import consumer as asynchronous
from kafkalite_sdk.consumer.consumer import ROWS_MAX, K, V
from kafkalite_sdk.consumer.listeners import RebalanceListener
from kafkalite_sdk.consumer.parts import Deserializer
from kafkalite_sdk.consumer.poison import PoisonPolicy
from kafkalite_sdk.consumer.settings import ConsumerOptions

if TYPE_CHECKING:
    from kafkalite_sdk.blocking.transactions import ConsumerInTransactions
    from kafkalite_sdk.interceptors.consumer import ConsumerInterceptor

P = ParamSpec("P")
T = TypeVar("T")


class Consumer(BlockingClient[LoopConsumer[K, V]], Generic[K, V]):
    """A consumer of records for programs without an event loop, an iterator of `Record[K, V]`. One thread polls.

        with Consumer("localhost:9092", group="billing") as consumer:
            consumer.subscribe("orders")
            while True:
                for record in consumer.poll(timeout=1.0):
                    handle(record)
                consumer.commit()

    Methods, settings and errors are those of `kafkalite_sdk.Consumer`. The thread of the client sends heartbeats. The
    methods of a listener run in the thread that waits for `poll`, `unsubscribe` or `close`, and may call the consumer
    as there. Interceptors, `on_poison` and the `done` of `commit_nowait` run in the thread of the client: they must
    return quickly, and cannot wait for this consumer.

    Arguments: as of `kafkalite_sdk.Consumer`.
    Raises: as `kafkalite_sdk.Consumer`.
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
        client: LoopConsumer[K, V] = LoopConsumer(
            bootstrap_servers,
            *misplaced,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            interceptors=interceptors,
            on_poison=on_poison,
            environment=environment,
            **options,
        )
        super().__init__(client, client.cluster)
        self._transactions: ConsumerInTransactions | None = None
        self._next_ready: Callable[[], Record[K, V] | None] = lambda: None

    def _plain(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method that is also valid before the start."""
        if self._loop_thread is None and not self._closed:
            return function(*args, **kwargs)
        return self._call(function, *args, **kwargs)

    # start and close

    def start(self, timeout: float | None = None) -> None:
        """Connect to the cluster; `with` does it.

        Arguments:
            timeout: in seconds, None = `default_api_timeout_ms`.

        Raises: as `kafkalite_sdk.Consumer.start`.
        """
        self._start(lambda _: self._client.start(timeout), partial(self._client.close, commit=False), self._prepare)

    def _prepare(self) -> None:
        self._next_ready = self._client.iterator(self._thread().lock)

    def close(self, timeout: float | None = None, *, commit: bool = True) -> None:
        """Release all partitions, leave the group, end connections and thread.

        A poll of another thread ends with ClientUseError, an iteration ends. Calls of several threads wait for one
        close; a later call does nothing.

        Arguments: as of `kafkalite_sdk.Consumer.close`.
        Raises: as `kafkalite_sdk.Consumer.close`.
        """
        self._close(self._client.close, timeout, commit=commit)

    def _exit(self, error: BaseException | None) -> None:
        stopped = error is not None and not isinstance(error, Exception)
        if stopped and self._loop_thread is not None:
            self._loop_thread.lock.inside(self._client.withhold)
        self.close(commit=error is None or stopped)

    # subscription

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | None = None,
        exclude: str | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read topics as a member of the group, in place of those before; see `kafkalite_sdk.Consumer.subscribe`."""
        called = ApplicationListener(listener) if isinstance(listener, RebalanceListener) else listener
        self._plain(self._client.subscribe, topics, pattern=pattern, exclude=exclude, listener=called)

    def add_topic(self, topic: str, partition: int | None = None) -> None:
        """Read one more topic, or claim one partition; see `kafkalite_sdk.Consumer.add_topic`."""
        self._plain(self._client.add_topic, topic, partition)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, in place of those before; see `kafkalite_sdk.Consumer.assign`."""
        self._plain(self._client.assign, partitions)

    def unsubscribe(self, timeout: float | None = None) -> None:
        """Release all partitions and leave the group; see `kafkalite_sdk.Consumer.unsubscribe`."""
        self._thread().check_not_waiting()
        self._run(self._client.unsubscribe, timeout)

    assignment = call_in_loop(asynchronous.Consumer.assignment)

    # records

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Record[K, V]]:
        """Return the next records, in order per partition; wait for the first one.

        Arguments:
            timeout: in seconds, 0 = do not wait; then the list is empty.
            max_records: None = `max_poll_records`.

        Raises: as `kafkalite_sdk.Consumer.poll`.
        """
        return self._ready(max_records) or self._filled(timeout, max_records)

    def _ready(self, records_max: int | None) -> list[Record[K, V]]:
        """Take records that are ready in the thread of the application."""
        thread = self._thread()
        thread.check()
        if records_max is not None and records_max < 1:
            return []  # `fill` rejects it
        return self._received(self._client.ready, records_max)

    def _filled(self, timeout: float, records_max: int | None) -> list[Record[K, V]]:
        """Have the thread of the client poll, and take the records."""
        thread = self._thread()
        thread.run(self._client.fill, timeout, records_max)
        return self._received(self._client.take, records_max)

    def _received(
        self, take: Callable[[int | None], list[Record[K, V]]], records_max: int | None
    ) -> list[Record[K, V]]:
        """Take records; those that Ctrl-C keeps from the application are returned by the next poll."""
        lock = self._thread().lock
        try:
            records = lock.inside(take, records_max)
        except BaseException:
            lock.inside(self._client.undo_taken)
            raise
        self._client.undelivered = None  # Python runs no signal handler from here to the caller of `poll`
        return records

    def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record[K, V]]]:
        """Return the next records by partition; see `kafkalite_sdk.Consumer.getmany`."""
        return self._thread().run_or_undo(
            self._client.give_back_by_partition,
            partial(self._client.getmany, *partitions, timeout_ms=timeout_ms, max_records=max_records),
        )

    def poll_columns(
        self,
        timeout: float = 1.0,
        max_records: int = ROWS_MAX,
        *,
        max_bytes: int = 8 << 20,
        columns: Iterable[str] = COLUMNS,
        timestamp_unit: Literal["ms", "us"] = "ms",
    ) -> ColumnBatch:
        """Return the next records as columns, which pyarrow, polars and DuckDB read; wait for the first one.

        Arguments: as of `kafkalite_sdk.Consumer.poll_columns`.
        Raises: as `kafkalite_sdk.Consumer.poll_columns`.
        """
        poll = partial(self._client.poll_columns, timeout, max_records, max_bytes=max_bytes)
        return self._columns(partial(poll, columns=columns, timestamp_unit=timestamp_unit))

    def poll_lines(
        self,
        timeout: float = 1.0,
        max_records: int = ROWS_MAX,
        *,
        max_bytes: int = 8 << 20,
        line_end: bytes = b"\n",
        key_separator: bytes | None = None,
    ) -> ColumnBatch:
        """Return the next records as lines for a file or a pipe: `value_bytes` of the batch has all of them.

        Arguments: as of `kafkalite_sdk.Consumer.poll_lines`.
        Raises: as `kafkalite_sdk.Consumer.poll_lines`.
        """
        poll = partial(self._client.poll_lines, timeout, max_records, max_bytes=max_bytes)
        return self._columns(partial(poll, line_end=line_end, key_separator=key_separator))

    def _columns(self, poll: Callable[[], Awaitable[ColumnBatch]]) -> ColumnBatch:
        batch, _ = self._thread().run_or_undo(self._client.give_back_columns, self._client.columns, poll)
        return batch

    def __iter__(self) -> Iterator[Record[K, V]]:
        self._thread().check()
        return self

    def __next__(self) -> Record[K, V]:
        """Return the next record; wait for it. The iteration ends when another thread closes the consumer."""
        return self._next_ready() or self._next()

    def _next(self) -> Record[K, V]:
        try:
            self._thread().check()  # the other thread may also have closed it between two records
            while not (records := self._filled(inf, 1)):
                pass
            return records[0]
        except ClientUseError:
            if self._client.closed:
                raise StopIteration from None
            raise

    # commits

    commit = wait_for(asynchronous.Consumer.commit)
    commit_nowait = call_in_loop(asynchronous.Consumer.commit_nowait)
    committed = wait_for(asynchronous.Consumer.committed)
    rewind = wait_for(asynchronous.Consumer.rewind)

    # positions

    seek = call_in_loop(asynchronous.Consumer.seek)
    seek_to_beginning = call_in_loop(asynchronous.Consumer.seek_to_beginning)
    seek_to_end = call_in_loop(asynchronous.Consumer.seek_to_end)
    seek_to_time = call_in_loop(asynchronous.Consumer.seek_to_time)
    position = wait_for(asynchronous.Consumer.position)
    positions = call_in_loop(asynchronous.Consumer.positions)
    beginning_offsets = wait_for(asynchronous.Consumer.beginning_offsets)
    end_offsets = wait_for(asynchronous.Consumer.end_offsets)
    offsets_for_times = wait_for(asynchronous.Consumer.offsets_for_times)
    lag = call_in_loop(asynchronous.Consumer.lag)
    pause = call_in_loop(asynchronous.Consumer.pause)
    resume = call_in_loop(asynchronous.Consumer.resume)
    paused = call_in_loop(asynchronous.Consumer.paused)

    # transactions of a producer

    seek_to_committed = call_in_loop(asynchronous.Consumer.seek_to_committed)
    group_metadata = call_in_loop(asynchronous.Consumer.group_metadata)

    def _in_transactions(self) -> "ConsumerInTransactions":
        """Return this consumer for the loop of a producer, with its offsets and its member as they are now.

        Raises: ClientUseError: the consumer commits by itself, or has no group.
        """
        if self._transactions is None:
            from kafkalite_sdk.blocking.transactions import ConsumerInTransactions

            self._transactions = ConsumerInTransactions(self._client, self._thread())
        return self._transactions.read()

    # state

    health = call_in_loop(asynchronous.Consumer.health)
