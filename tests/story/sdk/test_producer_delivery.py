"""What a producer sends, when, and what its awaitables report; in virtual time."""

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any

import pytest
from kafkalite_sdk._speedups.deliveries import FutureRecordMetadata, RecordMetadata
from kafkalite_sdk.producer.producer import Producer, ProducerRecord

from kafkalite._speedups.records.batches import Batch
from kafkalite.errors import BufferExhaustedError, KafkaErrorCode, KafkaTimeoutError, error_class
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.producer_rig import new_producer, numbers, producing, values


def batches_of(world: Story) -> list[Batch]:
    """All batches of all Produce requests, in order."""
    return [
        Batch(bytes(partition.records))
        for each in world.broker.requests(ProduceRequest)
        for topic in each.request.topic_data
        for partition in topic.partition_data
    ]


@story()
async def test_awaitables_report_where_their_records_are(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    async with producing(world) as producer:
        sent = [producer.send("orders", value, partition=1, timestamp_ms=5) for value in numbers(3)]
        metadata = await asyncio.gather(*sent)
        assert [(each.topic, each.partition, each.offset, each.timestamp_ms) for each in metadata] == [
            ("orders", 1, number, 5) for number in range(3)
        ]
        assert values(world, partition=1) == numbers(3)


@story()
async def test_batches_linger_from_their_first_record(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world, linger_ms=100) as producer:
        await producer.send("orders", b"first")
        began = world.now
        for value in numbers(9):
            producer.send("orders", value)
            await pass_time(0.01)
        await producer.send("orders", b"last")
        assert 0.098 <= world.now - began <= 0.11
        assert [len(batch) for batch in batches_of(world)] == [1, 10]


@story()
async def test_without_linger_the_records_of_one_iteration_leave_together(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world, linger_ms=0) as producer:
        await producer.send("orders", b"first")
        began = world.now
        for value in numbers(5):
            producer.send("orders", value)
        await producer.send("orders", b"last")
        assert world.now - began < 0.01
        assert [len(batch) for batch in batches_of(world)] == [1, 6]


@story()
async def test_flush_ends_the_linger_time_and_covers_earlier_records_only(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world, linger_ms=10_000) as producer:
        early = [producer.send("orders", value) for value in numbers(5)]
        flushing = asyncio.ensure_future(producer.flush())
        stalled = world.broker.on(ProduceRequest, skip=1, stall=True)
        await flushing
        assert world.now < 1 and all(future.done() for future in early)
        late = producer.send("orders", b"late")
        second = asyncio.ensure_future(producer.flush())
        await stalled.reached()
        assert not late.done() and not second.done()
        stalled.release()
        await second
        assert late.done()


@story()
async def test_flush_of_nothing_ends_at_once_and_its_timeout_is_kept(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world) as producer:
        await producer.flush()
        rule = world.broker.on(ProduceRequest, stall=True)
        producer.send("orders", b"v")
        with pytest.raises(KafkaTimeoutError, match="flush"):
            await producer.flush(timeout=0.5)
        rule.release()
        await producer.flush()


@story(nodes=3)
async def test_records_before_the_metadata_keep_their_order_behind_it(world: Story) -> None:
    world.broker.cluster.auto_create = 3
    async with producing(world) as producer:
        early = [producer.send("orders", value, key=b"k") for value in numbers(50)]
        await early[0]
        late = [producer.send("orders", value, key=b"k") for value in numbers(50, 50)]
        metadata = [await future for future in [*early, *late]]
        assert [each.offset for each in metadata] == list(range(100))
        assert values(world, partition=metadata[0].partition) == numbers(100)


@story()
async def test_a_topic_is_not_created_if_the_application_forbids_it(world: Story) -> None:
    world.broker.cluster.auto_create = 3
    async with producing(world, allow_auto_create_topics=False, max_block_ms=2000) as producer:
        with pytest.raises(KafkaTimeoutError, match="orders: no metadata within 2 s"):
            await producer.send("orders", b"v")
    assert "orders" not in world.broker.cluster.topics


@story()
async def test_a_topic_that_does_not_exist_fails_its_records_only(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world, max_block_ms=2000) as producer:
        missing = producer.send("missing", b"v")
        assert (await producer.send("orders", b"v")).offset == 0
        assert not missing.done()
        with pytest.raises(KafkaTimeoutError, match="missing: no metadata within 2 s"):
            await missing
        assert 2 <= world.now < 2.1
        world.broker.cluster.create_topic("missing")
        assert (await producer.send("missing", b"v")).offset == 0


@story()
async def test_an_invalid_topic_fails_at_once(world: Story) -> None:
    world.broker.on(MetadataRequest, skip=1, times=None, error=KafkaErrorCode.INVALID_TOPIC_EXCEPTION)
    async with producing(world) as producer:
        with pytest.raises(
            error_class(KafkaErrorCode.INVALID_TOPIC_EXCEPTION),
            match="topic 'bad topic': the topic name or",
        ):
            await producer.send("bad topic", b"v")
        assert world.now < 1


@story(nodes=2)
async def test_drain_waits_until_half_of_the_buffer_is_free(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world, buffer_memory=20_000, batch_size=2000) as producer:
        await producer.send("orders", b"first")
        rule = world.broker.on(ProduceRequest, stall=True, times=None)
        while producer.metrics().buffered_bytes < 20_000:
            await asyncio.wait_for(producer.drain(), 0.001)
            producer.send("orders", bytes(100))
        with pytest.raises(BufferExhaustedError, match=r"await drain\(\)"):
            producer.send("orders", bytes(100))
        draining = asyncio.ensure_future(producer.drain())
        await rule.reached()
        assert not draining.done()
        rule.release()
        await draining
        assert producer.metrics().drains_waited == 1
        assert 0 < producer.metrics().buffered_bytes <= 10_000


@story()
async def test_drain_ends_at_its_deadline(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world, buffer_memory=5000, max_block_ms=3000) as producer:
        await producer.send("orders", b"first")
        rule = world.broker.on(ProduceRequest, stall=True, times=None)
        with pytest.raises(BufferExhaustedError):
            while True:
                producer.send("orders", bytes(100))
        began = world.now
        with pytest.raises(KafkaTimeoutError, match="no space within max_block_ms"):
            await producer.drain()
        assert 3 <= world.now - began < 3.1
        rule.release()


@story(nodes=2)
async def test_a_topic_without_a_leader_delays_no_other(world: Story) -> None:
    world.broker.cluster.create_topic("leaderless", leaders=[-1])
    world.broker.cluster.create_topic("orders")
    async with producing(world, buffer_memory=20_000, max_block_ms=5000) as producer:
        waiting = []
        with pytest.raises(BufferExhaustedError, match="leaderless has no leader"):
            while True:
                waiting.append(producer.send("leaderless", bytes(100)))
        assert 10_000 <= producer.metrics().buffered_bytes < 10_500
        blocked = asyncio.ensure_future(producer.drain())
        await asyncio.sleep(0)
        for number in range(50):
            future = producer.send("orders", bytes(100))
            await producer.drain()
            assert (await future).offset == number
        assert not blocked.done() and world.now < 2
        world.broker.cluster.move_leader("leaderless", 0, 1)
        await blocked
        await asyncio.gather(*waiting)


@story(nodes=2)
async def test_send_many_returns_every_outcome_in_order(world: Story) -> None:
    world.broker.cluster.create_topic("a", 2)
    world.broker.cluster.create_topic("b")
    with_b = {"when": lambda request: any(topic.name == "b" for topic in request.topic_data)}
    world.broker.on(ProduceRequest, error=KafkaErrorCode.INVALID_RECORD, partitions=[("b", 0)], **with_b)
    async with producing(world, buffer_memory=3000, linger_ms=60_000, max_request_size=1000) as producer:
        records = [ProducerRecord("a", value, partition=0) for value in numbers(100)]
        records += [
            ProducerRecord("b", b"rejected"),
            ProducerRecord("a", b"no such partition", partition=7),
            ProducerRecord("a", bytes(2000)),
            ProducerRecord("a", "text"),
            ("a", b"tuple", b"key", 1, 77, [("h", b"x")]),
        ]
        outcomes = await producer.send_many(records)
        assert [each.offset for each in outcomes[:100]] == list(range(100))
        assert [type(each).__name__ for each in outcomes[100:104]] == [
            "InvalidRecordError",
            "ValueError",
            "MessageTooLargeError",
            "TypeError",
        ]
        assert (outcomes[104].partition, outcomes[104].timestamp_ms) == (1, 77)
        await producer.flush()  # nothing is left to raise


@story()
async def test_send_many_waits_for_its_own_records_alone(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world, max_block_ms=4000, linger_ms=60_000, allow_auto_create_topics=False) as producer:
        await asyncio.gather(producer.send("orders", b"first"), producer.flush())
        other = producer.send("unknown", b"v")
        began = world.now
        outcomes = await producer.send_many([ProducerRecord("orders", b"v")] * 3)
        assert [outcome.offset for outcome in outcomes if isinstance(outcome, RecordMetadata)] == [1, 2, 3]
        assert world.now - began < 0.1 and not other.done()
        await asyncio.wait([other])  # type: ignore[type-var]


@story()
async def test_send_many_ends_when_the_buffer_stays_full(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world, buffer_memory=2000, max_block_ms=1000, delivery_timeout_ms=40_000) as producer:
        await producer.send("orders", b"first")
        world.broker.nodes[1].freeze()
        outcomes = await producer.send_many(ProducerRecord("orders", bytes(100)) for _ in range(100))
        assert len(outcomes) == 100 and all(isinstance(each, KafkaTimeoutError) for each in outcomes)
        assert world.now < 75
        world.broker.nodes[1].thaw()


@story(nodes=3)
async def test_partitions_that_are_added_under_load_get_records(world: Story) -> None:
    topic = world.broker.cluster.create_topic("orders", 2)
    async with producing(world, metadata_max_age_ms=1000, batch_size=300, linger_ms=1) as producer:
        sent = []
        for number in range(400):
            if number == 100:
                world.broker.cluster.add_partitions("orders", 6)
            sent.append(producer.send("orders", b"%d" % number, key=b"k%d" % number))
            await pass_time(0.01)
        metadata = await asyncio.gather(*sent)
        assert {each.partition for each in metadata} == set(range(6))
        for number, each in enumerate(metadata):
            assert topic.partitions[each.partition].values()[each.offset] == b"%d" % number


@story(nodes=2)
async def test_acks_0_and_1_send_without_sequences(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world, acks=0) as producer:
        assert (await producer.send("orders", b"zero")).offset == -1
    async with producing(world, acks=1) as producer:
        assert (await producer.send("orders", b"one")).offset == 1
    assert values(world) == [b"zero", b"one"]
    assert [each.request.acks for each in world.broker.requests(ProduceRequest)] == [0, 1]
    assert all(batch.producer_id == -1 for batch in batches_of(world))
    assert not world.broker.requests(InitProducerIdRequest)


@story()
async def test_a_cancelled_awaitable_ends_and_its_record_is_sent(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world) as producer:
        sent = [producer.send("orders", value) for value in numbers(5)]
        sent[2].cancel()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sent[3], 0)
        assert sent[3].cancelled()
        assert [(await sent[each]).offset for each in (0, 1, 4)] == [0, 1, 4]
        assert values(world) == numbers(5)


