"""The producer of the SDK: a plain `send` that returns an awaitable, `drain` for back-pressure, `flush` and `close`."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, Unpack

from kafkalite.errors import BufferExhaustedError, ClientUseError, KafkaTimeoutError
from kafkalite_sdk._speedups.deliveries import FutureRecordMetadata, RecordMetadata
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.producer.dispatcher import Dispatcher
from kafkalite_sdk.producer.hooks import FailedRecords, ProducerHooks, ProducerMetrics
from kafkalite_sdk.producer.serializers import Serializer, bound_serializer
from kafkalite_sdk.producer.settings import ProducerOptions, parse_options

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # a part of mypy; kafkalite does not depend on it

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")

CLOSE_S = 1.0  # for writing queued requests when all records have their outcomes


class ProducerRecord(NamedTuple, Generic[K, V]):
    """A record for `Producer.send_many`; the fields are the arguments of `Producer.send`."""

    topic: str
    value: V | None = None
    key: K | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str | bytes, bytes | None]] | None = None


class Producer(Generic[K, V]):
    """Sends records to topics. It belongs to the event loop in which it is started.

        async with Producer("localhost:9092") as producer:
            metadata = await producer.send("orders", b"value", key=b"key")  # waits for the acknowledgement
            for value in values:
                producer.send("orders", value)  # pipelined
                await producer.drain()
            await producer.flush()

    Arguments:
        bootstrap_servers: "host:port,host:port" or a list of addresses; the first brokers to connect to.
        key_serializer, value_serializer: a function of the data, or an object with `serialize(topic, headers, data)`;
            None = keys or values are bytes. It is not called for None, which is sent as null.
        on_error: called with records that have failed and that no user awaits.
        hooks: called for requests and failures.
        environment: connections and randomness; simulations replace it.
        options: see `ProducerOptions`.

    Raises:
        TypeError: an option is unknown, or its value has another type. ValueError: a value is out of range.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        key_serializer: Serializer[K] | None = None,
        value_serializer: Serializer[V] | None = None,
        on_error: Callable[[FailedRecords], object] | None = None,
        hooks: ProducerHooks | None = None,
        environment: Environment | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        client_settings, self._settings = parse_options(bootstrap_servers, options)
        if self._settings.codec:
            import kafkalite.records  # noqa: F401 - registers the codecs
        self._serialize_key = bound_serializer(key_serializer, "key_serializer")
        self._serialize_value = bound_serializer(value_serializer, "value_serializer")
        self._on_error = on_error
        self._hooks = hooks
        self._client = ClusterClient(client_settings, environment, name="Producer")
        self._dispatcher: Dispatcher | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(None, raises=error is None)

    async def start(self) -> None:
        """Connect to the cluster. After a failure it may be called again.

        Raises:
            KafkaConnectionError: no bootstrap server is reachable. KafkaTimeoutError: `default_api_timeout_ms` has
            passed. ClientUseError: the producer is started or closed.
        """
        await self._client.start()
        self._dispatcher = Dispatcher(self._client, self._settings, self._hooks, self._on_error)
        accumulator = self._dispatcher.accumulator
        self.__dict__["drain"] = accumulator.drain
        if self._serialize_key is None and self._serialize_value is None:
            self.__dict__["send"] = accumulator.send

    def _started(self) -> Dispatcher:
        """Return the dispatcher. Raises ClientUseError before the start, after the close, and for another loop."""
        self._client.check_owner()
        if self._dispatcher is None or self._closed:
            raise ClientUseError("this Producer is being started or closed; use it inside `async with`")
        return self._dispatcher

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str | bytes, bytes | None]] | None = None,
    ) -> FutureRecordMetadata:
        """Queue a record; it leaves at the end of this loop iteration or when its batch has lingered.

        Arguments:
            topic: its topic. A topic that does not exist is created where the broker allows it.
            value, key: what the serializers accept; bytes without serializers. None = null.
            partition: None = the partitioner chooses.
            timestamp_ms: None = now.
            headers: name and value of each.

        Returns:
            A future of topic, partition, offset and timestamp. `cancel()` ends the future; the record is still sent.

        Raises:
            BufferExhaustedError: the buffer is full; `await drain()` first. MessageTooLargeError: the record is larger
            than `max_request_size`. ValueError: there is no such partition. TypeError: a key or value that is not
            bytes, without a serializer. ClientUseError: the producer is not started or is closed, or is used in another
            loop, thread or process.
        """
        accumulator = self._started().accumulator
        added = list(headers or ())
        data = None if value is None else value
        name = None if key is None else key
        if name is not None and self._serialize_key is not None:
            key_bytes = self._serialize_key(topic, added, name)
        else:
            key_bytes = name  # type: ignore[assignment]
        if data is not None and self._serialize_value is not None:
            value_bytes = self._serialize_value(topic, added, data)
        else:
            value_bytes = data  # type: ignore[assignment]
        return accumulator.send(
            topic, value_bytes, key_bytes, partition=partition, timestamp_ms=timestamp_ms, headers=added
        )

    def drain(self) -> Awaitable[None]:
        """Wait until there is space for records: at once until the buffer is full, then until half of it is free.

        A topic without a leader fills at most half of the buffer; `drain` after a record of that topic waits until it
        has space again. After each 128 KiB of records `drain` lets the event loop run one iteration.

        Raises:
            KafkaTimeoutError: there is no space within `max_block_ms`. The error of a record that has failed and whose
            future no user has awaited.
        """
        return self._started().accumulator.drain()

    async def send_many(self, records: Iterable[ProducerRecord[K, V]]) -> list[RecordMetadata | Exception]:
        """Send records of any topics, and wait until each one has its outcome. It drains by itself.

        Arguments:
            records: `ProducerRecord`s, or tuples of its fields.

        Returns:
            For each record, in order, its metadata or the error with which it failed. When the buffer has no space
            within `max_block_ms`, this record and all later ones have a KafkaTimeoutError.

        Raises:
            TypeError: an element is not a record; those before it are sent.
        """
        dispatcher = self._started()
        outcomes: list[FutureRecordMetadata | Exception] = []
        blocked: KafkaTimeoutError | None = None
        for record in records:
            if blocked is None:
                try:
                    outcomes.append(await self._send_when_possible(dispatcher, _record(record)))
                    continue
                except KafkaTimeoutError as error:
                    blocked = error
            outcomes.append(blocked)
        await dispatcher.flush(None)
        return [_outcome(each) for each in outcomes]

    async def _send_when_possible(
        self, dispatcher: Dispatcher, record: ProducerRecord[K, V]
    ) -> FutureRecordMetadata | Exception:
        """Send a record when there is space for it. Raises KafkaTimeoutError: there is none in time."""
        topic, value, key, partition, timestamp_ms, headers = record
        while True:
            if dispatcher.accumulator.iteration_due():
                await dispatcher.iteration()
            try:
                return self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
            except BufferExhaustedError:
                await dispatcher.space()
            except Exception as error:  # of this record: its type, size or partition, or its serializer
                return error

    async def flush(self, timeout: float | None = None) -> None:
        """Send all records now, and wait until those that were sent before have their outcomes.

        Arguments:
            timeout: in seconds; None = until each record is acknowledged or has failed after `delivery_timeout_ms`.

        Raises:
            KafkaTimeoutError: the time has passed. The error of a record that has failed and whose future no user has
            awaited.
        """
        dispatcher = self._started()
        await dispatcher.flush(timeout)
        dispatcher.raise_failures()

    async def close(self, timeout: float | None = None) -> None:
        """Flush, and end all connections. A second call does nothing.

        Arguments:
            timeout: in seconds; records without an outcome fail then. None = as `flush`.

        Raises:
            The error of a record that has failed and whose future no user has awaited.
        """
        await self._close(timeout, raises=True)

    async def _close(self, timeout_s: float | None, *, raises: bool) -> None:
        dispatcher = self._dispatcher
        if dispatcher is None or self._closed:
            await self._client.close()
            return
        self._client.check_owner()
        self._closed = True
        loop = self._client.loop
        until = None if timeout_s is None else loop.time() + timeout_s
        dispatcher.refuse_records()
        try:
            await dispatcher.flush(timeout_s)
        except KafkaTimeoutError:
            dispatcher.fail_records("they were not acknowledged before the timeout of close")
        except BaseException:
            dispatcher.fail_records("close was cancelled")
            raise
        finally:
            await self._client.close(CLOSE_S if until is None else min(CLOSE_S, max(0.0, until - loop.time())))
            dispatcher.end()
        if raises:
            dispatcher.raise_failures()

    def metrics(self) -> ProducerMetrics:
        """Return a snapshot of the counters. Raises ClientUseError before the start."""
        if self._dispatcher is None:
            raise ClientUseError("this Producer is not started; it has no metrics yet")
        return self._dispatcher.metrics()

    def begin_transaction(self) -> None:
        """Raise ClientUseError: transactions are not supported yet."""
        raise ClientUseError("transactions are not supported yet; an idempotent producer removes duplicates of retries")


def _record(value: ProducerRecord[K, V]) -> ProducerRecord[K, V]:
    """Validate a record. The letters of a text or the items of a list are not its fields."""
    if not isinstance(value, tuple):
        raise TypeError(f"send_many: {value!r} is not a record; pass ProducerRecord(topic, value)")
    return ProducerRecord(*value)


def _outcome(future: FutureRecordMetadata | Exception) -> RecordMetadata | Exception:
    if isinstance(future, Exception):
        return future
    error = future.exception()
    if error is None:
        return future.result()
    assert isinstance(error, Exception)
    return error
