"""Transactions of the SDK's producer on a real broker: commits, aborts, offsets, fencing, timeouts, restarts.

The same stories run on Apache Kafka with AGAINST=kafka (TV2) and AGAINST=kafka-zookeeper (TV1). The long form runs them
again on a broker whose `transaction.version` is 1 (TV1).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from kafkalite_sdk import Consumer, Producer, ProducerRecord, TopicPartition
from kafkalite_sdk.admin import Admin, Upgrade

from kafkalite.errors import (
    ClientUseError,
    InvalidTransactionTimeoutError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortedError,
)
from tests.compat.conftest import topic_maker, unused_name
from tests.kit.brokers import AGAINST, Broker, broker_under_test

SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
LONG_FORM = [pytest.mark.torture, pytest.mark.long_form]
STORY_S = 60
POLL_S = 0.1
COMPRESSED = 50  # records of a batch that compresses
_numbers = itertools.count(1)
MakeTopic = Callable[..., str]


def lower_level(address: str) -> None:
    """Finalize version 1 of transactions: clients use TV1."""

    async def change() -> None:
        async with Admin(address) as admin:
            levels = {"transaction.version": 1}
            (await admin.cluster.update_features(levels, upgrade=Upgrade.SAFE_DOWNGRADE)).check()

    asyncio.run(change())


@pytest.fixture(scope="module", params=[2, pytest.param(1, marks=LONG_FORM)], ids=["TV2", "TV1"])
def transaction_broker(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A running broker whose coordinator looks for timed-out transactions ten times a second."""
    with broker_under_test(tmp_path_factory.mktemp("transactions"), SETTINGS) as running:
        if request.param == 1 and AGAINST != "kafka-zookeeper":
            lower_level(running.address)
        yield running


@pytest.fixture
def address(transaction_broker: Broker) -> str:
    return transaction_broker.address


@pytest.fixture
def new_topic(address: str, request: pytest.FixtureRequest) -> MakeTopic:
    return topic_maker(address, request.node.originalname)


def run(story: Awaitable[None]) -> None:
    """Run a story; it fails if the loop reports anything or a task is left."""

    async def main() -> None:
        reports: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
        async with asyncio.timeout(STORY_S):
            await story
        assert asyncio.all_tasks() == {asyncio.current_task()} and not reports

    with asyncio.Runner(debug=True) as runner:
        runner.run(main())


def transactional(address: str, name: str | None = None, **options: Any) -> Producer:
    return Producer(address, transactional_id=name or f"writer-{next(_numbers)}", **options)


async def read(address: str, topic: str, isolation: str = "read_committed", partitions: int = 1) -> list[bytes]:
    """The values of all records up to the end of each partition, in the order of partitions."""
    found: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    async with Consumer(address, isolation_level=isolation, auto_offset_reset="earliest") as consumer:
        parts = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(parts)
        ends = await consumer.end_offsets(parts)
        for part in parts:
            while await consumer.position(part) < ends[part]:
                for each in await consumer.poll(POLL_S):  # it returns nothing where only markers are left
                    found[each.partition].append(each.value or b"")
    return [value for values in found.values() for value in values]


def test_a_commit_makes_all_records_visible_an_abort_none(address: str, new_topic: MakeTopic) -> None:
    topic = new_topic(partitions=3)

    async def story() -> None:
        async with transactional(address) as producer:
            for number in range(4):
                try:
                    async with producer.transaction():
                        for partition in range(3):
                            producer.send(topic, b"%d" % number, partition=partition)
                        await producer.flush()
                        if number % 2:
                            raise ValueError(number)
                except ValueError as error:
                    assert error.args == (number,)
        assert await read(address, topic, partitions=3) == [b"0", b"2"] * 3
        assert await read(address, topic, "read_uncommitted", 3) == [b"0", b"1", b"2", b"3"] * 3

    run(story())


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_of_an_aborted_transaction_are_left_out(
    codec: str, address: str, new_topic: MakeTopic
) -> None:
    """librdkafka#3020: a consumer returned them."""
    topic = new_topic()

    async def story() -> None:
        async with transactional(address, compression_type=codec) as producer:
            for value, committed in ((b"aborted", False), (b"committed", True)):
                await producer.begin_transaction()
                for _ in range(COMPRESSED):
                    producer.send(topic, value * 10)
                await producer.flush()
                await (producer.commit_transaction() if committed else producer.abort_transaction())
        assert await read(address, topic) == [b"committed" * 10] * COMPRESSED
        everything = [b"aborted" * 10] * COMPRESSED + [b"committed" * 10] * COMPRESSED
        assert await read(address, topic, "read_uncommitted") == everything

    run(story())


