"""Transactional batches of clients: verified or added by the coordinator, in every version of Produce."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafkalite.protocol.messages.describe_producers import DescribeProducersRequest
from kafkalite.protocol.messages.end_txn import EndTxnRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.records import Builder, compression
from tests.kit.server import Client, Hub, Wire, fetch_request, fetched, outcomes, produce_request, values_of

TRANSACTION, COMMITTED = 1, 1
TV1, TV2 = 11, 12  # versions of Produce
Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


class Producer:
    """A transactional producer over one connection.

    Attributes:
        epoch: set by a test to act as another producer.
    """

    def __init__(self, client: Client, transactional_id: str = "me") -> None:
        self.client, self.transactional_id = client, transactional_id
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[int, int], int] = {}

    async def init(self, timeout_ms: int = 60_000) -> None:
        while True:
            found = await self.client.call(
                FindCoordinatorRequest(
                    key=self.transactional_id, coordinator_keys=[self.transactional_id], key_type=TRANSACTION
                ),
                4,
            )
            if not found.coordinators[0].error_code:
                break
            await asyncio.sleep(0)
        while True:
            request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms)
            answer = await self.client.call(request, 5)
            if not answer.error_code:
                break
            assert Error(answer.error_code).retriable, Error(answer.error_code)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def batch(self, *values: bytes, partition: int = 0, sequence: int | None = None) -> bytes:
        key = partition, self.epoch
        if sequence is None:
            sequence = self.sequences.get(key, 0)
            self.sequences[key] = sequence + len(values)
        builder = Builder()
        for value in values:
            builder.append(self.client.broker.clock.wall_ms(), None, value)
        return bytes(
            builder.build(
                producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=sequence, transactional=True
            )
        )

    async def produce(self, version: int, *batches: tuple[int, bytes]) -> list[int]:
        """The error codes of a request with (partition, batch)."""
        request = produce_request("t", *batches, transactional_id=self.transactional_id)
        answer = await self.client.call(request, version)
        return [part.error_code for topic in answer.responses for part in topic.partition_responses]

    async def send(self, *values: bytes, version: int = TV2, partition: int = 0) -> int:
        (error,) = await self.produce(version, (partition, self.batch(*values, partition=partition)))
        return error

    async def add(self, *partitions: int) -> list[int]:
        request = AddPartitionsToTxnRequest(
            transactions=[],
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[Topic(name="t", partitions=list(partitions))],
        )
        answer = await self.client.call(request, 3)
        return [
            part.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        ]

    async def end(self, *, commit: bool, version: int = 5) -> int:
        """End the transaction; EndTxn 5 returns the next epoch."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = await self.client.call(request, version)
        if version >= 5 and not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        error: int = answer.error_code
        return error


@pytest.fixture
async def producer(client: Client) -> AsyncIterator[Producer]:
    await client.create("t", partitions=4)
    producer = Producer(client)
    await producer.init()
    yield producer


async def committed(client: Client, partition: int = 0) -> list[bytes]:
    """The values that a read_committed consumer returns."""
    answer = await client.call(fetch_request("t", (partition, 0), isolation_level=COMMITTED), 12)
    part = fetched(answer)["t", partition]
    assert not part.aborted_transactions
    return [value for value in values_of(part.records) if len(value) == 1] if part.records else []


async def open_transactions(client: Client, partition: int = 0) -> dict[int, int]:
    topic = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[partition])
    answer: Any = await client.call(DescribeProducersRequest(topics=[topic]), 0)
    found = answer.topics[0].partitions[0].active_producers
    return {each.producer_id: each.current_txn_start_offset for each in found if each.current_txn_start_offset >= 0}


async def test_tv2_transaction_adds_partitions_with_the_first_batch(client: Client, producer: Producer) -> None:
    epoch = producer.epoch
    assert await producer.produce(TV2, (0, producer.batch(b"a")), (1, producer.batch(b"b", partition=1))) == [0, 0]
    assert await producer.send(b"c") == 0
    assert await open_transactions(client) == {producer.producer_id: 0}
    assert await committed(client) == []
    assert await producer.end(commit=True) == 0
    assert producer.epoch == epoch + 1
    assert (await committed(client), await committed(client, 1)) == ([b"a", b"c"], [b"b"])
    assert await open_transactions(client) == {}


