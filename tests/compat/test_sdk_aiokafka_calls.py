"""Calls that programs and frameworks make of aiokafka, in every order, on aiokafka and on the compatibility module."""

from __future__ import annotations

import asyncio
import gc
import json
import re
from importlib import import_module
from typing import Any

import pytest

from tests.compat.conftest import MakeTopic, unused_name
from tests.compat.test_sdk_aiokafka import COMPAT, RECORDS, Run, fill, in_loop, read


@pytest.fixture(params=["aiokafka", COMPAT], ids=["aiokafka", "compat"])
def library(request: pytest.FixtureRequest) -> Any:
    import_module(f"{request.param}.errors")
    return import_module(request.param)


@pytest.fixture
def compat() -> Any:
    import_module(f"{COMPAT}.errors")
    return import_module(COMPAT)


@pytest.fixture
def run() -> Run:
    return in_loop


# records


@pytest.mark.parametrize("max_records", [1, 5, None])
@pytest.mark.parametrize("bad", [{0}, {7}, {6, 7, 19}])
def test_each_record_is_returned_or_reported_when_a_deserializer_raises(
    compat: Any, address: str, new_topic: MakeTopic, run: Run, bad: set[int], max_records: int | None
) -> None:
    topic, group = new_topic(), unused_name("g")

    async def program() -> None:
        async with compat.AIOKafkaProducer(bootstrap_servers=address) as producer:
            for number in range(RECORDS):
                await producer.send(topic, b"?" if number in bad else json.dumps(number).encode(), partition=0)
        partition, delivered, reported = compat.TopicPartition(topic, 0), [], []
        async with compat.AIOKafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            value_deserializer=json.loads,
            enable_auto_commit=False,
        ) as consumer:
            while len(delivered) + len(reported) < RECORDS:
                try:
                    found = await consumer.getmany(timeout_ms=1000, max_records=max_records)
                except json.JSONDecodeError as error:
                    (note,) = error.__notes__
                    reported.append(int(note.rpartition(" ")[2]))
                else:
                    delivered += [record.value for record in found.get(partition, ())]
                await consumer.commit()
                assert await consumer.committed(partition) == len(delivered) + len(reported)
        assert (delivered, set(reported)) == ([each for each in range(RECORDS) if each not in bad], bad)

    run(program())


def test_records_take_attributes(library: Any, address: str, new_topic: MakeTopic, run: Run) -> None:
    topic = new_topic()

    async def program() -> None:
        await fill(library, address, topic)
        async with library.AIOKafkaConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            for record in (await consumer.getone(), (await read(consumer, 1))[0]):
                record.consumer, record.value = consumer, [record]  # a cycle, which the collector must find
                assert record.consumer is consumer and gc.is_tracked(record)

    run(program())


@pytest.mark.parametrize("how", ["assign", "subscribe", "group"])
def test_a_record_that_is_sent_after_the_start_is_read(compat: Any, address: str, run: Run, how: str) -> None:
    """Also if the topic does not exist before the start, and positions begin at the end."""

    async def program() -> None:
        async with compat.AIOKafkaProducer(bootstrap_servers=address) as producer:
            for _ in range(5):
                topic = unused_name("after-start")
                names, options = ([] if how == "assign" else [topic]), {"group_id": topic} if how == "group" else {}
                consumer = compat.AIOKafkaConsumer(*names, bootstrap_servers=address, **options)
                if how == "assign":
                    consumer.assign([compat.TopicPartition(topic, 0)])
                async with consumer:
                    await producer.send_and_wait(topic, b"x", partition=0)
                    assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"x"

    run(program())


def test_a_seek_is_followed_by_the_records_at_its_offset(
    library: Any, address: str, new_topic: MakeTopic, run: Run
) -> None:
    topic = new_topic()

    async def program() -> None:
        await fill(library, address, topic, 3)
        partition = library.TopicPartition(topic, 0)
        async with library.AIOKafkaConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            for offset in (1, 0, 2):
                assert (await consumer.getone()).partition == 0
                consumer.seek(partition, offset)
                found = await consumer.getmany(timeout_ms=500)
                assert {each: [record.offset for record in records] for each, records in found.items()} == {
                    partition: list(range(offset, 3))
                }
                assert await consumer.getmany() == {}
                await consumer.seek_to_beginning()

    run(program())