def test_every_way_to_send_belongs_to_the_transaction(address: str, new_topic: MakeTopic) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    topic = new_topic()

    async def send(producer: Producer) -> None:
        assert (await producer.send(topic, b"awaited")).offset >= 0
        producer.send(topic, b"pipelined")
        await producer.drain()
        await producer.send_many([ProducerRecord(topic, b"many"), ProducerRecord(topic, b"more")])
        await producer.send_columns(topic, pyarrow.table({"value": [b"column"]}))
        producer.send(topic, b"unflushed")

    async def story() -> None:
        async with transactional(address, linger_ms=20) as producer:
            with pytest.raises(KeyError):
                async with producer.transaction():
                    await send(producer)
                    raise KeyError
            async with producer.transaction():
                await send(producer)
        values = [b"awaited", b"pipelined", b"many", b"more", b"column", b"unflushed"]
        assert await read(address, topic) == values
        assert (await read(address, topic, "read_uncommitted"))[:5] == values[:5]

    run(story())


def test_methods_instead_of_a_block(address: str, new_topic: MakeTopic) -> None:
    topic = new_topic()

    async def story() -> None:
        async with transactional(address) as producer:
            with pytest.raises(ClientUseError, match="no transaction is open"):
                producer.send(topic, b"outside")
            with pytest.raises(ClientUseError, match="no transaction is open"):
                await producer.commit_transaction()
            await producer.begin_transaction()
            with pytest.raises(ClientUseError, match="a transaction is open"):
                await producer.begin_transaction()
            producer.send(topic, b"first")
            await producer.commit_transaction()
            await producer.begin_transaction()
            dropped = producer.send(topic, b"second")
            await producer.abort_transaction()
            with pytest.raises(TransactionAbortedError, match="the application has aborted it"):
                await dropped
            async with producer.transaction():
                producer.send(topic, b"third")
                await producer.abort_transaction()
            async with producer.transaction():
                producer.send(topic, b"fourth")
        assert await read(address, topic) == [b"first", b"fourth"]

    run(story())


def test_offsets_are_committed_with_the_records_and_an_abort_returns_the_consumer(
    address: str, new_topic: MakeTopic
) -> None:
    source, target = new_topic(partitions=2), new_topic()
    group = unused_name("group")

    async def story() -> None:
        async with Producer(address) as producer:
            for number in range(10):
                producer.send(source, b"%d" % number, partition=number % 2)
        # A fetch that waits at the end of the log delays the one from the committed offset.
        settings: dict[str, Any] = {
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 20,
        }
        attempts = 0
        async with (
            Consumer(address, group=group, **settings) as consumer,
            transactional(address) as producer,
        ):
            consumer.subscribe(source)
            left = 10
            while left:
                records = await consumer.poll(1.0, max_records=3)
                if not records:
                    continue
                attempts += 1
                try:
                    async with producer.transaction(consumer):
                        for each in records:
                            producer.send(target, each.value)
                        if attempts % 3 == 1:
                            raise RuntimeError("before the offsets")
                        await producer.send_offsets(consumer)
                        if attempts % 3 == 2:
                            raise RuntimeError("behind the offsets")
                    left -= len(records)
                except RuntimeError:
                    continue
            parts = [TopicPartition(source, number) for number in range(2)]
            found = await consumer.committed(parts)
            assert [each.offset for each in found.values() if each is not None] == [5, 5]
        assert sorted(await read(address, target)) == [b"%d" % number for number in range(10)]
        assert len(await read(address, target, "read_uncommitted")) >= 10

    run(story())


