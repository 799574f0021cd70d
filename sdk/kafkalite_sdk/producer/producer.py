"""The producer of the SDK: a plain `send` that returns an awaitable, `drain` for back-pressure, `flush` and `close`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Never, Self, Unpack

from kafkalite.errors import BufferExhaustedError, ClientUseError, KafkaTimeoutError
from kafkalite_sdk._speedups.deliveries import FutureRecordMetadata, RecordMetadata
from kafkalite_sdk.client.arguments import check_seconds, readable
from kafkalite_sdk.client.closing import Closing
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.producer.driver import Driver
from kafkalite_sdk.producer.reports import FailedRecords, ProducerMetrics
from kafkalite_sdk.producer.serializers import Headers, Serializer, bind_serializer
from kafkalite_sdk.producer.settings import ProducerOptions, parse_options
from kafkalite_sdk.values import K, ProducerRecord, V

if TYPE_CHECKING:
    from kafkalite.model import TopicPartition
    from kafkalite_sdk._speedups.accumulator import RecordAccumulator
    from kafkalite_sdk._speedups.column_sends import ColumnsDelivery
    from kafkalite_sdk.interceptors.producer import ProducerInterceptor, ProducerStages
    from kafkalite_sdk.membership.settings import MemberIdentity
    from kafkalite_sdk.producer.handler import BatchHandler
    from kafkalite_sdk.producer.transactions.block import Transaction
    from kafkalite_sdk.producer.transactions.calls import Transactions
    from kafkalite_sdk.producer.transactions.participants import TransactionalConsumer
    from kafkalite_sdk.values import DetachedTransaction, OffsetAndMetadata

LOGGER = logging.getLogger("kafkalite_sdk.producer.producer")
CLOSE_S = 1.0  # for writing queued requests when all records have their outcomes


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
        interceptors: their methods are called at the stages of records, batches and requests.
        handler: a function, plain or async, that receives the sealed batches instead of the network; then nothing
            connects, and a batch is acknowledged when the function returns.
        handler_partitions: number of partitions of each topic with a handler.
        environment: connections and randomness; simulations replace it.
        options: see `help(kafkalite_sdk.ProducerOptions)`.

    Raises:
        TypeError: an option is unknown, or its value has another type. ValueError: a value is out of range.
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
        client_settings, self._settings = parse_options(bootstrap_servers, options, misplaced)
        if self._settings.codec:
            import kafkalite.records  # noqa: F401 - registers the codecs
        self._serialize_key = bind_serializer(key_serializer, "key_serializer")
        self._serialize_value = bind_serializer(value_serializer, "value_serializer")
        self._on_error = on_error
        self._interceptors = interceptors
        self._stages: ProducerStages | None = None
        self._client = ClusterClient(client_settings, environment, name="Producer")
        if interceptors:
            from kafkalite_sdk.interceptors.producer import ProducerInterceptor
            from kafkalite_sdk.interceptors.stages import check_interceptors

            check_interceptors(interceptors, ProducerInterceptor)
        if handler is not None:
            if self._settings.transactional_id is not None:
                raise ValueError(
                    "transactional_id: a producer with a handler has no transactions; leave one of both out"
                )
            from kafkalite_sdk.producer.handler import HandlerClient

            self._client = HandlerClient(handler, handler_partitions, client_settings, environment)
            self._settings = self._settings._replace(idempotent=False)
        self._driver: Driver | None = None
        self._closing: Closing[Exception | None] = Closing(self._client.owner, "Producer")
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if type(self).close is Producer.close:
            await self._close(self._settings.close_timeout_s, raises=error is None)
        else:
            await self.close()

    async def start(self) -> None:
        """Connect to the cluster. After a failure it may be called again.

        With a transactional id it waits for the producer id: open transactions of earlier producers with this id are
        aborted, and these producers are fenced.

        Raises:
            KafkaConnectionError: no bootstrap server is reachable. KafkaTimeoutError: `default_api_timeout_ms` has
            passed. ClientUseError: the producer is started or closed. KafkaError: the coordinator rejects the
            transactional id; it names the cause.
        """
        await self._client.start()
        if self._interceptors:
            from kafkalite_sdk.interceptors.producer import ProducerStages

            self._stages = ProducerStages(self._interceptors, self._client.loop)
        self._driver = Driver(self._client, self._settings, self._stages, self._on_error)
        if self._driver.transactions is not None:
            await self._start_transactions(self._driver)
        self._bind(self._driver.accumulator)

    async def _start_transactions(self, driver: Driver) -> None:
        assert driver.transactions is not None
        try:
            await driver.transactions.start()
        except BaseException:
            self._driver = None
            driver.end()
            await self._client.abandon()
            raise

    def _bind(self, accumulator: "RecordAccumulator") -> None:
        """Replace the methods of each record by faster ones, unless a subclass overrides them."""
        if type(self).drain is Producer.drain:
            self.__dict__["drain"] = accumulator.drain
        if type(self).send is Producer.send and self._serialize_key is None and self._serialize_value is None:
            self.__dict__["send"] = accumulator.send
        if self._stages is not None and self._stages.intercepts_send:
            self.__dict__["send"] = self._stages.around(self.send)

    def _started(self) -> Driver:
        """Return the driver. Raises ClientUseError before the start, after the close, and for another loop."""
        self._client.check_owner()
        if self._driver is None or self._closed:
            raise ClientUseError("this Producer is being started or closed; use it inside `async with`")
        return self._driver

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
        added, key_bytes, value_bytes = self._serialized(topic, value, key, headers)
        return accumulator.send(
            topic, value_bytes, key_bytes, partition=partition, timestamp_ms=timestamp_ms, headers=added
        )

    def _serialized(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        headers: Sequence[tuple[str | bytes, bytes | None]] | None,
    ) -> tuple[Headers, bytes | None, bytes | None]:
        """Return the headers, key and value of a record as they are sent. Raises what a serializer raises."""
        added = list(headers or ())
        data = None if value is None else value
        name = None if key is None else key
        key_bytes: bytes | None
        value_bytes: bytes | None
        if name is not None and self._serialize_key is not None:
            key_bytes = self._serialize_key(topic, added, name)
        else:
            key_bytes = name  # type: ignore[assignment]
        if data is not None and self._serialize_value is not None:
            value_bytes = self._serialize_value(topic, added, data)
        else:
            value_bytes = data  # type: ignore[assignment]
        return added, key_bytes, value_bytes

    def send_columns(self, topic: str, table: object, *, require_key: bool = False) -> "ColumnsDelivery":
        """Queue the rows of an Arrow table as records; all of them or none.

        Arguments:
            topic: as of `send`.
            table: of pyarrow, polars or another library with the Arrow PyCapsule interface. Its columns are some of key
                and value (binary or strings, sent as they are), headers (a list of structs of key and value),
                partition (integers; null = the partitioner chooses), timestamp (or integers in ms; null = now).
            require_key: reject rows without a key, for compacted topics.

        Returns:
            One awaitable for all rows. Its result has one tuple for each batch, in the order of its first row: topic,
            partition, offset of its first row, number of rows. The rows of a partition keep their order.

        Raises:
            TypeError, ValueError: a column has another type, or a row is not valid; it names column and row.
            BufferExhaustedError: the buffer is full; `await drain()` first. MessageTooLargeError: a record exceeds
            `max_request_size`, or the table `buffer_memory`. ClientUseError: as `send`, or there are
            interceptors of single records.
        """
        accumulator = self._started().accumulator
        if self._stages is not None and self._stages.intercepts_send:
            raise ClientUseError("send_columns calls no interceptors of single records; use send, or another Producer")
        from kafkalite_sdk._speedups.column_sends import send_columns

        return send_columns(accumulator, topic, table, require_key=require_key)

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
        driver = self._started()
        outcomes: list[FutureRecordMetadata | Exception] = []
        blocked: KafkaTimeoutError | None = None
        for record in records:
            if blocked is None:
                try:
                    outcomes.append(await self._send_when_possible(driver, _record(record)))
                    continue
                except KafkaTimeoutError as error:
                    blocked = error
            outcomes.append(blocked)
        await driver.wait_for(each for each in outcomes if not isinstance(each, Exception))
        return [_outcome(each) for each in outcomes]

    async def _send_when_possible(
        self, driver: Driver, record: ProducerRecord[K, V]
    ) -> FutureRecordMetadata | Exception:
        """Send a record when there is space for it. Raises KafkaTimeoutError: there is none in time."""
        topic, value, key, partition, timestamp_ms, headers = record
        while True:
            if driver.accumulator.iteration_due():
                await driver.iteration()
            try:
                return self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
            except BufferExhaustedError:
                await driver.space()
            except Exception as error:  # of this record: its type, size or partition, or its serializer
                return error

    async def flush(self, timeout: float | None = None) -> None:
        """Send all records now, and wait until those that were sent before have their outcomes.

        Arguments:
            timeout: in seconds; None = until each record is acknowledged or has failed after `delivery_timeout_ms`.

        Raises:
            KafkaTimeoutError: the time has passed. The error of a record that has failed and whose future no user has
            awaited. TypeError, ValueError: `timeout` is no number of seconds, or below 0.
        """
        driver = self._started()
        _check_timeout(timeout)
        await driver.flush(timeout)
        driver.raise_failures()

    async def close(self, timeout: float | None = None) -> None:
        """Flush, and end all connections. A call while another one runs waits for that one; a later call does nothing.

        If it is cancelled, and no other task waits in `close`, the records without an outcome fail at once.

        Arguments:
            timeout: in seconds; records without an outcome fail then. None = `close_timeout_ms`. Of a call that waits
                for another one, it is the time of this wait only.

        Raises:
            The error of a record that has failed and whose future no user has awaited. KafkaTimeoutError: the other
            call has not ended in time. TypeError, ValueError: as `flush`; the producer is still open.
        """
        _check_timeout(timeout)
        await self._close(self._settings.close_timeout_s if timeout is None else timeout, raises=True)

    async def _close(self, timeout_s: float | None, *, raises: bool) -> None:
        """Close. None = until each record has an outcome."""
        driver = self._driver
        if driver is None:
            await self._client.close()
            return
        if not self._closing.begun:
            self._client.owner.check_loop()
            if self._stages is None:  # else they may have last records
                self._closed = True
                driver.refuse_records()
        error = await self._closing.run(partial(self._end, driver, timeout_s), timeout_s)
        if error is None:
            return
        if raises:
            raise error
        LOGGER.error("%s", "; ".join((str(error), *getattr(error, "__notes__", ()))))

    async def _end(self, driver: Driver, timeout_s: float | None) -> Exception | None:
        """Flush, and end everything; return the error of records that no user has awaited."""
        loop = self._client.loop
        until = None if timeout_s is None else loop.time() + timeout_s
        try:
            if self._stages is not None:
                await self._send_last(driver, self._stages.last_records(), until)
            self._closed = True
            driver.refuse_records()
            if driver.transactions is not None:
                await driver.transactions.close(None if until is None else max(0.0, until - loop.time()))
            await driver.flush(None if until is None else max(0.0, until - loop.time()))
        except KafkaTimeoutError:
            limit = "in time" if timeout_s is None else f"within {timeout_s:g} s, the timeout of close"
            driver.fail_records(f"they were not acknowledged {limit}")
        except BaseException:
            driver.refuse_records()
            driver.fail_records("close was cancelled")
            raise
        finally:
            self._closed = True
            try:
                await self._client.close(CLOSE_S if until is None else min(CLOSE_S, max(0.0, until - loop.time())))
            finally:
                driver.end()
        if driver.transactions is not None:
            return None  # the calls of the transaction have raised its errors
        try:
            driver.raise_failures()
        except Exception as error:
            return error
        return None

    async def _send_last(self, driver: Driver, records: Iterable[ProducerRecord[K, V]], until: float | None) -> None:
        """Send the records of `last_batch`. Those that are rejected, or have no space before a time of the loop's
        clock, are reported to the exception handler of the loop."""
        for record in records:
            try:
                async with asyncio.timeout_at(until):
                    sent: object = await self._send_when_possible(driver, record)
            except TimeoutError as error:
                sent = error
            if isinstance(sent, Exception):
                context = {"message": f"last_batch: {record} is not sent", "exception": sent}
                self._client.loop.call_exception_handler(context)

    def __del__(self) -> None:
        driver: Driver | None = self.__dict__.get("_driver")
        if driver is None or self._closed or self._client.owner.forked:
            return
        count = driver.accumulator.records_incomplete
        if count:
            text = "a Producer was not closed, and %d record(s) were not acknowledged; they may be lost: "
            LOGGER.error(text + 'use "async with", or await its close()', count)

    def __repr__(self) -> str:
        state = "not started" if self._driver is None else "closed" if self._closed else "open"
        return f"<Producer of {self._client.settings.servers_text()}, {state}>"

    def metrics(self) -> ProducerMetrics:
        """Return a snapshot of the counters. Raises ClientUseError before the start."""
        if self._driver is None:
            raise ClientUseError("this Producer is not started; it has no metrics yet")
        return self._driver.metrics()

    # transactions

    def _transactions(self) -> "Transactions":
        transactions = self._started().transactions
        if transactions is None:
            raise ClientUseError('this Producer has no transactions; create it with transactional_id="name"')
        return transactions

    def transaction(self, *consumers: "TransactionalConsumer") -> "Transaction":
        """Return the block of one transaction.

            async with producer.transaction(consumer):
                for record in await consumer.poll():
                    producer.send("results", transform(record.value))
                await producer.send_offsets(consumer)

        The end of the block commits the transaction; an exception or a cancellation aborts it. Consumers that read
        committed records see all records of the block, or none.

        Arguments:
            consumers: after an abort they continue at their committed offsets, so that records are processed again. One
                whose offsets are sent is added by itself.

        Raises, at the begin of the block: as `begin_transaction`; at its end: as `commit_transaction`.
        """
        from kafkalite_sdk.producer.transactions.block import Transaction

        return Transaction(self._transactions(), consumers)

    async def begin_transaction(self, *consumers: "TransactionalConsumer", timeout: float | None = None) -> None:
        """Begin a transaction; wait for the end of the last one, if it still runs. `transaction` is a block of it.

        Arguments:
            consumers: as of `transaction`.
            timeout: in seconds; None = `default_api_timeout_ms`.

        Raises:
            ProducerFencedError: another producer has the transactional id; this one is closed. ClientUseError: a
            transaction is open. KafkaTimeoutError: the last transaction has not ended in time.
        """
        _check_timeout(timeout)
        await self._transactions().begin(consumers, timeout)

    async def send_offsets(
        self,
        source: "TransactionalConsumer | Mapping[TopicPartition, int | OffsetAndMetadata]",
        group: "MemberIdentity | str | None" = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit the offsets of a consumer with the open transaction: both are committed, or none of them.

        Arguments:
            source: the consumer: the offsets behind the records that the application has received, as a member of its
                group; it needs `enable_auto_commit=False`. Or offsets by partition.
            group: with offsets, the `group_metadata()` of the consumer that has read them, or the name of a group.
            timeout: in seconds; None = `default_api_timeout_ms`.

        Raises:
            TransactionAbortedError: the transaction must be aborted, for example as the group has rebalanced.
            ClientUseError: no transaction is open, or the consumer cannot take part.
        """
        _check_timeout(timeout)
        await self._transactions().send_offsets(source, group, timeout)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Commit the open transaction: send all records, and wait until the coordinator has decided.

        Arguments:
            timeout: in seconds; None = until all records have their outcomes, then `default_api_timeout_ms`.

        Raises:
            TransactionAbortedError: the transaction is aborted; the next one may begin. OutcomeUnknownError: the
            coordinator has not answered in time; a second call waits again. ProducerFencedError: another producer has
            the transactional id; this one is closed. ClientUseError: no transaction is open.
        """
        _check_timeout(timeout)
        await self._transactions().commit(timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the open transaction: its records that are not sent fail, the others are not visible to consumers that
        read committed records. After a TransactionAbortedError of `commit_transaction` it does nothing.

        Arguments:
            timeout: in seconds; None = `default_api_timeout_ms`.

        Raises:
            KafkaTimeoutError: the coordinator has not answered in time; the abort continues in the background.
            ProducerFencedError: as `commit_transaction`. ClientUseError: no transaction is open, or its commit has
            left.
        """
        _check_timeout(timeout)
        await self._transactions().abort(timeout)

    async def detach_transaction(self, timeout: float | None = None) -> "DetachedTransaction | None":
        """Leave the open transaction to another process: flush, and close without an end of the transaction.

            detached = await producer.detach_transaction()
            ...  # elsewhere, before transaction_timeout_ms has passed
            outcomes = await admin.transactions.end(detached, committed=True)

        Arguments:
            timeout: in seconds; None = until all records have their outcomes.

        Returns:
            What ends the transaction; None = there is nothing to end, as no record was sent.

        Raises:
            TransactionAbortedError: a record has failed; abort the transaction. KafkaTimeoutError: records have no
            outcome in time; the transaction is still open here. ClientUseError: no transaction is open.
        """
        _check_timeout(timeout)
        await self._started().flush(timeout)
        return await self._transactions().detach(timeout)


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None:
        check_seconds("timeout", timeout, least=0)


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