def test_errors_of_other_partitions_are_not_raised(library: Any, address: str, new_topic: MakeTopic, run: Run) -> None:
    topic = new_topic(2)

    async def program() -> None:
        await fill(library, address, topic)
        one = library.TopicPartition(topic, 0)
        async with library.AIOKafkaConsumer(
            topic, bootstrap_servers=address, group_id=unused_name("g"), auto_offset_reset="none"
        ) as consumer:
            for _ in range(2):
                with pytest.raises(library.errors.NoOffsetForPartitionError):
                    await consumer.getmany(timeout_ms=1000)
                with pytest.raises(library.errors.NoOffsetForPartitionError):
                    await consumer.getone()
            consumer.seek(one, 19_999)
            for call in (consumer.getone(one), consumer.getmany(one, timeout_ms=5000)):
                with pytest.raises(library.errors.OffsetOutOfRangeError):
                    await call

    run(program())


# producers


def test_results_of_a_producer_are_futures(library: Any, address: str, new_topic: MakeTopic, run: Run) -> None:
    topic = new_topic()

    async def program() -> None:
        for acks, offset in ((1, 0), (0, None)):
            async with library.AIOKafkaProducer(bootstrap_servers=address, acks=acks) as producer:
                future = await producer.send(topic, b"x")
                assert isinstance(future, asyncio.Future)
                done, _ = await asyncio.wait({future})
                assert done == {future}
                metadata = future.result()
                assert (None if metadata is None else metadata.offset) == offset
                batch = producer.create_batch()
                batch.append(timestamp=None, key=None, value=b"y")
                sent = await (await producer.send_batch(batch, topic, partition=0))
                assert (sent is None) is (acks == 0)

    run(program())


def test_an_overridden_send_is_called_by_send_and_wait(
    library: Any, address: str, new_topic: MakeTopic, run: Run
) -> None:
    topic, topics = new_topic(), []

    class Producer(library.AIOKafkaProducer):  # type: ignore[misc, name-defined]
        async def send(self, topic: str, *args: Any, **named: Any) -> Any:
            topics.append(topic)
            return await super().send(topic, *args, **named)

    async def program() -> None:
        async with Producer(bootstrap_servers=address) as producer:
            assert (await producer.send_and_wait(topic, b"x")).offset == 0
        assert topics == [topic]

    run(program())


# subscriptions


@pytest.mark.parametrize("grouped", [False, True], ids=["no group", "group"])
def test_a_pattern_waits_for_its_topics(library: Any, address: str, run: Run, *, grouped: bool) -> None:
    name = unused_name("pattern")

    async def program() -> None:
        group = unused_name("g") if grouped else None
        settings = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 200}
        consumer = library.AIOKafkaConsumer(bootstrap_servers=address, group_id=group, **settings)
        consumer.subscribe(pattern=f"{name}-[0-9]")
        async with consumer, library.AIOKafkaProducer(bootstrap_servers=address) as producer:
            reading = asyncio.ensure_future(consumer.getone())
            assert (await asyncio.wait({reading}, timeout=0.3))[1] == {reading}
            assert consumer.subscription() == set()
            await producer.send_and_wait(f"{name}-7-more", b"x")
            assert (await reading).value == b"x"
            assert consumer.subscription() == consumer._subscription.topics == {f"{name}-7-more"}

    run(program())


def test_internal_topics_match_a_pattern_on_request(library: Any, address: str, new_topic: MakeTopic, run: Run) -> None:
    topic = new_topic()

    async def program() -> None:
        async with library.AIOKafkaConsumer(topic, bootstrap_servers=address, group_id=unused_name("g")) as consumer:
            await consumer.commit({library.TopicPartition(topic, 0): 0})  # the topic of offsets exists
        for excluded in (True, False):
            consumer = library.AIOKafkaConsumer(
                bootstrap_servers=address, group_id=unused_name("g"), exclude_internal_topics=excluded
            )
            consumer.subscribe(pattern=f"^(__consumer_offsets|{topic})$")
            async with consumer:
                assert ("__consumer_offsets" in consumer.subscription()) is not excluded

    run(program())