async def test_tv1_transaction_is_verified(client: Client, producer: Producer) -> None:
    assert await producer.add(0) == [0]
    assert await producer.send(b"a", version=TV1) == 0
    assert await producer.send(b"b", version=TV1) == 0
    assert await producer.end(commit=True, version=4) == 0
    assert await committed(client) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("version", "error"),
    [(9, Error.INVALID_TXN_STATE), (10, Error.INVALID_TXN_STATE), (11, Error.TRANSACTION_ABORTABLE)],
)
async def test_partition_that_was_not_added(client: Client, producer: Producer, version: int, error: Error) -> None:
    assert await producer.add(1) == [0]
    assert await producer.send(b"a", version=version) == error
    assert await client.read("t") == []


async def test_transactions_of_one_producer_follow_each_other(client: Client, producer: Producer) -> None:
    values = [b"%d" % number for number in range(10)]
    for value in values:
        assert await producer.send(value) == 0
        assert await producer.end(commit=True) == 0
    assert await committed(client) == values


async def test_epoch_of_the_transaction_before_is_fenced(client: Client, producer: Producer) -> None:
    """A request that was delayed past the end of its transaction (KAFKA-17754): TV2 increments the epoch."""
    late = producer.batch(b"x")
    assert await producer.send(b"b") == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.sequences.clear()
    assert await producer.send(b"a") == 0
    assert await producer.end(commit=False) == 0
    assert await producer.produce(TV2, (0, late)) == [Error.INVALID_PRODUCER_EPOCH]
    assert await producer.send(b"c") == 0
    assert await producer.produce(TV2, (0, late)) == [Error.INVALID_PRODUCER_EPOCH]
    assert await producer.end(commit=True) == 0


async def test_producer_that_was_fenced_by_another_one(client: Client, producer: Producer) -> None:
    other = Producer(client)
    await other.init()
    assert other.epoch > producer.epoch
    assert await producer.send(b"a") == Error.INVALID_PRODUCER_EPOCH
    assert await other.send(b"b") == 0
    assert await producer.send(b"a") == Error.INVALID_PRODUCER_EPOCH


async def test_unknown_transactional_id(client: Client, producer: Producer) -> None:
    other = Producer(client, "nobody")
    other.producer_id, other.epoch = producer.producer_id, producer.epoch
    for version in (TV1, TV2):
        assert await other.produce(version, (0, other.batch(b"a", sequence=0))) == [Error.INVALID_PRODUCER_ID_MAPPING]


async def test_several_producers_in_one_request(client: Client, producer: Producer) -> None:
    other = Producer(client, "other")
    await other.init()
    batches = (0, producer.batch(b"a")), (1, other.batch(b"b", partition=1))
    assert await producer.produce(TV2, *batches) == [Error.INVALID_PRODUCER_ID_MAPPING] * 2
    assert await client.read("t") == []
    older = producer.batch(b"c", partition=1)
    producer.epoch += 1
    newer = producer.batch(b"d", partition=2)
    assert await producer.produce(TV2, (1, older), (2, newer)) == [Error.INVALID_PRODUCER_ID_MAPPING] * 2


async def test_pipelined_batches_keep_their_order(client: Client, producer: Producer) -> None:
    """All are sent before the first one is verified."""
    batches = [producer.batch(b"%d" % number) for number in range(5)]
    assert await asyncio.gather(*(producer.produce(TV2, (0, each)) for each in batches)) == [[0]] * 5
    assert await producer.end(commit=True) == 0
    assert await committed(client) == [b"%d" % number for number in range(5)]


async def test_request_with_all_partitions_appends_few_records(client: Client, producer: Producer) -> None:
    batches = [(index, producer.batch(b"a", partition=index)) for index in range(4)]
    assert await producer.produce(TV2, *batches) == [0] * 4
    assert await producer.end(commit=True) == 0
    assert [await committed(client, index) for index in range(4)] == [[b"a"]] * 4