@story(nodes=2)
async def test_user_partitioners_receive_the_partitions_with_a_leader(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 3, leaders=[1, -1, 2])
    calls = []

    def choose(key: bytes | None, value: bytes | None, partitions: range, available: list[int]) -> int:
        calls.append((key, value, list(partitions), list(available)))
        return available[-1]

    async with producing(world, partitioner=choose) as producer:
        assert (await producer.send("orders", b"v", b"k")).partition == 2
    assert calls == [(b"k", b"v", [0, 1, 2], [0, 2])]


class Envelope:
    """A serializer that reads the topic and adds a header."""

    def serialize(self, topic: str, headers: list, data: object) -> bytes:
        headers.append(("type", type(data).__name__.encode()))
        return f"{topic}:{data}".encode()


@story()
async def test_serializers_receive_topic_and_headers_but_no_none(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world, key_serializer=str.encode, value_serializer=Envelope()) as producer:
        producer.send("orders", 5, "key", headers=[("own", b"1")])
        producer.send("orders", None, None)
        await producer.flush()
        with pytest.raises(TypeError):
            producer.send("orders", 5, b"no text")
    records = [record for batch in batches_of(world) for record in batch]
    assert [(record.key, record.value) for record in records] == [(b"key", b"orders:5"), (None, None)]
    assert [[*map(tuple, record.headers)] for record in records] == [[("own", b"1"), ("type", b"int")], []]


