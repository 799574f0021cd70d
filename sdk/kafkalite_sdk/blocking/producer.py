"""The blocking producer: `send` queues a record in the calling thread, the thread of the client sends it."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar, Unpack

from kafkalite.errors import BufferExhaustedError, KafkaTimeoutError
from kafkalite_sdk._speedups.deliveries import RecordMetadata
from kafkalite_sdk._speedups.shared_sends import RecordFuture, SharedSends
from kafkalite_sdk.blocking.client import BlockingClient
from kafkalite_sdk.blocking.loop_thread import LoopThread
from kafkalite_sdk.client.arguments import readable
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.producer import producer as asynchronous
from kafkalite_sdk.producer.reports import FailedRecords, ProducerMetrics
from kafkalite_sdk.producer.serializers import Headers, Serializer
from kafkalite_sdk.producer.settings import ProducerOptions
from kafkalite_sdk.values import K, OffsetAndMetadata, ProducerRecord, V

if TYPE_CHECKING:
    from kafkalite.model import TopicPartition
    from kafkalite_sdk._speedups.column_sends import ColumnsDelivery
    from kafkalite_sdk.blocking.transactions import ConsumerInTransactions, Transaction
    from kafkalite_sdk.interceptors.producer import ProducerInterceptor, ProducerStages
    from kafkalite_sdk.membership.settings import MemberIdentity
    from kafkalite_sdk.producer.handler import BatchHandler
    from kafkalite_sdk.producer.transactions.participants import TransactionalConsumer
    from kafkalite_sdk.values import DetachedTransaction

T = TypeVar("T")
Rows = list[tuple[str, int, int, int]]


class _LoopProducer(asynchronous.Producer[K, V]):
    """A producer of the SDK whose queues other threads use, too."""

    @property
    def cluster(self) -> ClusterClient:
        return self._client

    @property
    def serializes(self) -> bool:
        """Whether keys or values have a serializer."""
        return self._serialize_key is not None or self._serialize_value is not None

    @property
    def stages(self) -> "ProducerStages | None":
        """The interceptors of single records, None = there are none."""
        return None if self._stages is None or not self._stages.intercepts_send else self._stages

    def serialize(
        self, topic: str, value: V | None, key: K | None, headers: Sequence[tuple[str | bytes, bytes | None]] | None
    ) -> tuple[Headers, bytes | None, bytes | None]:
        return self._serialized(topic, value, key, headers)

    async def start_in(self, thread: LoopThread) -> None:
        """Connect; `on_error` is called without the lock of the client, so it may wait for threads that send."""
        on_error = self._on_error
        if on_error is not None:
            self._on_error = partial(thread.lock.outside, on_error)
        try:
            await self.start()
        except BaseException:
            self._on_error = on_error
            raise

    async def space(self) -> None:
        """Wait until there is space in the buffer."""
        await self._started().space()

    async def drained(self) -> None:
        """Wait as `drain`, also where `drain` was replaced."""
        await self._started().accumulator.drain()

    def share(self, thread: LoopThread) -> SharedSends:
        """Let other threads send; in the loop."""
        accumulator = self._started().accumulator

        def refuse() -> None:
            if thread.inside:
                accumulator.drain()  # raises
            else:
                thread.call(accumulator.drain)

        sends = SharedSends(
            accumulator,
            thread.lock,
            signal=thread.signal(lambda: sends.woken()),
            refuse=refuse,
            wait_for_space=partial(thread.run, self.space),
            wait_for_drain=partial(thread.run, self.drained),
            wait_for_record=lambda future, timeout: thread.run(_ended, future, timeout),
            call_soon=thread.call_soon,
            monotonic_s=time.monotonic,
        )
        return sends


class ColumnsFuture:
    """The outcome of the rows of one `send_columns`.

    Arguments:
        thread: of the client.
        delivery: of the rows.
    """

    def __init__(self, thread: LoopThread, delivery: "ColumnsDelivery") -> None:
        self._thread = thread
        self._delivery = delivery
        self._waiting: asyncio.Task[Rows] | None = None

    def done(self) -> bool:
        """Whether all rows have an outcome."""
        return self._delivery.done()

    def result(self, timeout: float | None = None) -> Rows:
        """Wait for all rows; see `kafkalite_sdk.Producer.send_columns` for the result.

        Arguments:
            timeout: in seconds; None = until the outcome is known.

        Raises: the error of the first rows that have failed. KafkaTimeoutError: the timeout has passed.
        """
        if not self._delivery.done():
            self._thread.run(self._wait, timeout)
        return self._delivery.result()

    async def _wait(self, timeout: float | None) -> None:
        if self._waiting is None:
            self._waiting = asyncio.ensure_future(self._delivery.wait())
        await _ended(self._waiting, timeout)


async def _ended(outcome: Any, timeout: float | None) -> None:
    """Wait for an outcome. Raises KafkaTimeoutError after `timeout` seconds; None = there is no limit."""
    done, _ = await asyncio.wait((outcome,), timeout=timeout)
    if not done:
        raise KafkaTimeoutError(f"no acknowledgement within {timeout} s; the records may still be sent")


class Producer(BlockingClient[_LoopProducer[K, V]], Generic[K, V]):
    """Sends records to topics, for programs without an event loop. Any number of threads may use it.

        with Producer("localhost:9092") as producer:
            metadata = producer.send("orders", b"value", key=b"key").result()  # waits for the acknowledgement
            for value in values:
                producer.send("orders", value)  # pipelined; waits when the buffer is full
            producer.flush()

    Methods, settings and errors are those of `kafkalite_sdk.Producer`. Serializers, a partitioner and interceptors of
    single records run in the thread that sends, all other functions of the application in the thread of the client:
    they must return quickly, and cannot wait for this producer.

    Arguments: as of `kafkalite_sdk.Producer`.
    Raises: as `kafkalite_sdk.Producer`.
    """

    @readable("kafkalite_sdk.ProducerOptions")
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *misplaced: Never,
        key_serializer: Serializer[K] | None = None,
        value_serializer: Serializer[V] | None = None,
        on_error: Callable[[FailedRecords], object] | None = None,
        interceptors: "Sequence[ProducerInterceptor]" = (),
        handler: "BatchHandler | None" = None,
        handler_partitions: int = 1,
        environment: Environment | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        client: _LoopProducer[K, V] = _LoopProducer(
            bootstrap_servers,
            *misplaced,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            on_error=on_error,
            interceptors=interceptors,
            handler=handler,
            handler_partitions=handler_partitions,
            environment=environment,
            **options,
        )
        super().__init__(client, client.cluster)

    def start(self) -> None:
        """Connect to the cluster; `with` does it. After a failure it may be called again.

        Raises: as `kafkalite_sdk.Producer.start`.
        """
        self._start(self._client.start_in, self._client.close, self._share)

    def _share(self) -> None:
        """Let the threads of the application send; in the loop."""
        sends = self._client.share(self._thread())
        self.__dict__["_sends"] = sends
        if type(self).drain is Producer.drain:
            self.__dict__["drain"] = sends.drain
        if type(self).send is Producer.send and not self._client.serializes:
            self.__dict__["send"] = sends.send
        if self._client.stages is not None:
            self.__dict__["send"] = self._client.stages.around(self.send)  # type: ignore[arg-type]

    def _started(self) -> SharedSends:
        self._thread()
        return self.__dict__["_sends"]  # type: ignore[no-any-return]

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str | bytes, bytes | None]] | None = None,
    ) -> RecordFuture:
        """Queue a record; the thread of the client sends it. It waits while the buffer is full.

        Arguments: as of `kafkalite_sdk.Producer.send`.

        Returns:
            The outcome: `result()` waits for the acknowledgement and returns topic, partition, offset and timestamp.

        Raises: as `kafkalite_sdk.Producer.send`; instead of BufferExhaustedError KafkaTimeoutError, when there is no
            space within `max_block_ms`.
        """
        sends = self._started()
        added, key_bytes, value_bytes = self._client.serialize(topic, value, key, headers)
        return sends.send(topic, value_bytes, key_bytes, partition=partition, timestamp_ms=timestamp_ms, headers=added)

    def send_columns(self, topic: str, table: object, *, require_key: bool = False) -> ColumnsFuture:
        """Queue the rows of an Arrow table as records; all of them or none. It waits while the buffer is full.

        Arguments: as of `kafkalite_sdk.Producer.send_columns`.
        Raises: as `kafkalite_sdk.Producer.send_columns`; KafkaTimeoutError as `send`.
        """
        while True:
            try:
                delivery = self._call(self._client.send_columns, topic, table, require_key=require_key)
            except BufferExhaustedError:
                self._run(self._client.space)
            else:
                return ColumnsFuture(self._thread(), delivery)

    def drain(self) -> None:
        """Wait until there is space for records, as `send` does.

        Raises: as `kafkalite_sdk.Producer.drain`: the error of a record that has failed and whose outcome no thread has
            read.
        """
        self._started().drain()

    def send_many(self, records: Iterable[ProducerRecord[K, V]]) -> list[RecordMetadata | Exception]:
        """Send records of any topics, and wait until each one has its outcome.

        Arguments: as of `kafkalite_sdk.Producer.send_many`; a generator runs in the thread of the client.
        Returns: as `kafkalite_sdk.Producer.send_many`.
        """
        return self._run(self._client.send_many, records)

    def flush(self, timeout: float | None = None) -> None:
        """Send all records now, and wait until those that were sent before have their outcomes.

        Arguments:
            timeout: in seconds; None = until each record is acknowledged or has failed after `delivery_timeout_ms`.

        Raises: as `kafkalite_sdk.Producer.flush`.
        """
        self._run(self._client.flush, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Flush, end all connections and the thread. A second call does nothing.

        Arguments:
            timeout: in seconds; records without an outcome fail then. None = as `flush`.

        Raises: as `kafkalite_sdk.Producer.close`.
        """
        self._close(self._client.close, timeout)

    def _exit(self, error: BaseException | None) -> None:
        if type(self).close is Producer.close:
            self._close(self._client.__aexit__, None if error is None else type(error), error, None)
        else:
            self.close()

    def metrics(self) -> ProducerMetrics:
        """Return a snapshot of the counters. Raises ClientUseError before the start."""
        return self._call(self._client.metrics)

    # transactions

    def transaction(self, *consumers: "TransactionalConsumer") -> "Transaction":
        """Return the block of one transaction, `with producer.transaction(consumer):`.

        Arguments:
            consumers: blocking ones; as of `kafkalite_sdk.Producer.transaction`.

        Raises: as `kafkalite_sdk.Producer.transaction`.
        """
        from kafkalite_sdk.blocking.transactions import Transaction

        return Transaction(self._call(self._client.transaction, *map(_in_loop, consumers)), self._run)

    def begin_transaction(self, *consumers: "TransactionalConsumer", timeout: float | None = None) -> None:
        """Begin a transaction; wait for the end of the last one, if it still runs.

        Arguments:
            consumers: blocking ones; as of `kafkalite_sdk.Producer.transaction`.
            timeout: in seconds; None = `default_api_timeout_ms`.

        Raises: as `kafkalite_sdk.Producer.begin_transaction`.
        """
        self._run(partial(self._client.begin_transaction, *map(_in_loop, consumers), timeout=timeout))

    def send_offsets(
        self,
        source: "TransactionalConsumer | Mapping[TopicPartition, int | OffsetAndMetadata]",
        group: "MemberIdentity | str | None" = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit the offsets of a consumer with the open transaction: both are committed, or none of them.

        Arguments:
            source: a blocking consumer, or offsets by partition.
            group, timeout: as of `kafkalite_sdk.Producer.send_offsets`.

        Raises: as `kafkalite_sdk.Producer.send_offsets`.
        """
        self._run(partial(self._client.send_offsets, _in_loop(source), group, timeout=timeout))

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Commit the open transaction: send all records, and wait until the coordinator has decided.

        Arguments:
            timeout: in seconds; as of `kafkalite_sdk.Producer.commit_transaction`.

        Raises: as `kafkalite_sdk.Producer.commit_transaction`.
        """
        self._run(self._client.commit_transaction, timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the open transaction.

        Arguments:
            timeout: in seconds; None = `default_api_timeout_ms`.

        Raises: as `kafkalite_sdk.Producer.abort_transaction`.
        """
        self._run(self._client.abort_transaction, timeout)

    def detach_transaction(self, timeout: float | None = None) -> "DetachedTransaction | None":
        """Leave the open transaction to another process: flush, and close without an end of the transaction.

        Arguments:
            timeout: in seconds; None = until all records have their outcomes.

        Returns: as `kafkalite_sdk.Producer.detach_transaction`.
        Raises: as `kafkalite_sdk.Producer.detach_transaction`.
        """
        return self._run(self._client.detach_transaction, timeout)


def _in_loop(source: T) -> "T | ConsumerInTransactions":
    """Return a blocking consumer as the loop of a producer uses it; anything else as it is."""
    from kafkalite_sdk.blocking.consumer import Consumer

    return source._in_transactions() if isinstance(source, Consumer) else source
