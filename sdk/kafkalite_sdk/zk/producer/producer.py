"""The producer of Kafka 0.8 (kafka.producer.Producer): its options and partitions over the producer of the SDK."""

import logging
from collections.abc import Iterable
from sys import maxsize
from types import TracebackType
from typing import Any, Self, Unpack

from kafkalite.errors import KafkaError
from kafkalite_sdk._speedups.deliveries import FutureRecordMetadata, RecordMetadata
from kafkalite_sdk.client.cluster_view import NO_LEADER
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.client.topic_partitions import partitions_of, wait_for_topic
from kafkalite_sdk.producer import producer as sdk
from kafkalite_sdk.producer.handler import BatchHandler
from kafkalite_sdk.producer.serializers import Serializer
from kafkalite_sdk.zk.producer.callbacks import CallbackHandler, CallbackInterceptor, KeyedMessage
from kafkalite_sdk.zk.producer.options import ProducerOptions, parse_options
from kafkalite_sdk.zk.producer.partitioner import KeylessPartitions, Partitioner, default_partition
from kafkalite_sdk.zk.producer.queue import OpenRecords

LOGGER = logging.getLogger("kafkalite_sdk.zk.producer")

Message = KeyedMessage | tuple[Any, ...]


class Producer:
    """Sends records as the producer of Kafka 0.8 does. It belongs to the event loop in which it is started.

        async with Producer("zk1:2181/kafka", request_required_acks=1) as producer:
            await producer.send(KeyedMessage("orders", b"value", key="customer 7"))

    Arguments:
        zk_connect: ZooKeeper of the cluster, "host:port,host:port/chroot"; its brokers are kept current by watches.
        broker_list: brokers in place of it, "id:host:port,..." or "host:port,...".
        serializer, key_serializer: functions that return bytes; key_serializer is the serializer unless it is given.
            None = messages and keys are bytes, or texts, which are sent as UTF-8.
        partitioner: a function of key and number of partitions; None = `abs(hashCode(key)) % n` as in Java.
        event_handler: a function, plain or async, that receives the batches instead of the cluster.
        callback_handler: its methods are called at the stages of a record.
        environment: connections and randomness; simulations replace it.
        options: see `help(kafkalite_sdk.zk.producer.options.ProducerOptions)`.

    Raises:
        TypeError: an option is unknown. ValueError: a value is not valid, or an option is refused; it has the reason.
    """

    def __init__(
        self,
        zk_connect: str | None = None,
        *,
        broker_list: str | None = None,
        serializer: Serializer[Any] | None = None,
        key_serializer: Serializer[Any] | None = None,
        partitioner: Partitioner | None = None,
        event_handler: BatchHandler | None = None,
        callback_handler: CallbackHandler | None = None,
        environment: Environment | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._settings = settings = parse_options(zk_connect, broker_list, options)
        self._callbacks = callback_handler
        serializer = encode if serializer is None else serializer
        self._partitioner = default_partition if partitioner is None else partitioner
        self._producer: sdk.Producer[Any, Any] = sdk.Producer(
            settings.servers,
            value_serializer=serializer,
            key_serializer=serializer if key_serializer is None else key_serializer,
            interceptors=() if callback_handler is None else [CallbackInterceptor(callback_handler)],
            handler=event_handler,
            environment=environment,
            **settings.options,
        )
        self._client = self._producer._client
        self._keyless = KeylessPartitions(settings.partition_kept_s, self._client.environment.random.randrange)
        self._open = OpenRecords(
            settings.queue_messages if settings.queued else maxsize,
            settings.enqueue_timeout_s,
            settings.batch_messages,
            settings.linger_s,
            self._send_now,
        )
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect to the cluster. After a failure it may be called again.

        Raises KafkaConnectionError: no broker, or no ZooKeeper server, is reachable. KafkaTimeoutError.
        """
        await self._producer.start()

    async def send(self, *messages: Message | list[Message]) -> list[RecordMetadata]:
        """Send one record or many.

        With producer_type="sync" it waits until all are acknowledged; with "async" until all are in the queue, and
        their failures are logged. The first record of a topic waits for the metadata of the topic.

        Arguments:
            messages: `KeyedMessage`s, tuples of their fields, or lists of these.

        Returns: topic, partition and offset of each record, in order; with "async" an empty list. The offset is -1 with
            request_required_acks=0.

        Raises:
            With "sync" the error of the first record that has failed; the others are sent. With "async"
            BufferExhaustedError: queue_buffering_max_messages are not acknowledged within queue_enqueue_timeout_ms.
            TypeError: a message is none, or its key has no partition. KafkaError: the topic has no partitions.
        """
        sent = [await self._send(each) for each in list(_flat(messages))]  # all are checked before one is sent
        if self._settings.queued:
            return []
        self._send_now()
        results = [await _outcome(each) for each in sent]
        failed = [each for each in results if isinstance(each, Exception)]
        if failed:
            failed[0].add_note(f"{len(failed)} of {len(results)} records of this call have failed")
            raise failed[0]
        return [each for each in results if not isinstance(each, Exception)]

    async def _send(self, message: KeyedMessage) -> FutureRecordMetadata:
        callbacks, added = self._callbacks, False
        if callbacks is not None:
            message = callbacks.before_enqueue(message)
        try:
            future = await self._enqueue(message)
            added = True
        finally:
            if callbacks is not None:
                callbacks.after_enqueue(message, added)
        return future

    async def _enqueue(self, message: KeyedMessage) -> FutureRecordMetadata:
        partition = await self._partition(message)
        await self._open.space()
        try:
            await self._producer.drain()
            future = self._producer.send(message.topic, message.message, message.key, partition=partition)
        except BaseException:
            self._open.ended()
            raise
        self._open.added(self._client.loop.time())
        future.add_done_callback(self._ended)
        return future

    async def _partition(self, message: KeyedMessage) -> int:
        client, topic, key = self._client, message.topic, message.partition_key
        if partitions_of(client.view, topic) is None:
            await wait_for_topic(client, topic, self._settings.metadata_timeout_s)
        partitions = client.view.topics[topic].partitions
        if key is not None:
            return self._partitioner(key, len(partitions))
        available = [number for number, each in enumerate(partitions) if each.leader != NO_LEADER]
        return self._keyless.choose(topic, available or range(len(partitions)), client.loop.time())

    def _send_now(self) -> None:
        driver = self._producer._driver
        assert driver is not None, "records are added after the start"
        driver.send_open_batches()

    def _ended(self, future: FutureRecordMetadata) -> None:
        self._open.ended()
        error = None if future.cancelled() else future.exception()
        if error is not None:
            self._keyless.forget(self._client.loop.time())
            if self._settings.queued:
                LOGGER.error("a record was not sent: %s", error)

    async def flush(self) -> None:
        """Send the queue, and wait until each record is acknowledged or has failed."""
        await self._producer.flush()

    async def close(self) -> None:
        """Send the queue, and end all connections. A later call does nothing."""
        try:
            await self._producer.close()
        finally:
            if self._callbacks is not None and not self._closed:
                self._closed = True
                self._callbacks.close()

    def __repr__(self) -> str:
        return f"<zk.{repr(self._producer)[1:]}"


def encode(data: object) -> bytes:
    """Return bytes as they are, a text as UTF-8 (DefaultEncoder and StringEncoder). Raises TypeError."""
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytes):
        return data
    raise TypeError(f"{data!r} is neither bytes nor a str; pass serializer=")


def _flat(messages: Iterable[Message | list[Message]]) -> Iterable[KeyedMessage]:
    for each in messages:
        for message in each if isinstance(each, list) else [each]:
            if not isinstance(message, tuple):
                raise TypeError(f"{message!r} is no message; pass KeyedMessage(topic, message, key)")
            yield KeyedMessage(*message)


async def _outcome(future: FutureRecordMetadata) -> RecordMetadata | Exception:
    try:
        return await future
    except KafkaError as error:
        return error
