"""Transactions that a producer leaves open, and another client ends: after crashes, timeouts and fences.

The same stories run on Apache Kafka with AGAINST=kafka (TV2) and AGAINST=kafka-zookeeper (TV1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafkalite_sdk import Consumer, DetachedTransaction, TopicPartition
from kafkalite_sdk.admin import Admin

from kafkalite.errors import (
    ClientUseError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortedError,
)
from tests.compat.conftest import topic_maker
from tests.compat.test_sdk_transactions import (
    LONG_FORM,
    POLL_S,
    SETTINGS,
    MakeTopic,
    lower_level,
    read,
    run,
    transactional,
)
from tests.kit.brokers import AGAINST, Broker, broker_under_test


@pytest.fixture(scope="module", params=[2, pytest.param(1, marks=LONG_FORM)], ids=["TV2", "TV1"])
def transaction_broker(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Broker]:
    with broker_under_test(tmp_path_factory.mktemp("detached"), SETTINGS) as running:
        if request.param == 1 and AGAINST != "kafka-zookeeper":
            lower_level(running.address)
        yield running


@pytest.fixture
def address(transaction_broker: Broker) -> str:
    return transaction_broker.address


@pytest.fixture
def new_topic(address: str, request: pytest.FixtureRequest) -> MakeTopic:
    return topic_maker(address, request.node.originalname)


async def detached(address: str, topic: str, *values: bytes, **options: Any) -> DetachedTransaction:
    """A transaction that its producer has left."""
    async with transactional(address, **options) as producer:
        await producer.begin_transaction()
        for value in values:
            producer.send(topic, value)
        found = await producer.detach_transaction()
        assert found is not None
        with pytest.raises(ClientUseError, match="its transaction is detached"):
            producer.send(topic, b"late")
    return found


def test_a_detached_transaction_is_ended_by_another_client_with_the_same_outcome_each_time(
    address: str, new_topic: MakeTopic
) -> None:
    topic = new_topic()

    async def story() -> None:
        kept = [await detached(address, topic, b"first"), await detached(address, topic, b"second")]
        dropped = await detached(address, topic, b"third")
        assert await read(address, topic) == []
        for _ in range(2):  # a process that has crashed meanwhile repeats its calls
            async with Admin(address) as admin:
                (await admin.transactions.end(*kept, committed=True)).check()
                (await admin.transactions.end(dropped, committed=False)).check()
        assert await read(address, topic) == [b"first", b"second"]
        async with Admin(address) as admin:
            for each, committed in ((kept[0], False), (dropped, True)):
                with pytest.raises((InvalidTxnStateError, ProducerFencedError)):
                    (await admin.transactions.end(each, committed=committed)).check()
        assert await read(address, topic) == [b"first", b"second"]

    run(story())


async def expired(address: str, topic: str) -> None:
    """Wait until the first record of a topic is aborted: a reader passes it."""
    part = TopicPartition(topic, 0)
    async with Consumer(address, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([part])
        while not await consumer.position(part):
            assert not await consumer.poll(POLL_S)


def test_a_detached_transaction_that_has_expired_or_is_fenced_cannot_be_committed(
    address: str, new_topic: MakeTopic
) -> None:
    topic = new_topic()

    async def story() -> None:
        late = await detached(address, topic, b"late", transaction_timeout_ms=300)
        fenced = await detached(address, topic, b"fenced")
        await expired(address, topic)
        async with transactional(address, fenced.transactional_id), Admin(address) as admin:
            outcomes = await admin.transactions.end(late, fenced, committed=True)
        assert len(outcomes.errors) == 2
        for error in outcomes.errors.values():
            assert isinstance(error, InvalidTxnStateError | ProducerFencedError | InvalidProducerEpochError), error
        assert await read(address, topic) == []

    run(story())


def test_a_producer_that_writes_after_the_end_of_its_detached_transaction_is_fenced(
    address: str, new_topic: MakeTopic
) -> None:
    """Version 2 increments the epoch with EndTxn, so a producer that was thought dead opens no second transaction."""
    topic = new_topic()

    async def story() -> None:
        async with transactional(address, retry_backoff_ms=10) as producer, Admin(address) as admin:
            await producer.begin_transaction()
            await producer.send(topic, b"first")
            machine = producer._transactions().machine
            copy = DetachedTransaction(machine.transactional_id, *machine.identity, machine.transaction.version)
            (await admin.transactions.end(copy, committed=True)).check()
            if copy.version == 1:
                return  # its epoch stays: a zombie may open another transaction, which is aborted at its timeout
            with pytest.raises(KafkaError):
                await producer.send(topic, b"zombie")
            with pytest.raises((TransactionAbortedError, ProducerFencedError)):
                await producer.commit_transaction()
            described = await admin.transactions.describe(copy.transactional_id)
            assert not described[copy.transactional_id].is_open
        assert await read(address, topic) == [b"first"]

    run(story())