def test_a_consumer_that_commits_by_itself_is_rejected(address: str, new_topic: MakeTopic) -> None:
    topic = new_topic()

    async def story() -> None:
        async with Consumer(address, group=unused_name("group")) as consumer, transactional(address) as producer:
            consumer.subscribe(topic)
            with pytest.raises(ClientUseError, match="enable_auto_commit=False"):
                await producer.begin_transaction(consumer)
            async with producer.transaction():
                with pytest.raises(ClientUseError, match="enable_auto_commit=False"):
                    await producer.send_offsets(consumer)

    run(story())


def test_a_stale_member_aborts_the_transaction(address: str, new_topic: MakeTopic) -> None:
    topic, group = new_topic(), unused_name("group")

    async def story() -> None:
        async with (
            Consumer(address, group=group, group_protocol="classic", enable_auto_commit=False) as consumer,
            transactional(address) as producer,
        ):
            consumer.subscribe(topic)
            while not consumer.assignment():
                await consumer.poll(0.1)
            member = consumer.group_metadata()
            with pytest.raises(TransactionAbortedError) as caught:
                async with producer.transaction():
                    producer.send(topic, b"zombie")
                    old = member._replace(generation=member.generation - 1)
                    await producer.send_offsets({TopicPartition(topic, 0): 1}, old)
            assert "ILLEGAL_GENERATION" in str(caught.value)
            async with producer.transaction():
                producer.send(topic, b"member")
                await producer.send_offsets({TopicPartition(topic, 0): 1}, member)
            assert await consumer.committed([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): (1, "", -1)}
        assert await read(address, topic) == [b"member"]

    run(story())


def test_a_second_producer_fences_the_first(address: str, new_topic: MakeTopic) -> None:
    topic, name = new_topic(), unused_name("writer")

    async def story() -> None:
        async with transactional(address, name) as zombie:
            async with zombie.transaction():
                zombie.send(topic, b"before")
            await zombie.begin_transaction()
            await zombie.send(topic, b"zombie")
            async with transactional(address, name) as successor:
                async with successor.transaction():
                    successor.send(topic, b"successor")
                with pytest.raises(ProducerFencedError, match=name) as caught:
                    await zombie.commit_transaction()
                assert "broker" in str(caught.value) and "create another one" in str(caught.value)
                for _ in range(2):
                    with pytest.raises(ProducerFencedError):
                        zombie.send(topic, b"zombie")
                with pytest.raises(ProducerFencedError):
                    await zombie.begin_transaction()
                async with successor.transaction():
                    successor.send(topic, b"again")
        assert await read(address, topic) == [b"before", b"successor", b"again"]

    run(story())


def test_a_transaction_beyond_its_timeout_is_aborted(address: str, new_topic: MakeTopic) -> None:
    topic = new_topic()

    async def story() -> None:
        async with transactional(address, transaction_timeout_ms=500) as producer:
            async with producer.transaction():
                producer.send(topic, b"before")
            with pytest.raises((TransactionAbortedError, ProducerFencedError)) as caught:
                async with producer.transaction():
                    await producer.send(topic, b"late")
                    while True:  # until the coordinator has aborted it
                        if b"marker" in await read(address, topic):
                            break
                        async with Producer(address) as other:
                            await other.send(topic, b"marker")
            if isinstance(caught.value, TransactionAbortedError):  # TV1 reports it like another producer
                async with producer.transaction():
                    producer.send(topic, b"after")
        values = [each for each in await read(address, topic) if each != b"marker"]
        assert values in ([b"before", b"after"], [b"before"])

    run(story())


