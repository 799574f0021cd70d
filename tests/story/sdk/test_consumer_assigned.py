"""A consumer of partitions that the application assigns: records, positions, pause, offsets, in virtual time."""

import asyncio
import enum

import pytest

from kafkalite.errors import (
    ClientUseError,
    KafkaConnectionError,
    KafkaErrorCode,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
)
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.server import NOW_MS
from tests.story.sdk.client_rig import Story, outcome, story
from tests.story.sdk.consumer_rig import A, B, C, append, consuming, new_consumer, values


@story()
async def test_records_arrive_in_order_with_their_fields(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    append(world, A, b"a0", b"a1")
    append(world, B, b"b0")
    async with consuming(world, A, B) as consumer:
        records = []
        while len(records) < 3:
            records += await consumer.poll(10.0)
        of_a = [each for each in records if each.partition == 0]
        assert [(each.topic, each.offset, each.key, each.value) for each in of_a] == [
            ("orders", 0, b"k", b"a0"),
            ("orders", 1, b"k", b"a1"),
        ]
        assert {each.timestamp_ms for each in records} == {NOW_MS}
        append(world, A, b"a2")
        assert await values(consumer, 1) == [b"a2"]


class Topic(enum.StrEnum):
    ORDERS = "orders"


@story()
async def test_a_topic_may_be_of_a_subclass_of_str(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"a")
    named = TopicPartition(Topic.ORDERS, 0)
    async with consuming(world, named) as consumer:
        (record,) = await consumer.poll(10.0)
        assert type(record.topic) is str
        assert await consumer.position(named) == 1


@story()
async def test_poll_waits_for_records_and_returns_nothing_at_its_timeout(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with consuming(world, A) as consumer:
        before = world.now
        assert await consumer.poll(3.0) == []
        assert world.now - before == pytest.approx(3.0, abs=0.01)
        asyncio.get_running_loop().call_later(2.0, append, world, A, b"late")
        before = world.now
        assert await values(consumer, 1) == [b"late"]
        assert 1.9 < world.now - before < 3.1


@story()
async def test_poll_without_timeout_returns_what_has_arrived(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"a")
    async with consuming(world, A) as consumer:
        found = []
        for _ in range(100):
            found += await consumer.poll(0)
            await pass_time(0.01)
        assert [each.value for each in found] == [b"a"]


@story()
async def test_max_records_limits_a_poll_and_the_rest_comes_next(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, *(b"%d" % number for number in range(10)))
    async with consuming(world, A, max_poll_records=4) as consumer:
        assert [len(await consumer.poll(10.0)), len(await consumer.poll(10.0, 1)), len(await consumer.poll(10.0))] == [
            4,
            1,
            4,
        ]
        assert await consumer.position(A) == 9


@story()
async def test_iteration_returns_single_records_and_advances_with_them(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    append(world, A, b"0", b"1", b"2", b"3")
    async with consuming(world, A) as consumer:
        seen = []
        async for record in consumer:
            seen.append(record.value)
            assert await consumer.position(A) == len(seen)
            assert consumer.lag() == {A: 4 - len(seen)}
            if len(seen) == 3:
                break
        assert seen == [b"0", b"1", b"2"]
        assert await values(consumer, 1) == [b"3"]


@story()
async def test_iteration_continues_after_seek_pause_and_resume(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    append(world, A, b"a0", b"a1", b"a2")
    append(world, B, b"b0", b"b1")
    async with consuming(world, A, B) as consumer:
        taken = {(await anext(consumer)).value for _ in range(2)}
        consumer.pause(A)
        of_b = {b"b0", b"b1"} - taken
        assert {(await anext(consumer)).value for _ in of_b} == of_b
        consumer.seek(B, 1)
        assert (await anext(consumer)).value == b"b1"
        consumer.resume(A)
        position = await consumer.position(A)
        assert position == len(taken & {b"a0", b"a1", b"a2"})
        rest = [(await anext(consumer)).value for _ in range(3 - position)]
        assert rest == [b"a0", b"a1", b"a2"][position:]


@story()
async def test_seek_to_time_begins_with_the_first_record_of_that_time(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    for second in range(3):
        append(world, A, b"%d" % second, timestamp=NOW_MS + second * 1000)
    async with consuming(world, A) as consumer:
        consumer.seek_to_time(NOW_MS + 1000, A)
        assert await values(consumer, 2) == [b"1", b"2"]
        consumer.seek_to_time(NOW_MS + 9000)
        assert await consumer.position(A) == 3
        found = await consumer.offsets_for_times({A: NOW_MS + 2000, B: NOW_MS})
        assert found[A] is not None and found[A].offset == 2 and found[A].timestamp_ms == NOW_MS + 2000
        assert found[B] is None


@story(nodes=3)
async def test_offsets_of_partitions_that_are_not_assigned(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 3, leaders=[1, 2, 3])
    append(world, B, b"b0", b"b1")
    async with new_consumer(world) as consumer:
        assert await consumer.end_offsets([A, B, C]) == {A: 0, B: 2, C: 0}
        assert await consumer.beginning_offsets([B]) == {B: 0}
        assert consumer.assignment() == frozenset()


@pytest.mark.parametrize(("policy", "first"), [("earliest", 0), ("latest", 2)])
def test_reset_policy_decides_where_to_begin(policy: str, first: int) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        append(world, A, b"0", b"1")
        async with consuming(world, A, auto_offset_reset=policy) as consumer:
            assert await consumer.position(A) == first

    run()


@story()
async def test_without_reset_policy_a_missing_offset_is_an_error_until_a_seek(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0", b"1")
    async with consuming(world, A, auto_offset_reset="none") as consumer:
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError, match="orders-0 has no committed offset"):
                await consumer.poll(10.0)
        consumer.seek(A, 1)
        assert await values(consumer, 1) == [b"1"]


@story()
async def test_offset_out_of_range_is_reset_or_an_error(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0", b"1")
    async with consuming(world, A) as consumer:
        consumer.seek(A, 100)
        assert await values(consumer, 2) == [b"0", b"1"]
    async with consuming(world, A, auto_offset_reset="none") as consumer:
        consumer.seek(A, 100)
        error = await outcome(consumer.poll(10.0))
        assert error.code == KafkaErrorCode.OFFSET_OUT_OF_RANGE and "orders-0" in str(error) and "100" in str(error)
        consumer.seek(A, 1)
        assert await values(consumer, 1) == [b"1"]


@story(nodes=2)
async def test_partition_follows_its_leader(world: Story) -> None:
    world.broker.cluster.create_topic("orders", leaders=[1])
    append(world, A, b"0")
    async with consuming(world, A) as consumer:
        assert await values(consumer, 1) == [b"0"]
        world.broker.cluster.move_leader("orders", 0, 2)
        append(world, A, b"1")
        assert await values(consumer, 1) == [b"1"]
        assert world.broker.requests(FetchRequest, node=2)


@story(nodes=2)
async def test_position_behind_a_truncated_log_moves_to_the_end_of_its_epoch(world: Story) -> None:
    world.broker.cluster.create_topic("orders", leaders=[1])
    append(world, A, b"0", b"1")
    append(world, A, b"2", b"3")
    async with consuming(world, A) as consumer:
        assert await values(consumer, 4) == [b"0", b"1", b"2", b"3"]
        world.broker.cluster.topics["orders"].partitions[0].truncate(2)
        world.broker.cluster.move_leader("orders", 0, 2)
        append(world, A, b"new")
        append(world, A, b"newer")
        append(world, A, b"newest")
        assert await values(consumer, 3) == [b"new", b"newer", b"newest"]
        assert world.broker.requests(OffsetForLeaderEpochRequest)


@story(nodes=2)
async def test_partition_without_leader_delays_no_other(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2, leaders=[1, 2])
    append(world, A, b"a")
    append(world, B, b"b")
    world.broker.cluster.move_leader("orders", 1, -1)
    async with consuming(world, A, B) as consumer:
        before = world.now
        assert await values(consumer, 1) == [b"a"] and world.now - before < 0.5
        task = asyncio.ensure_future(consumer.poll(30.0))
        await pass_time(1.0)
        assert consumer.health().waiting_for == "records"
        world.broker.cluster.move_leader("orders", 1, 2)
        assert [each.value for each in await task] == [b"b"]


@story()
async def test_topic_that_is_created_later_is_read(world: Story) -> None:
    async with consuming(world, A) as consumer:
        assert await consumer.poll(2.0) == []
        world.broker.cluster.create_topic("orders")
        append(world, A, b"a")
        assert await values(consumer, 1) == [b"a"]


@story()
async def test_question_about_an_unknown_topic_fails_at_its_timeout(world: Story) -> None:
    async with new_consumer(world) as consumer:
        before = world.now
        with pytest.raises(KafkaTimeoutError, match="orders-0"):
            await consumer.end_offsets([A], timeout=4.0)
        assert world.now - before == pytest.approx(4.0, abs=0.1)


@pytest.mark.parametrize(
    "code",
    [
        KafkaErrorCode.NOT_LEADER_OR_FOLLOWER,
        KafkaErrorCode.LEADER_NOT_AVAILABLE,
        KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaErrorCode.REPLICA_NOT_AVAILABLE,
        KafkaErrorCode.KAFKA_STORAGE_ERROR,
        KafkaErrorCode.OFFSET_NOT_AVAILABLE,
        KafkaErrorCode.FENCED_LEADER_EPOCH,
        KafkaErrorCode.UNKNOWN_LEADER_EPOCH,
    ],
)
@pytest.mark.parametrize("request_class", [FetchRequest, ListOffsetsRequest])
def test_retriable_errors_are_retried(request_class: type, code: KafkaErrorCode) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        append(world, A, b"a")
        world.broker.on(request_class, error=code, times=2)
        async with consuming(world, A) as consumer:
            assert await values(consumer, 1) == [b"a"]
        assert len(world.broker.requests(request_class)) >= 3

    run()


@story()
async def test_denied_topic_is_an_error_that_names_it_and_other_partitions_continue(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    append(world, A, b"a")
    append(world, B, b"b")
    denied = KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED
    async with consuming(world, A, B) as consumer:
        await consumer.position(A)
        world.broker.on(FetchRequest, error=denied, partitions={("orders", 1)})
        ends = [await outcome(consumer.poll(10.0)) for _ in range(3)]
        (error,) = [each for each in ends if isinstance(each, Exception)]
        assert error.code == denied and "orders" in str(error)
        assert sorted(each.value for records in ends if records is not error for each in records) == [b"a", b"b"]


@story()
async def test_position_leaves_the_errors_of_other_partitions_to_poll(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    async with consuming(world, A, B, auto_offset_reset="none") as consumer:
        consumer.seek(B, 0)
        await pass_time(1.0)
        assert await consumer.position(B) == 0
        with pytest.raises(NoOffsetForPartitionError, match="orders-0"):
            await consumer.position(A)
        with pytest.raises(NoOffsetForPartitionError, match="orders-0"):
            await consumer.poll(1.0)


@story(nodes=2)
async def test_poll_with_an_error_still_requests_records(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    append(world, B, b"b")
    async with consuming(world, A, B, auto_offset_reset="none") as consumer:
        await pass_time(1.0)
        consumer.seek(B, 0)
        with pytest.raises(NoOffsetForPartitionError, match="orders-0"):
            await consumer.poll(1.0)
        await pass_time(1.0)
        assert [each.value for each in await consumer.poll(0.0)] == [b"b"]


@story()
async def test_duration_of_a_reset_ends_now_in_virtual_time(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    await pass_time(3600.0)
    append(world, A, b"old", timestamp=NOW_MS)
    append(world, A, b"new", timestamp=NOW_MS + 3_599_000)
    async with consuming(world, A, auto_offset_reset="by_duration:PT30M") as consumer:
        assert await values(consumer, 1) == [b"new"]


@story()
async def test_broker_that_restarts_is_read_again(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"a")
    async with consuming(world, A) as consumer:
        await values(consumer, 1)
        world.broker.nodes[1].stop()
        assert await consumer.poll(5.0) == []
        await world.broker.nodes[1].start()
        append(world, A, b"b")
        assert await values(consumer, 1) == [b"b"]


@story()
async def test_frozen_broker_is_left_at_the_request_timeout(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"a")
    async with consuming(world, A, request_timeout_ms=2000) as consumer:
        await values(consumer, 1)
        world.broker.nodes[1].freeze()
        append(world, A, b"b")
        assert await consumer.poll(10.0) == []
        world.broker.nodes[1].thaw()
        assert await values(consumer, 1) == [b"b"]


@story()
async def test_assign_replaces_the_partitions_and_keeps_positions_of_those_in_both(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 3)
    for each in (A, B, C):
        append(world, each, b"%d" % each.partition)
    async with consuming(world, A, B) as consumer:
        assert sorted(await values(consumer, 2)) == [b"0", b"1"]
        consumer.assign([B, C])
        assert consumer.assignment() == {B, C}
        assert await values(consumer, 1) == [b"2"]
        with pytest.raises(ClientUseError, match="orders-0 is not assigned"):
            consumer.seek(A, 0)
        await consumer.unsubscribe()
        assert consumer.assignment() == frozenset()


@story()
async def test_deserializers_receive_what_they_need_once(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"7")
    calls = []

    class WithContext:
        def deserialize(self, topic, headers, data):
            calls.append((topic, headers, data))
            return data.decode()

    async with consuming(world, A, key_deserializer=WithContext(), value_deserializer=int) as consumer:
        (record,) = await consumer.poll(10.0)
        assert (record.key, record.value, record.key) == ("k", 7, "k") and calls == [("orders", (), b"k")]


@story()
async def test_idle_consumer_sends_one_request_per_wait_of_the_broker(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with consuming(world, A) as consumer:
        await consumer.poll(1.0)
        before = len(world.broker.log)
        for _ in range(10):
            await consumer.poll(1.0)
        assert len(world.broker.log) - before <= 21


@story()
async def test_consumer_that_is_not_polled_sends_nothing_without_a_group(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with consuming(world, A) as consumer:
        await consumer.poll(1.0)
        await pass_time(1.0)
        before = len(world.broker.log)
        await pass_time(200.0)
        assert len(world.broker.log) == before


@story()
async def test_start_without_broker_fails_at_once_and_may_be_repeated(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    world.broker.nodes[1].stop()
    consumer = new_consumer(world)
    consumer.assign([A])
    with pytest.raises(KafkaConnectionError):
        await consumer.start()
    await world.broker.nodes[1].start()
    append(world, A, b"a")
    async with consumer:
        assert await values(consumer, 1) == [b"a"]


@story()
async def test_close_returns_in_time_while_no_broker_answers(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    for end in ("freeze", "stop"):
        consumer = new_consumer(world, group="g")
        await consumer.start()
        consumer.assign([A])
        await consumer.poll(1.0)
        getattr(world.broker.nodes[1], end)()
        before = world.now
        await consumer.close(2.0)
        assert world.now - before <= 2.1
        world.broker.nodes[1].thaw()


@story()
async def test_fetch_of_partitions_by_topic_partition_tuples(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"a")
    async with new_consumer(world) as consumer:
        consumer.assign([("orders", 0)])
        assert consumer.assignment() == {TopicPartition("orders", 0)}
        for wrong in ("orders", ("orders",), ("orders", "0")):
            with pytest.raises(TypeError, match="pass TopicPartition"):
                consumer.assign([wrong])