@story(nodes=2)
async def test_a_leader_that_a_response_names_gets_the_batch_without_a_pause(world: Story) -> None:
    world.broker.cluster.create_topic("orders", leaders=[1])

    def name_the_leader(response: ProduceResponse) -> None:
        (partition,) = response.responses[0].partition_responses
        partition.current_leader = ProduceResponse.TopicProduceResponse.PartitionProduceResponse.LeaderIdAndEpoch(
            leader_id=2, leader_epoch=1
        )
        address = world.broker.cluster.addresses[2]
        response.node_endpoints = [ProduceResponse.NodeEndpoint(node_id=2, host=address[0], port=address[1])]

    async with producing(world, linger_ms=0) as producer:
        await producer.send("orders", b"before")
        world.broker.cluster.move_leader("orders", 0, 2)
        world.broker.on(ProduceRequest, node=1, error=KafkaErrorCode.NOT_LEADER_OR_FOLLOWER, edit=name_the_leader)
        began = world.now
        assert (await producer.send("orders", b"after")).offset == 1
        assert world.now - began < 0.05
        assert len(world.broker.requests(ProduceRequest, 2)) == 1


@story()
async def test_a_recreated_topic_gets_records_again(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 3)
    async with producing(world, metadata_max_age_ms=500) as producer:
        for partition in range(3):
            for _ in range(2):
                await producer.send("orders", b"old", partition=partition)
        world.broker.cluster.delete_topic("orders")
        world.broker.cluster.create_topic("orders", 2)
        await pass_time(1)
        assert (await producer.send("orders", b"new", partition=1)).offset == 0
        with pytest.raises(ValueError, match="partitions 0 to 1, not 2"):
            producer.send("orders", b"new", partition=2)
        assert values(world, partition=1) == [b"new"]