def test_a_timeout_above_the_limit_is_an_error_of_start(address: str) -> None:
    async def story() -> None:
        producer = transactional(address, transaction_timeout_ms=2**31 - 1)
        with pytest.raises(InvalidTransactionTimeoutError, match="writer-"):
            await producer.start()
        with pytest.raises(InvalidTransactionTimeoutError):
            await producer.start()
        await producer.close()

    run(story())


@pytest.mark.parametrize("phase", ["send", "drain", "flush", "offsets", "commit", "before EndTxn"])
def test_a_cancellation_aborts_or_commits_and_the_next_transaction_works(
    address: str, new_topic: MakeTopic, phase: str
) -> None:
    topic, group = new_topic(), unused_name("group")

    async def story() -> None:
        entered = asyncio.Event()

        async def work(producer: Producer) -> None:
            async with producer.transaction():
                producer.send(topic, b"cancelled")
                entered.set()
                if phase == "send":
                    await producer.send(topic, b"cancelled too")
                    await asyncio.Event().wait()
                elif phase == "drain":
                    while True:
                        producer.send(topic, b"x" * 1000)
                        await producer.drain()
                        await asyncio.sleep(0)
                elif phase == "flush":
                    await producer.flush()
                    await asyncio.Event().wait()
                elif phase == "offsets":
                    await producer.send_offsets({TopicPartition(topic, 0): 1}, group)
                    await asyncio.Event().wait()
                elif phase == "commit":
                    await producer.flush()

        async with transactional(address) as producer:
            for iterations in (0, 5, 50):
                entered.clear()
                task = asyncio.create_task(work(producer))
                await entered.wait()
                for _ in range(iterations):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait((task,))
                async with producer.transaction():
                    producer.send(topic, b"next")
        values = await read(address, topic)
        assert values.count(b"next") == 3
        if phase not in ("commit", "before EndTxn"):
            assert set(values) == {b"next"}

    run(story())


def test_a_close_aborts_the_open_transaction(address: str, new_topic: MakeTopic) -> None:
    topic = new_topic()

    async def story() -> None:
        async with transactional(address) as producer:
            await producer.begin_transaction()
            await producer.send(topic, b"open")
        assert await read(address, topic) == []  # the end of committed records is behind it

    run(story())


def test_errors_of_a_rejected_record_abort(address: str, new_topic: MakeTopic) -> None:
    topic, small = new_topic(), new_topic(**{"max.message.bytes": "1000"})

    async def story() -> None:
        async with transactional(address) as producer:
            for _ in range(2):
                with pytest.raises(TransactionAbortedError, match="MESSAGE_TOO_LARGE") as caught:
                    async with producer.transaction():
                        producer.send(topic, b"good")
                        producer.send(small, b"x" * 2000)
                assert isinstance(caught.value.__cause__, KafkaError)
                async with producer.transaction():
                    producer.send(topic, b"next")
                    producer.send(small, b"next")
        assert await read(address, topic) == [b"next"] * 2
        assert await read(address, small) == [b"next"] * 2

    run(story())


@pytest.mark.torture
@pytest.mark.long_form
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_transactions_continue_over_a_restart_of_the_broker(tmp_path_factory: pytest.TempPathFactory, end: str) -> None:
    with broker_under_test(tmp_path_factory.mktemp("restart"), SETTINGS) as broker:
        topic = topic_maker(broker.address, "restart")()

        async def story() -> None:
            committed = []
            async with transactional(broker.address, retry_backoff_ms=20) as producer:
                for number in range(6):
                    value = b"%d" % number
                    try:
                        async with producer.transaction():
                            await producer.send(topic, value)
                            if number in (1, 3):
                                await asyncio.to_thread(getattr(broker, end))
                                await asyncio.to_thread(broker.start)
                            producer.send(topic, value)
                    except TransactionAbortedError:
                        continue
                    committed += [value, value]
            assert len(committed) >= 8
            assert await read(broker.address, topic) == committed

        run(story())