def test_assign_and_subscribe_follow_unsubscribe_at_once(
    library: Any, address: str, new_topic: MakeTopic, run: Run
) -> None:
    topic = new_topic(2)

    async def program() -> None:
        await fill(library, address, topic)
        one, two = (library.TopicPartition(topic, number) for number in range(2))
        settings = {"group_id": unused_name("g"), "auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with library.AIOKafkaConsumer(topic, bootstrap_servers=address, **settings) as consumer:
            with pytest.raises(library.errors.IllegalStateError):
                consumer.assign([one])
            for each in (one, two):
                consumer.unsubscribe()
                consumer.assign([each])
                assert consumer.assignment() == {each}
                assert {record.partition for record in await read(consumer, RECORDS // 2)} == {each.partition}
                await consumer.commit()
                assert await consumer.position(each) == RECORDS // 2
            consumer.unsubscribe()
            with pytest.raises(library.errors.IllegalStateError, match="Not subscribed to any topics"):
                await consumer.commit({one: 0})
            consumer.subscribe([topic])
            with pytest.raises(library.errors.IllegalStateError, match="No partitions assigned"):
                await consumer.commit({one: 0})
            waiting = asyncio.ensure_future(consumer.getone())
            await fill_more(library, address, topic)
            assert (await waiting).offset == RECORDS // 2

    run(program())


async def fill_more(library: Any, address: str, topic: str) -> None:
    async with library.AIOKafkaProducer(bootstrap_servers=address) as producer:
        await producer.send_and_wait(topic, b"more", partition=0)


def test_partitions_that_are_not_assigned_are_an_illegal_state(
    compat: Any, address: str, new_topic: MakeTopic, run: Run
) -> None:
    library, topic = compat, new_topic(2)
    one, two = (library.TopicPartition(topic, number) for number in range(2))

    async def program() -> None:
        async with library.AIOKafkaConsumer(bootstrap_servers=address) as consumer:
            consumer.assign([one])
            for call in (consumer.seek_to_beginning, consumer.seek_to_end, consumer.seek_to_committed):
                with pytest.raises(library.errors.IllegalStateError):
                    await call(two)
            with pytest.raises(library.IllegalOperation):
                await consumer.seek_to_committed(one)
            with pytest.raises(TypeError, match="TopicPartition instances"):
                await consumer.seek_to_end(1)

    run(program())


# groups


def new_listener(library: Any) -> Any:
    class Listener(library.ConsumerRebalanceListener):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.calls: list[tuple[str, int]] = []
            self.changed = asyncio.Event()

        async def on_partitions_revoked(self, revoked: Any) -> None:
            await asyncio.sleep(0)
            self.calls.append(("revoked", len(revoked)))

        def on_partitions_assigned(self, assigned: Any) -> None:
            self.calls.append(("assigned", len(assigned)))
            self.changed.set()

    return Listener()


def new_member(library: Any, address: str, group: str, listener: Any, topic: str, **settings: Any) -> Any:
    consumer = library.AIOKafkaConsumer(
        bootstrap_servers=address, group_id=group, heartbeat_interval_ms=100, enable_auto_commit=False, **settings
    )
    consumer.subscribe([topic], listener=listener)
    return consumer


def test_listeners_of_members_without_partitions_are_called(
    library: Any, address: str, new_topic: MakeTopic, run: Run
) -> None:
    topic, group = new_topic(), unused_name("g")

    async def program() -> None:
        listeners = [new_listener(library), new_listener(library)]
        first, second = (new_member(library, address, group, each, topic) for each in listeners)
        async with first:
            listeners[0].changed.clear()
            async with second:
                await listeners[0].changed.wait()
                sizes = [len(first.assignment()), len(second.assignment())]
                assert sorted(sizes) == [0, 1]
                assert listeners[1].calls == [("revoked", 0), ("assigned", sizes[1])]
        assert listeners[0].calls[:4] == [("revoked", 0), ("assigned", 1), ("revoked", 1), ("assigned", sizes[0])]

    run(program())


def test_a_static_member_returns_to_its_partitions(compat: Any, address: str, new_topic: MakeTopic, run: Run) -> None:
    library, topic, group = compat, new_topic(2), unused_name("g")

    async def program() -> None:
        listeners = [new_listener(library), new_listener(library)]
        first, second = (
            new_member(library, address, group, each, topic, group_instance_id=f"member-{number}")
            for number, each in enumerate(listeners)
        )
        async with first:
            listeners[0].changed.clear()
            async with second:
                await listeners[0].changed.wait()
                before, owned = list(listeners[0].calls), second.assignment()
                listeners[1].changed.clear()
                second.unsubscribe()
                second.subscribe([topic], listener=listeners[1])
                await listeners[1].changed.wait()
                assert second.assignment() == owned
                assert listeners[1].calls == [("revoked", 0), ("assigned", 1)] * 2
                assert listeners[0].calls == before

    run(program())


# start and stop


def test_a_stop_ends_getmany_without_records(library: Any, address: str, new_topic: MakeTopic, run: Run) -> None:
    topic = new_topic()

    async def program() -> None:
        for auto_commit in (True, False):
            consumer = library.AIOKafkaConsumer(
                topic, bootstrap_servers=address, group_id=unused_name("g"), enable_auto_commit=auto_commit
            )
            await consumer.start()
            waiting = asyncio.ensure_future(consumer.getmany(timeout_ms=60_000))
            assert not (await asyncio.wait({waiting}, timeout=0.1))[0]
            await consumer.stop()
            assert await waiting == {}
            with pytest.raises(library.ConsumerStoppedError):
                await consumer.getmany()

    run(program())


def test_a_second_stop_waits_for_the_first(compat: Any, address: str, new_topic: MakeTopic, run: Run) -> None:
    topic = new_topic()

    async def program() -> None:
        producer = compat.AIOKafkaProducer(bootstrap_servers=address)
        consumer = compat.AIOKafkaConsumer(topic, bootstrap_servers=address, group_id=unused_name("g"))
        await asyncio.gather(producer.start(), consumer.start())
        futures = [await producer.send(topic, b"x") for _ in range(100)]
        first = asyncio.ensure_future(asyncio.gather(producer.stop(), consumer.stop()))
        await asyncio.sleep(0)
        await asyncio.gather(producer.stop(), consumer.stop())
        assert all(each.done() and not each.exception() for each in futures)
        assert consumer._driver.closed
        await first

    run(program())


@pytest.mark.parametrize("name", ["AIOKafkaProducer", "AIOKafkaConsumer"])
def test_a_client_that_is_not_stopped_is_reported(compat: Any, address: str, run: Run, name: str) -> None:
    async def program() -> None:
        messages: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: messages.append(context["message"]))
        client = getattr(compat, name)(bootstrap_servers=address)
        await client.start()
        engine = client._producer if name == "AIOKafkaProducer" else client._consumer
        with pytest.warns(ResourceWarning, match=f"Unclosed {name}"):
            del client
            gc.collect()
        assert messages == [f"Unclosed {name}"]
        await engine.close()

    run(program())


@pytest.mark.parametrize("name", ["AIOKafkaProducer", "AIOKafkaConsumer"])
def test_a_client_may_be_created_before_its_loop_runs(library: Any, address: str, name: str) -> None:
    loop = asyncio.new_event_loop()
    try:
        with pytest.warns(DeprecationWarning, match="loop"):
            client = getattr(library, name)(bootstrap_servers=address, loop=loop)
        loop.run_until_complete(client.start())
        loop.run_until_complete(client.stop())
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("AIOKafkaProducer", {"security_protocol": "SOME"}, "`security_protocol` should be SSL or PLAINTEXT"),
        ("AIOKafkaConsumer", {"security_protocol": "SSL"}, "`ssl_context` is mandatory if security_protocol=='SSL'"),
        (
            "AIOKafkaConsumer",
            {"security_protocol": "SASL_PLAINTEXT"},
            "sasl_plain_username and sasl_plain_password req",
        ),
        ("AIOKafkaProducer", {"acks": 122}, "Invalid ACKS parameter"),
        ("AIOKafkaProducer", {"acks": 1, "enable_idempotence": True}, "acks=1 not supported if enable_idempotence"),
        ("AIOKafkaProducer", {"compression_type": "my_custom"}, "Invalid compression type!"),
        ("AIOKafkaConsumer", {"max_poll_records": 0}, "`max_poll_records` should be positive Integer"),
    ],
)
def test_texts_of_argument_errors(library: Any, run: Run, name: str, arguments: dict[str, Any], text: str) -> None:
    async def program() -> None:
        with pytest.raises(ValueError, match=re.escape(text)):
            getattr(library, name)(**arguments)

    run(program())


