"""Programs for aiokafka give the same results on aiokafka and on the compatibility module."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

import pytest

from kafkalite.errors import ClientUseError
from tests.compat.conftest import MakeTopic, unused_name
from tests.kit import aiokafka_examples

COMPAT = "kafkalite_sdk.compat.aiokafka"
RECORDS = 20
Run = Callable[[Awaitable[None]], None]


@pytest.fixture(params=["aiokafka", COMPAT], ids=["aiokafka", "compat"])
def library(request: pytest.FixtureRequest) -> Any:
    return import_module(request.param)


def in_loop(program: Awaitable[None]) -> None:
    """Run a program in an event loop of its own, for at most a minute."""

    async def main() -> None:
        async with asyncio.timeout(60):
            await program

    asyncio.run(main())


@pytest.fixture
def run() -> Run:
    return in_loop


async def fill(library: Any, address: str, topic: str, count: int = RECORDS) -> None:
    """Send records to a topic; partition by number."""
    async with library.AIOKafkaProducer(bootstrap_servers=address) as producer:
        partitions = await producer.partitions_for(topic)
        futures = [
            await producer.send(topic, b"%d" % number, key=b"k%d" % number, partition=number % len(partitions))
            for number in range(count)
        ]
        await producer.flush()
        assert [each.result().offset for each in futures] == [number // len(partitions) for number in range(count)]


async def read(consumer: Any, count: int) -> list[Any]:
    """The next records of `getmany`."""
    found: list[Any] = []
    while len(found) < count:
        for records in (await consumer.getmany(timeout_ms=1000)).values():
            found += records
    return found


def test_records_and_metadata(library: Any, address: str, new_topic: MakeTopic, run: Run) -> None:
    topic = new_topic(**{"retention.ms": "-1"})  # the record is of 1970

    async def program() -> None:
        producer = library.AIOKafkaProducer(
            bootstrap_servers=address,
            enable_idempotence=True,
            compression_type="lz4",
            key_serializer=str.encode,
            value_serializer=lambda value: repr(value).encode(),
        )
        await producer.start()
        assert producer._closed is False
        sent = await producer.send_and_wait(topic, [1, 2], key="key", timestamp_ms=1234567, headers=[("h", b"x")])
        assert (sent.topic, sent.partition, sent.offset, sent.timestamp, sent.timestamp_type) == (
            topic,
            0,
            0,
            1234567,
            0,
        )
        assert sent.topic_partition == library.TopicPartition(topic, 0)
        batch = producer.create_batch()
        for number in range(3):
            assert batch.append(timestamp=None, key=f"k{number}", value=number).offset == number
        assert (await (await producer.send_batch(batch, topic, partition=None))).offset == 1
        with pytest.raises(AssertionError):
            await producer.send(topic)
        await producer.stop()
        assert producer._closed is True
        consumer = library.AIOKafkaConsumer(
            topic,
            bootstrap_servers=address,
            auto_offset_reset="earliest",
            key_deserializer=bytes.decode,
            value_deserializer=lambda value: eval(value.decode()),
        )
        async with consumer:
            first = await consumer.getone()
            fields = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "checksum")
            assert [getattr(first, name) for name in fields] == [topic, 0, 0, 1234567, 0, "key", [1, 2], None]
            assert (first.serialized_key_size, first.serialized_value_size) == (3, 6)
            assert first.headers == (("h", b"x"),)
            assert [(await anext(consumer)).value for _ in range(3)] == [0, 1, 2]
        with pytest.raises(library.ConsumerStoppedError):
            await consumer.getone()

    run(program())


def test_positions(library: Any, address: str, new_topic: MakeTopic, run: Run) -> None:
    topic = new_topic(2)
    one, two = (library.TopicPartition(topic, number) for number in range(2))

    async def program() -> None:
        await fill(library, address, topic)
        half = RECORDS // 2
        consumer = library.AIOKafkaConsumer(
            bootstrap_servers=address, group_id=unused_name("g"), auto_offset_reset="earliest", enable_auto_commit=False
        )
        consumer.assign([one, two])
        async with consumer:
            assert consumer.assignment() == {one, two}
            assert await consumer.committed(one) is None
            first = await consumer.getmany(one, timeout_ms=10_000, max_records=3)
            assert {each: [record.offset for record in records] for each, records in first.items()} == {one: [0, 1, 2]}
            assert (await consumer.getone(two)).offset == 0
            assert (await consumer.position(one), await consumer.position(two)) == (3, 1)
            await consumer.commit()
            assert (await consumer.committed(one), await consumer.committed(two)) == (3, 1)
            await consumer.commit({one: (2, "text"), two: 5})
            assert await consumer.seek_to_committed() == {one: 2, two: 5}
            assert (await consumer.getone(one)).offset == 2
            consumer.seek(one, 4)
            consumer.pause(one)
            assert consumer.paused() == {one}
            assert [record.offset for record in await read(consumer, half - 5)] == list(range(5, half))
            consumer.resume(one)
            assert [record.offset for record in await read(consumer, half - 4)] == list(range(4, half))
            await consumer.seek_to_beginning(one)
            assert (await consumer.getone(one)).offset == 0
            await consumer.seek_to_end(one)
            assert await consumer.position(one) == half
            assert await consumer.beginning_offsets([one, two]) == {one: 0, two: 0}
            assert await consumer.end_offsets([one, two]) == {one: half, two: half}
            found = await consumer.offsets_for_times({one: 0, two: 1 << 42})
            assert found[one].offset == 0 and found[two] is None
            assert consumer.highwater(two) == half
            with pytest.raises(library.errors.IllegalStateError):
                consumer.seek(library.TopicPartition(topic, 9), 0)
            with pytest.raises(library.errors.IllegalStateError):
                await consumer.commit({library.TopicPartition(topic, 9): 0})

    import_module(f"{library.__name__}.errors")
    run(program())


def test_a_group_rebalances_while_its_member_does_not_poll(
    library: Any, address: str, new_topic: MakeTopic, run: Run
) -> None:
    topic, group = new_topic(2), unused_name("g")
    calls: list[tuple[str, int]] = []
    halved = asyncio.Event()

    class Listener(library.ConsumerRebalanceListener):  # type: ignore[misc, name-defined]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            calls.append(("revoked", len(revoked)))

        def on_partitions_assigned(self, assigned: Any) -> None:
            calls.append(("assigned", len(assigned)))
            if len(assigned) == 1:
                halved.set()

    def member(*topics: str) -> Any:
        return library.AIOKafkaConsumer(
            *topics, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", heartbeat_interval_ms=100
        )

    async def program() -> None:
        await fill(library, address, topic)
        first = member()
        first.subscribe([topic], listener=Listener())
        await first.start()
        assert len(first.assignment()) == 2 and first.subscription() == {topic}
        assert first._coordinator.member_id
        assert len(await read(first, RECORDS)) == RECORDS
        async with member(topic) as second:
            assert len(second.assignment()) == 1
            await halved.wait()
            assert first.assignment().isdisjoint(second.assignment())
            await first.stop()
            while len(second.assignment()) != 2:
                await second.getmany(timeout_ms=50)
            assert await second.getmany(timeout_ms=100) == {}  # automatic commits at the rebalance
        assert calls == [("revoked", 0), ("assigned", 2), ("revoked", 2), ("assigned", 1)]

    run(program())


def test_stop_inside_a_listener_is_an_error(address: str, new_topic: MakeTopic, run: Run) -> None:
    """It would wait for itself: during `start`, and between polls."""
    library = import_module(COMPAT)
    topic, group = new_topic(2), unused_name("g")
    errors: list[str] = []
    halved = asyncio.Event()

    def member() -> Any:
        return library.AIOKafkaConsumer(bootstrap_servers=address, group_id=group, heartbeat_interval_ms=100)

    async def program() -> None:
        first, second = member(), member()

        class Listener(library.ConsumerRebalanceListener):  # type: ignore[misc, name-defined]
            async def on_partitions_revoked(self, revoked: Any) -> None:
                pass

            async def on_partitions_assigned(self, assigned: Any) -> None:
                with pytest.raises(ClientUseError) as raised:
                    await first.stop()
                errors.append(str(raised.value))
                if len(assigned) == 1:
                    halved.set()

        first.subscribe([topic], listener=Listener())
        second.subscribe([topic])
        await first.start()
        async with second:
            await halved.wait()
            assert errors == ["a rebalance listener runs; call stop() after it has returned"] * 2
            await first.stop()
            while len(second.assignment()) != 2:
                await second.getmany(timeout_ms=50)

    run(program())


def test_a_pattern_without_a_group_follows_new_topics(
    library: Any, address: str, new_topic: MakeTopic, run: Run
) -> None:
    first = new_topic(2)

    async def program() -> None:
        consumer = library.AIOKafkaConsumer(
            bootstrap_servers=address, auto_offset_reset="earliest", metadata_max_age_ms=200
        )
        consumer.subscribe(pattern=f"^{first}")
        async with consumer:
            await fill(library, address, first)
            assert len(await read(consumer, RECORDS)) == RECORDS
            assert first in await consumer.topics()
            with pytest.raises(library.IllegalOperation):
                await consumer.commit()

    run(program())


def test_a_waiting_consumer_ends_when_it_is_stopped(library: Any, address: str, new_topic: MakeTopic, run: Run) -> None:
    topic = new_topic()

    async def program() -> None:
        consumer = library.AIOKafkaConsumer(topic, bootstrap_servers=address)
        await consumer.start()

        async def iterate() -> list[Any]:
            return [record async for record in consumer]

        iteration, waiter = asyncio.ensure_future(iterate()), asyncio.ensure_future(consumer.getmany(timeout_ms=60_000))
        await asyncio.sleep(0)
        await consumer.stop()
        assert await iteration == []
        ended = await asyncio.gather(waiter, return_exceptions=True)
        assert isinstance(ended[0], library.ConsumerStoppedError) or ended == [{}]

    run(program())


def test_unsubscribe_and_stop_wait_for_no_record(library: Any, address: str, new_topic: MakeTopic, run: Run) -> None:
    topic = new_topic()

    async def program() -> None:
        consumer = library.AIOKafkaConsumer(topic, bootstrap_servers=address, group_id=unused_name("g"))
        await consumer.start()
        waiter = asyncio.ensure_future(consumer.getone())
        await asyncio.sleep(0)
        consumer.unsubscribe()
        await consumer.stop()
        with pytest.raises((library.ConsumerStoppedError, library.errors.IllegalStateError)):
            await waiter

    import_module(f"{library.__name__}.errors")
    run(program())


def test_a_stopped_consumer_returns_no_record_that_it_has_fetched(
    library: Any, address: str, new_topic: MakeTopic, run: Run
) -> None:
    topic = new_topic()

    async def program() -> None:
        await fill(library, address, topic)
        consumer = library.AIOKafkaConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest")
        await consumer.start()
        assert (await consumer.getone()).offset == 0
        await consumer.stop()
        with pytest.raises(library.ConsumerStoppedError):
            await consumer.getone()

    run(program())


def test_errors_of_records(library: Any, address: str, new_topic: MakeTopic, run: Run) -> None:
    topic = new_topic(**{"max.message.bytes": "1000"})
    errors = import_module(f"{library.__name__}.errors")

    async def program() -> None:
        async with library.AIOKafkaProducer(bootstrap_servers=address, max_request_size=20_000) as producer:
            with pytest.raises(errors.MessageSizeTooLargeError):
                await producer.send(topic, bytes(30_000))
            with pytest.raises(errors.MessageSizeTooLargeError):
                await producer.send_and_wait(topic, bytes(10_000))
            assert (await producer.send_and_wait(topic, b"small")).offset == 0
        unreachable = library.AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
        with pytest.raises(errors.KafkaConnectionError):
            await unreachable.start()
        await unreachable.stop()

    run(program())


def test_administration(library: Any, address: str, run: Run) -> None:
    admin_module = import_module(f"{library.__name__}.admin")
    resources = import_module(f"{library.__name__}.admin.config_resource")
    topic, group = unused_name("admin"), unused_name("g")
    one = library.TopicPartition(topic, 0)

    async def program() -> None:
        admin = admin_module.AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        new = admin_module.NewTopic(topic, 1, 1, topic_configs={"retention.ms": "60000"})
        created = (await admin.create_topics([new])).to_object()["topic_errors"]
        assert [(each["topic"], each["error_code"]) for each in created] == [(topic, 0)]
        assert (await admin.create_topics([new])).to_object()["topic_errors"][0]["error_code"] == 36
        await admin.create_partitions({topic: admin_module.NewPartitions(2)})
        assert topic in await admin.list_topics()
        found = (await admin.describe_topics([topic]))[0]
        assert (found["topic"], found["error_code"], len(found["partitions"])) == (topic, 0, 2)
        assert set(found["partitions"][0]) >= {"partition", "leader", "replicas", "isr"}
        cluster = await admin.describe_cluster()
        assert cluster["controller_id"] in {each["node_id"] for each in cluster["brokers"]}
        resource = resources.ConfigResource(resources.ConfigResourceType.TOPIC, topic, {"retention.ms": ""})
        entry = (await admin.describe_configs([resource]))[0].resources[0][4][0]
        assert tuple(entry[:2]) == ("retention.ms", "60000")
        changed = resources.ConfigResource("topic", topic, {"retention.ms": "70000"})
        assert (await admin.alter_configs([changed]))[0].resources[0][0] == 0
        entry = (await admin.describe_configs([resource]))[0].resources[0][4][0]
        assert tuple(entry[:2]) == ("retention.ms", "70000")
        await fill(library, address, topic, 4)
        async with library.AIOKafkaConsumer(
            topic, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest"
        ) as consumer:
            await read(consumer, 4)
            await consumer.commit()
            described = (await admin.describe_consumer_groups([group]))[0].groups[0]
            assert described[:3] == (0, group, "Stable") and len(described[5]) == 1
        assert (group, "consumer") in await admin.list_consumer_groups()
        assert await admin.find_coordinator(group) in {each["node_id"] for each in cluster["brokers"]}
        assert (await admin.list_consumer_group_offsets(group))[one].offset == 2
        assert (await admin.list_consumer_group_offsets(group, partitions=[one]))[one].offset == 2
        assert await admin.delete_records({one: admin_module.RecordsToDelete(1)}) == {one: 1}
        deleted = (await admin.delete_topics([topic])).to_object()["topic_error_codes"]
        assert [(each["topic"], each["error_code"]) for each in deleted] == [(topic, 0)]
        await admin.close()

    run(program())


def weighted_assignor(package: str, weight: int, assigned: list[Any]) -> Any:
    """An assignor that gives each member as many partitions as its weight, which is the user data of its subscription.

    The user data of an assignment is the number of members. `assigned`: what `on_assignment` has received.
    """
    base = import_module(f"{package}.coordinator.assignors.abstract").AbstractPartitionAssignor
    protocol = import_module(f"{package}.coordinator.protocol")

    class Weighted(base):  # type: ignore[misc, name-defined]
        name = "weighted"

        @classmethod
        def assign(cls, cluster: Any, members: Any) -> Any:
            (topic,) = {topic for member in members.values() for topic in member.subscription}
            left = sorted(cluster.partitions_for_topic(topic))
            found = {}
            for member_id, member in members.items():
                count = int(member.user_data) if len(members) > 1 else len(left)
                data = b"%d" % len(members)
                found[member_id] = protocol.ConsumerProtocolMemberAssignment(0, [(topic, left[:count])], data)
                left = left[count:]
            return found

        @classmethod
        def metadata(cls, topics: Any) -> Any:
            return protocol.ConsumerProtocolMemberMetadata(0, list(topics), b"%d" % weight)

        @classmethod
        def on_assignment(cls, assignment: Any) -> None:
            assigned.append((set(assignment.partitions()), assignment.user_data))

    return Weighted


@pytest.mark.parametrize(
    "packages", [("aiokafka", "aiokafka"), (COMPAT, COMPAT), (COMPAT, "aiokafka"), ("aiokafka", COMPAT)]
)
def test_a_group_with_a_user_defined_assignor(
    packages: tuple[str, str], address: str, new_topic: MakeTopic, run: Run
) -> None:
    """The first member leads the group. Members of both clients understand each other."""
    topic, group = new_topic(4), unused_name("g")
    assigned: list[list[Any]] = [[], []]

    def member(number: int) -> Any:
        return import_module(packages[number]).AIOKafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            heartbeat_interval_ms=100,
            partition_assignment_strategy=[weighted_assignor(packages[number], 3 - 2 * number, assigned[number])],
        )

    async def program() -> None:
        first, second = member(0), member(1)
        async with first:
            assert len(first.assignment()) == 4
            async with second:
                while len(first.assignment()) != 3:
                    await first.getmany(timeout_ms=50)
                assert len(second.assignment()) == 1
                for found, consumer in zip(assigned, (first, second), strict=True):
                    assert found[-1] == (consumer.assignment(), b"2")
        assert assigned[0][0][1] == b"1"

    run(program())


@pytest.mark.parametrize("runner", [[], [COMPAT]], ids=["aiokafka", "compat"])
def test_a_faststream_application_runs_unedited(runner: list[str], address: str) -> None:
    command = [sys.executable, "-m", *runner, "tests.kit.faststream_app", address, unused_name("app")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1].split() == [(runner or ["aiokafka"])[0], "True"], ran.stdout


@pytest.mark.parametrize("module", ["aiokafka", COMPAT], ids=["aiokafka", "compat"])
def test_programs_after_the_examples_of_aiokafka(module: str, address: str) -> None:
    assert asyncio.run(aiokafka_examples.found_by(module, address, unused_name("x"))) == aiokafka_examples.EXPECTED