async def test_request_memory_has_the_waiting_batches(client: Client, producer: Producer) -> None:
    checks = client.broker.replicas.transaction_checks
    asked: list[Any] = []
    checks.check = lambda *_args, on_result, **_named: asked.append(on_result)  # type: ignore[method-assign]
    hub = Hub(client.broker)
    wire, batch = Wire(hub), producer.batch(bytes(100_000))
    wire.send((produce_request("t", (0, batch), transactional_id="me"), TV2))
    assert len(asked) == 1
    assert hub.memory.held_bytes >= 100_000
    asked[0](Error.NOT_COORDINATOR)
    (found,) = outcomes(await wire.answer())
    assert found.error_code == Error.NOT_ENOUGH_REPLICAS
    assert hub.memory.held_bytes == 0


async def test_stop_of_the_broker_ends_waiting_batches(client: Client, producer: Producer) -> None:
    service = client.broker.transactions
    service.add_partitions = lambda *_args: None  # type: ignore[method-assign]
    hub = Hub(client.broker)
    wire = Wire(hub)
    wire.send((produce_request("t", (0, producer.batch(b"a")), transactional_id="me"), TV2))
    assert wire.answers() == []
    client.broker.replicas.close_checks()
    (found,) = outcomes(await wire.answer())
    assert found.error_code == Error.NOT_ENOUGH_REPLICAS


async def test_deleted_topic_ends_waiting_batches(client: Client, producer: Producer) -> None:
    service = client.broker.transactions
    service.add_partitions = lambda *_args: None  # type: ignore[method-assign]
    hub = Hub(client.broker)
    wire = Wire(hub)
    wire.send((produce_request("t", (0, producer.batch(b"a")), transactional_id="me"), TV2))
    assert wire.answers() == []
    await client.delete("t")
    (found,) = outcomes(await wire.answer())
    assert found.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("codec", [compression.GZIP, compression.LZ4, compression.ZSTD])
async def test_compressed_batches_of_many_connections_wait_at_once(client: Client, codec: int) -> None:
    """KAFKA-15653: the buffers of requests are used again while their batches wait."""
    await client.create("t")
    checks, later = client.broker.replicas.transaction_checks, list[Any]()
    ask = checks.check
    checks.check = lambda *args, **named: later.append(lambda: ask(*args, **named))  # type: ignore[method-assign]
    hub, wires, expected = Hub(client.broker), list[Wire](), set[bytes]()
    for number in range(50):
        producer = Producer(client, f"producer-{number}")
        await producer.init()
        builder, value = Builder(), b"%d" % number * 500
        builder.append(client.broker.clock.wall_ms(), None, value)
        fields = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "base_sequence": 0}
        batch = builder.build(codec, transactional=True, **fields)
        wires.append(Wire(hub))
        wires[-1].send((produce_request("t", (0, bytes(batch)), transactional_id=producer.transactional_id), TV2))
        expected.add(value)
    assert len(later) == 50
    for call in later:
        call()
    client.broker.replicas.write_pending()
    for wire in wires:
        assert [found.error_code for found in outcomes(await wire.answer())] == [0]
    assert set(await client.read("t")) == expected


async def test_producer_that_was_aborted_by_its_timeout_receives_a_recoverable_error(
    client: Client, producer: Producer
) -> None:
    """KAFKA-19690: INVALID_PRODUCER_EPOCH, with which clients abort and go on; INVALID_TXN_STATE is fatal."""
    assert await producer.add(0) == [0]
    assert await producer.send(b"a", version=TV1) == 0
    stopped = Producer(client)
    stopped.producer_id, stopped.epoch, stopped.sequences = (
        producer.producer_id,
        producer.epoch,
        {(0, producer.epoch): 1},
    )
    await Producer(client).init()  # aborts, as the timeout does
    for version in (9, TV1, TV2):
        (error,) = await stopped.produce(version, (0, stopped.batch(b"b", sequence=1)))
        assert error == Error.INVALID_PRODUCER_EPOCH