def test_texts_of_errors_of_calls(library: Any, address: str, new_topic: MakeTopic, run: Run) -> None:
    topic = new_topic()
    partition = library.TopicPartition(topic, 0)

    async def program() -> None:
        async with library.AIOKafkaConsumer(topic, bootstrap_servers=address, group_id=unused_name("g")) as consumer:
            for offsets, error, text in (
                ({topic: 1}, TypeError, "Key should be TopicPartition instance"),
                ({partition: (0, 1000)}, TypeError, "Metadata should be a string"),
                (
                    {library.TopicPartition(topic, 9): 0},
                    library.errors.IllegalStateError,
                    "Partition .* is not assigned",
                ),
            ):
                with pytest.raises(error, match=text):
                    await consumer.commit(offsets)
            for arguments, subscribed in (
                ({}, "You should provide either `topics` or `pattern`"),
                ({"topics": [topic], "pattern": "x"}, "You can't provide both `topics` and `pattern`"),
                ({"topics": topic}, "Topics should be list of strings"),
                ({"topics": [topic], "listener": object()}, "listener should be an instance of ConsumerRebalance"),
            ):
                with pytest.raises(TypeError, match=subscribed):
                    consumer.subscribe(**arguments)
            with pytest.raises(ValueError, match="is not a valid pattern"):
                consumer.subscribe(pattern="^(spome(")

    run(program())