@story()
async def test_a_batch_that_is_too_large_for_the_topic_is_divided(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    world.broker.on(ProduceRequest, error=KafkaErrorCode.MESSAGE_TOO_LARGE, times=2)
    async with producing(world) as producer:
        sent = [producer.send("orders", value) for value in numbers(8)]
        assert [(await future).offset for future in sent] == list(range(8))
        assert values(world) == numbers(8)
        assert producer.metrics().batches_divided == 2
        assert world.broker.cluster.topics["orders"].partitions[0].duplicates == 0


@story(nodes=2)
async def test_a_rejected_batch_begins_an_epoch_without_a_request(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world) as producer:
        await producer.send("orders", b"first")
        world.broker.on(ProduceRequest, error=KafkaErrorCode.INVALID_RECORD)
        with pytest.raises(error_class(KafkaErrorCode.INVALID_RECORD), match="orders-0: "):
            await producer.send("orders", b"rejected")
        assert (await producer.send("orders", b"third")).offset == 1
        assert [(batch.producer_epoch, batch.base_sequence) for batch in batches_of(world)] == [(0, 0), (0, 1), (1, 0)]
        assert len(world.broker.requests(InitProducerIdRequest)) == 1


@story()
async def test_metrics_count_what_was_sent(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    producer = new_producer(world)
    await producer.start()
    assert producer.metrics().producer_id == -1
    for value in numbers(10):
        producer.send("orders", value)
    assert producer.metrics().buffered_bytes > 0
    await producer.flush()
    await producer.close()
    metrics = producer.metrics()
    assert (metrics.records_acknowledged, metrics.batches_acknowledged, metrics.requests_sent) == (10, 1, 1)
    assert (metrics.buffered_bytes, metrics.requests_open, metrics.records_failed) == (0, 0, 0)
    assert metrics.request_seconds > 0 and metrics.bytes_sent > 61 and metrics.producer_id >= 1000


@story()
async def test_an_awaitable_works_with_gather_shield_and_callbacks_without_tasks(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world) as producer:
        before = asyncio.all_tasks()
        called = []
        sent = [producer.send("orders", value) for value in numbers(100)]
        sent[0].add_done_callback(lambda future: called.append(future.result().offset))
        gathered, shielded = asyncio.gather(*sent), asyncio.shield(sent[1])
        assert asyncio.all_tasks() == before
        assert [each.offset for each in await gathered] == list(range(100))
        assert (await shielded).offset == 1 and called == [0]


class Counting(Producer[bytes, bytes]):
    """A producer whose methods are overridden."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.calls: list[str] = []

    def send(self, *args: Any, **named: Any) -> FutureRecordMetadata:
        self.calls.append("send")
        return super().send(*args, **named)

    def drain(self) -> Awaitable[None]:
        self.calls.append("drain")
        return super().drain()

    async def close(self, timeout: float | None = None) -> None:
        self.calls.append("close")
        await super().close(timeout)


@story()
async def test_overridden_methods_of_a_subclass_are_called(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with new_producer(world, Counting) as producer:
        producer.send("orders", b"0")
        await producer.drain()
        await producer.send_many([ProducerRecord("orders", b"1")])
    assert isinstance(producer, Counting) and producer.calls == ["send", "drain", "send", "close"]
    assert values(world) == numbers(2)


class Named(Producer[bytes, bytes]):
    """Overrides nothing."""


@story()
async def test_a_subclass_without_overrides_sends_without_a_call_of_a_python_method(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    for each, compiled in ((Named, True), (Counting, False)):
        async with new_producer(world, each) as producer:
            assert inspect.ismethod(producer.send) is not compiled
            producer.send("orders", b"0")
            assert inspect.ismethod(producer.drain) is not compiled
    assert values(world) == [b"0", b"0"]
