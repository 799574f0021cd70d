"""A user's application with every public call of the SDK; mypy checks it as strictly as it can. It is never run."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Unpack, assert_type

from kafkalite_sdk import (
    Admin,
    AdminOptions,
    ClientMechanism,
    ClientOptions,
    ClientSteps,
    Consumer,
    ConsumerHealth,
    ConsumerOptions,
    DetachedTransaction,
    Environment,
    FutureRecordMetadata,
    Job,
    OAuthToken,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Producer,
    ProducerOptions,
    ProducerRecord,
    RebalanceListener,
    Record,
    RecordMetadata,
    SecurityOptions,
    TopicPartition,
    __version__,
    blocking,
    errors,
)
from kafkalite_sdk.admin import CreatedTopic, NewTopic, Outcomes, TopicDescription
from kafkalite_sdk.columns import ColumnBatch
from kafkalite_sdk.interceptors import ConsumerInterceptor, DeadLetterTopic, ProducerInterceptor, SealedBatch
from kafkalite_sdk.rpc import Reply

from kafkalite.protocol.messages.metadata import MetadataRequest

Headers = tuple[tuple[str, bytes | None], ...]
PARTITION = TopicPartition("orders", 0)


class Order:
    """What the application sends and receives."""

    def __init__(self, number: int) -> None:
        self.number = number


class OrderFormat:
    """A serializer and a deserializer that know the topic and the headers."""

    def serialize(self, topic: str, headers: list[tuple[str | bytes, bytes | None]], data: Order, /) -> bytes:
        headers.append(("format", b"decimal"))
        return f"{topic}:{data.number}".encode()

    def deserialize(self, topic: str, headers: Headers, data: bytes, /) -> Order:
        return Order(int(data.removeprefix(topic.encode())) if headers else 0)


class Requests(ProducerInterceptor):
    def request_sent(self, node: int, batches: int, size: int) -> None:
        print(node, batches, size)


class Polls(ConsumerInterceptor):
    def on_record(self, record: Record[bytes, bytes]) -> None:
        print(record.offset)


def keep(batch: SealedBatch) -> None:
    print(batch.topic, len(batch.records()))


class Listener(RebalanceListener):
    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.sleep(0)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        print([each.topic for each in partitions])


class Badge:
    """A SASL mechanism of the application."""

    name = "BADGE"

    async def begin(self, host: str) -> ClientSteps:
        def steps() -> ClientSteps:
            signed = yield Job(lambda: host.encode())
            yield signed

        return steps()


async def token() -> OAuthToken:
    return OAuthToken("a.b.c", expires_at=1e10)


async def administrate() -> None:
    mechanism: ClientMechanism = Badge()
    async with Admin("a:9092", security_protocol="SASL_SSL", sasl_mechanism=mechanism) as admin:
        created = await admin.topics.create("orders", NewTopic("returns", partitions=6))
        print([each.topic_id for each in created.check().values()])
    Producer("a:9092", security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_token=token)


async def produce(columns: object) -> None:
    async with Producer("localhost:9092", acks="all", linger_ms=5, interceptors=[Requests()]) as producer:
        future = producer.send("orders", b"value", key=b"key", partition=0, timestamp_ms=1, headers=[("a", b"b")])
        assert_type(future, FutureRecordMetadata)
        metadata = await future
        assert_type(metadata, RecordMetadata)
        assert_type((metadata.topic, metadata.partition, metadata.offset), tuple[str, int, int])
        assert_type(await asyncio.gather(*[producer.send("orders")]), list[RecordMetadata])
        await producer.drain()
        await producer.flush(timeout=1.0)
        print(producer.metrics().records_acknowledged)
        await producer.send_columns("orders", columns, require_key=True)
    orders = Producer(["a:9092", "b:9092"], key_serializer=str.encode, value_serializer=OrderFormat())
    await orders.start()
    orders.send("orders", Order(1), key="customer")
    outcomes = await orders.send_many([ProducerRecord("orders", Order(2), "customer")])
    assert_type(outcomes, list[RecordMetadata | Exception])
    await orders.close(timeout=5.0)
    Producer("nowhere:9092", handler=keep, handler_partitions=3)
    letters = DeadLetterTopic(Producer("a:9092"), "orders-dead")
    Consumer("a:9092", interceptors=[Polls()], on_poison=letters)
    Consumer("a:9092", on_poison="skip")


async def consume() -> None:
    async with Consumer("localhost:9092", group="billing", environment=Environment()) as consumer:
        assert_type(consumer, Consumer[bytes, bytes])
        consumer.subscribe("orders")
        consumer.subscribe(["orders", "returns"], listener=Listener())
        consumer.subscribe(pattern="orders-.*", exclude=".*-old")
        consumer.add_topic("orders")
        consumer.add_topic("orders", 3)
        records = await consumer.poll(timeout=1.0, max_records=100)
        assert_type(records, list[Record[bytes, bytes]])
        for record in records:
            assert_type(record.value, bytes | None)
            assert_type(record.headers, Headers)
            assert_type((record.topic, record.partition, record.offset), tuple[str, int, int])
        async for record in consumer:
            assert_type(record, Record[bytes, bytes])
            break
        found = await consumer.getmany(PARTITION, timeout_ms=100, max_records=10)
        assert_type(found, dict[TopicPartition, list[Record[bytes, bytes]]])
        print(len(await consumer.poll_columns(timeout=1.0, columns=["key", "value"], max_bytes=1 << 20)))
        await commits(consumer)
        await positions(consumer)
        await consumer.unsubscribe(timeout=1.0)


async def process_in_transactions() -> None:
    consumer = Consumer("localhost:9092", group="billing", enable_auto_commit=False, isolation_level="read_committed")
    producer = Producer("localhost:9092", transactional_id="billing-1", transaction_timeout_ms=10_000)
    async with consumer, producer:
        async with producer.transaction(consumer):
            for record in await consumer.poll():
                producer.send("invoices", record.value)
            await producer.send_offsets(consumer)
        await producer.begin_transaction(consumer, timeout=5.0)
        await producer.send_offsets({PARTITION: 7}, consumer.group_metadata(), timeout=5.0)
        await producer.send_offsets({PARTITION: 7}, "billing")
        await producer.commit_transaction(timeout=5.0)
        await producer.begin_transaction()
        await producer.abort_transaction(timeout=5.0)
        consumer.seek_to_committed(PARTITION)
        await producer.begin_transaction()
        detached = await producer.detach_transaction(timeout=5.0)
    if detached is not None:
        await end_transaction(detached)


async def end_transaction(detached: DetachedTransaction) -> None:
    async with Admin("localhost:9092") as admin:
        (await admin.transactions.end(detached, committed=True, timeout=5.0)).check()


async def consume_objects() -> None:
    consumer = Consumer(
        ["a:9092", "b:9092"],
        group="billing",
        group_protocol="classic",
        auto_offset_reset="by_duration:PT24H",
        partition_assignment_strategy=["cooperative-sticky"],
        key_deserializer=bytes.decode,
        value_deserializer=OrderFormat(),
    )
    assert_type(consumer, Consumer[str, Order])
    await consumer.start(timeout=10.0)
    for record in await consumer.poll():
        assert_type(record, Record[str, Order])
        assert_type(record.key, str | None)
        if record.value is not None:
            assert_type(record.value.number, int)
    await consumer.close(timeout=5.0, commit=False)


async def consume_by_streams(consumer: Consumer) -> None:
    for stream in consumer.streams(4, explicit=True, release_timeout=10.0):
        assert_type(stream.partitions, frozenset[TopicPartition])
        async for record in stream:
            assert_type(record, Record[bytes, bytes])
            assert_type(stream.complete(record), bool)


async def commits(consumer: Consumer) -> None:
    await consumer.commit()
    await consumer.commit("orders")
    await consumer.commit(PARTITION)
    await consumer.commit({PARTITION: 7}, timeout=1.0)
    await consumer.commit({PARTITION: OffsetAndMetadata(7, "note")})

    def done(error: errors.KafkaError | None) -> None:
        print(error is not None and error.retriable)

    consumer.commit_nowait()
    consumer.commit_nowait(PARTITION, done)
    assert_type(await consumer.committed(), dict[TopicPartition, OffsetAndMetadata | None])
    assert_type(await consumer.rewind({PARTITION: 0}), dict[TopicPartition, int])
    assert_type(await consumer.rewind(timestamps_ms={PARTITION: -2}), dict[TopicPartition, int])


async def positions(consumer: Consumer) -> None:
    assert_type(consumer.assignment(), frozenset[TopicPartition])
    consumer.assign([PARTITION])
    consumer.seek(PARTITION, 7)
    consumer.seek(PARTITION, OffsetAndMetadata(7, leader_epoch=3))
    consumer.seek_to_beginning(PARTITION)
    consumer.seek_to_end()
    consumer.seek_to_time(1_700_000_000_000, PARTITION)
    assert_type(await consumer.position(PARTITION), int)
    assert_type(await consumer.beginning_offsets(), dict[TopicPartition, int])
    assert_type(await consumer.end_offsets([PARTITION]), dict[TopicPartition, int])
    found = await consumer.offsets_for_times({PARTITION: 1_700_000_000_000})
    assert_type(found, dict[TopicPartition, OffsetAndTimestamp | None])
    assert_type(consumer.lag(), dict[TopicPartition, int | None])
    consumer.pause(PARTITION)
    assert_type(consumer.paused(), frozenset[TopicPartition])
    consumer.resume()
    health = consumer.health()
    assert_type(health, ConsumerHealth)
    assert_type(health.lag, Mapping[TopicPartition, int | None])


def produce_blocking(columns: object) -> None:
    with blocking.Producer("localhost:9092", acks="all", linger_ms=5) as producer:
        sent = producer.send("orders", b"value", key=b"key", partition=0, timestamp_ms=1, headers=[("a", b"b")])
        assert_type(sent, blocking.RecordFuture)
        assert_type(sent.result(timeout=1.0), RecordMetadata)
        assert_type(sent.exception(), BaseException | None)
        sent.add_done_callback(lambda each: print(each.done()))
        producer.drain()
        producer.flush(timeout=1.0)
        print(producer.metrics().records_acknowledged)
        table: blocking.ColumnsFuture = producer.send_columns("orders", columns, require_key=True)
        assert_type(table.result(timeout=1.0), list[tuple[str, int, int, int]])
    orders = blocking.Producer(["a:9092", "b:9092"], key_serializer=str.encode, value_serializer=OrderFormat())
    orders.start()
    orders.send("orders", Order(1), key="customer")
    outcomes = orders.send_many([ProducerRecord("orders", Order(2), "customer")])
    assert_type(outcomes, list[RecordMetadata | Exception])
    orders.close(timeout=5.0)


def consume_blocking() -> None:
    with blocking.Consumer("localhost:9092", group="billing", value_deserializer=OrderFormat()) as consumer:
        assert_type(consumer, blocking.Consumer[bytes, Order])
        consumer.subscribe(["orders", "returns"], listener=Listener())
        consumer.add_topic("orders", 3)
        assert_type(consumer.poll(timeout=1.0, max_records=100), list[Record[bytes, Order]])
        for record in consumer:
            assert_type(record, Record[bytes, Order])
        assert_type(consumer.getmany(PARTITION), dict[TopicPartition, list[Record[bytes, Order]]])
        print(len(consumer.poll_columns(timeout=1.0, columns=["key", "value"])))
        assert_type(consumer.poll_lines(timeout=1.0, key_separator=b":").value_bytes, memoryview)
        assert_type(consumer.positions(), dict[TopicPartition, int])
        consumer.commit({PARTITION: OffsetAndMetadata(7, "note")}, timeout=1.0)
        consumer.commit_nowait(PARTITION)
        assert_type(consumer.committed(), dict[TopicPartition, OffsetAndMetadata | None])
        assert_type(consumer.rewind({PARTITION: 0}), dict[TopicPartition, int])
        assert_type(consumer.health(), ConsumerHealth)
        assert_type(consumer.position(PARTITION), int)
        consumer.unsubscribe(timeout=1.0)


def administrate_blocking() -> None:
    with blocking.ColumnReader("localhost:9092", fetches=2, isolation_level="read_committed") as ranges:
        for batch in ranges.read("orders", 0, 0, 1_000_000, columns=("value", "offset"), topic_id=None):
            assert_type(batch, ColumnBatch)
    with blocking.Admin("a:9092", client_id="admin") as admin, blocking.Connection("a:9092") as connection:
        assert_type(admin.topics.create("orders", NewTopic("returns", partitions=6)), Outcomes[str, CreatedTopic])
        assert_type(admin.topics.list(timeout=1.0), tuple[TopicDescription, ...])
        assert_type(connection.poll(1.0, MetadataRequest(topics=None)), list[Reply])
        assert_type(connection.offsets_before("orders", 0, -1, 10), list[int])


def consumer_with(**options: Unpack[ConsumerOptions]) -> Consumer:
    return Consumer("localhost:9092", **options)


def clients_with(
    producer: ProducerOptions, admin: AdminOptions, client: ClientOptions
) -> tuple[Producer, Admin, Admin]:
    """Clients with settings that are kept in dictionaries."""
    servers = f"{__version__}.example:9092"
    return Producer(servers, **producer), Admin(servers, **admin), Admin(servers, **client)


SECURITY: SecurityOptions = {"security_protocol": "SSL", "ssl_cafile": "issuer.pem"}
