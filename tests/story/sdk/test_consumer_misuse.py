"""Misuse of a consumer raises at once, with an error that names the next step."""

import asyncio
import math
import threading

import pytest
from kafkalite_sdk import RebalanceListener

from kafkalite.errors import ClientUseError
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.client_rig import Story, outcome, story
from tests.story.sdk.consumer_rig import A, append, consuming, new_consumer, values
from tests.story.sdk.producer_rig import new_producer


@story()
async def test_two_tasks_do_not_poll_at_once(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with consuming(world, A) as consumer:
        first = asyncio.ensure_future(consumer.poll(30.0))
        await pass_time(1.0)
        with pytest.raises(ClientUseError, match="polled by another task"):
            await consumer.poll(1.0)
        with pytest.raises(ClientUseError, match="polled by another task"):
            await anext(consumer)
        append(world, A, b"a")
        assert [each.value for each in await first] == [b"a"]
        append(world, A, b"b")
        assert await values(consumer, 1) == [b"b"]


@story()
async def test_consumer_is_used_between_start_and_close(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    consumer = new_consumer(world, group="g")
    for use in (consumer.poll, consumer.commit, consumer.committed, consumer.assignment, consumer.health):
        with pytest.raises(ClientUseError, match='use "async with" or await its start'):
            await use()
    async with consumer:
        consumer.assign([A])
    for use in (consumer.poll, consumer.commit, consumer.committed, consumer.assignment, consumer.health):
        with pytest.raises(ClientUseError, match="was closed; create another one"):
            await use()
    for call in (lambda: consumer.subscribe("orders"), lambda: consumer.assign([A])):
        with pytest.raises(ClientUseError, match="was closed; create another one"):
            call()
    await consumer.close()


@story()
async def test_consumer_that_is_never_started_is_closed_without_effect(world: Story) -> None:
    consumer = new_consumer(world)
    await consumer.close()
    with pytest.raises(ClientUseError, match="was closed"):
        await consumer.start()


@story()
async def test_waiting_calls_end_when_the_consumer_is_closed(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    consumer = new_consumer(world)
    await consumer.start()
    consumer.assign([A])

    async def iterate() -> list[object]:
        return [record async for record in consumer]

    waiting = [asyncio.ensure_future(each) for each in (iterate(), consumer.end_offsets([A._replace(topic="unknown")]))]
    await pass_time(1.0)
    await consumer.close()
    iterated, asked = [await outcome(each) for each in waiting]
    assert iterated == [] and isinstance(asked, ClientUseError)


@story()
async def test_other_threads_and_loops_are_rejected(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with consuming(world, A) as consumer:
        errors = []

        def use() -> None:
            errors.append(asyncio.run(outcome(consumer.poll(1.0))))

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert isinstance(errors[0], ClientUseError) and "another thread" in str(errors[0])


@story()
async def test_groups_are_needed_for_subscriptions_and_commits(world: Story) -> None:
    async with new_consumer(world) as consumer:
        for use in (lambda: consumer.subscribe("orders"), lambda: consumer.add_topic("orders")):
            with pytest.raises(ClientUseError, match='group="name", or use assign'):
                use()
        for call in (consumer.commit(), consumer.committed([A]), consumer.rewind({A: 0})):
            with pytest.raises(ClientUseError, match='has no group; create it with group="name"'):
                await call


@story()
async def test_assign_and_subscribe_exclude_each_other(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with consuming(world, A, group="g") as consumer:
        with pytest.raises(ClientUseError, match="call unsubscribe"):
            consumer.subscribe("orders")
        await consumer.unsubscribe()
        consumer.subscribe("orders")
        with pytest.raises(ClientUseError, match="call unsubscribe"):
            consumer.assign([A])


@story()
async def test_invalid_patterns_are_rejected_before_the_start_and_leave_the_consumer_usable(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"a")
    consumer = new_consumer(world, group="g")
    for arguments, text in (
        ({"pattern": "("}, "RE2 rejects it"),
        ({"pattern": "orders", "exclude": "("}, "RE2 rejects it"),
        ({"topics": "orders", "exclude": "a"}, "exclude without a pattern"),
    ):
        with pytest.raises(ValueError, match=text):
            consumer.subscribe(**arguments)
    consumer.assign([A])
    async with consumer:
        assert await values(consumer, 1) == [b"a"]


@story()
async def test_poll_for_no_records_is_rejected_and_loses_none(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"a", b"b", b"c")
    async with consuming(world, A) as consumer:
        assert (await anext(consumer)).value == b"a"
        for count in (0, -1):
            with pytest.raises(ValueError, match="max_records is"):
                await consumer.poll(1.0, count)
        assert await values(consumer, 2) == [b"b", b"c"]


@story()
async def test_partitions_that_are_not_assigned_are_named(world: Story) -> None:
    async with new_consumer(world, group="g") as consumer:
        for use in (
            lambda: consumer.seek(A, 0),
            lambda: consumer.seek_to_end(A),
            lambda: consumer.pause(A),
            lambda: consumer.resume(A),
        ):
            with pytest.raises(ClientUseError, match="orders-0 is not assigned to this Consumer"):
                use()
        for call in (consumer.position(A), consumer.commit(A)):
            with pytest.raises(ClientUseError, match="orders-0 is not assigned to this Consumer"):
                await call


@story()
async def test_negative_offsets_and_times_are_rejected(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with consuming(world, A, group="g") as consumer:
        with pytest.raises(ValueError, match="offset -1 of orders-0 is negative"):
            consumer.seek(A, -1)
        with pytest.raises(ValueError, match="offset -5 of orders-0 is negative"):
            await consumer.commit({A: -5})
        with pytest.raises(ValueError, match="expected milliseconds since 1970"):
            consumer.seek_to_time(-1)
        with pytest.raises(ValueError, match="expected milliseconds since 1970"):
            await consumer.offsets_for_times({A: -2})


@story()
async def test_arguments_of_another_type_are_named(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with consuming(world, A, group="g") as consumer:
        with pytest.raises(TypeError, match="the offset of orders-0 is '5', expected a number"):
            await consumer.commit({A: "5"})
        with pytest.raises(TypeError, match="is a single partition; pass a list"):
            await consumer.end_offsets(A)
        with pytest.raises(ValueError, match="max_records is 0, expected a number above 0"):
            await consumer.poll(1.0, max_records=0)
        await consumer.unsubscribe()
        with pytest.raises(TypeError, match="is a single partition; pass a list"):
            consumer.assign(A)
        for listener in (print, RebalanceListener):
            with pytest.raises(TypeError, match="expected an instance of a subclass of RebalanceListener"):
                consumer.subscribe("orders", listener=listener)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"grup": "g"}, TypeError, "no argument 'grup'; did you mean 'group'"),
        ({"auto_offset_reset": "first"}, ValueError, "expected 'earliest', 'latest'"),
        ({"value_deserializer": "json"}, TypeError, "value_deserializer is 'json', expected a function or an object"),
        ({"isolation_level": "committed"}, ValueError, "expected one of read_uncommitted, read_committed"),
        ({"max_poll_records": 0}, ValueError, "max_poll_records is 0, expected 1 to 2147483647"),
        ({"max_poll_records": 0.5}, TypeError, "max_poll_records is 0.5, expected an int"),
        ({"fetch_min_bytes": 1.5}, TypeError, "fetch_min_bytes is 1.5, expected an int"),
        ({"fetch_max_bytes": 2**31}, ValueError, "fetch_max_bytes is 2147483648, expected 1 to 2147483647"),
        ({"fetch_max_wait_ms": math.inf}, ValueError, "fetch_max_wait_ms is inf, expected"),
        ({"fetch_max_wait_ms": 0}, ValueError, "fetch_max_wait_ms is 0, expected a number of milliseconds above 0"),
        ({"session_timeout_ms": "10s", "group": "g"}, TypeError, "session_timeout_ms is '10s', expected a number"),
        ({"session_timeout_ms": 2**31, "group": "g"}, ValueError, "session_timeout_ms is 2147483648, expected"),
        ({"auto_commit_interval_ms": math.nan}, ValueError, "auto_commit_interval_ms is nan"),
        ({"enable_auto_commit": "no", "group": "g"}, TypeError, "enable_auto_commit is 'no', expected a bool"),
        ({"check_crcs": 0}, TypeError, "check_crcs is 0, expected a bool"),
        ({"client_id": 5}, TypeError, "client_id is 5, expected a str"),
        ({"client_rack": b"a"}, TypeError, "client_rack is b'a', expected a str"),
        ({"group": 5}, TypeError, "group is 5, expected a str"),
        ({"auto_offset_reset": None}, TypeError, "auto_offset_reset is None, expected a str"),
        ({"group_instance_id": "i"}, ValueError, "group_instance_id needs a group"),
        ({"group": "g", "group_protocol": "new"}, ValueError, "group_protocol is 'new', expected one of auto, classic"),
        ({"group": ""}, ValueError, "group is empty; pass group="),
        ({"group": "g", "group_instance_id": ""}, ValueError, "group_instance_id is empty"),
        ({"group": "g", "partition_assignment_strategy": []}, ValueError, "partition_assignment_strategy has no"),
        ({"group": "g", "partition_assignment_strategy": "range"}, TypeError, r"expected a list such as \["),
        ({"group": "g", "partition_assignment_strategy": ["best"]}, ValueError, "best"),
    ],
)
def test_arguments_are_validated(options, error, text) -> None:
    from kafkalite_sdk import Consumer, blocking

    for consumer in (Consumer, blocking.Consumer):
        with pytest.raises(error, match=text):
            consumer("localhost:9092", **options)


@story()
async def test_a_consumer_that_reads_nothing_says_so(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with new_consumer(world, group="g") as consumer:
        for use in (lambda: consumer.poll(1.0), lambda: anext(consumer)):
            with pytest.raises(ClientUseError, match=r"call subscribe\(\), add_topic\(\) or assign\(\) first"):
                await use()
        consumer.assign([A])
        append(world, A, b"a")
        assert await values(consumer, 1) == [b"a"]
        waiting = asyncio.ensure_future(anext(consumer))
        await pass_time(1.0)
        await consumer.unsubscribe()
        with pytest.raises(ClientUseError, match="nothing to poll"):
            await waiting


@story()
async def test_values_of_another_type_are_named_in_one_line(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with consuming(world, A, group="g") as consumer:
        for call in (
            consumer.poll(timeout="1"),
            consumer.poll(None),
            consumer.commit(timeout="1"),
            consumer.position(A, timeout="1"),
            consumer.end_offsets([A], timeout=True),
            consumer.unsubscribe("1"),
            consumer.close("1"),
        ):
            with pytest.raises(TypeError, match=r"timeout is .*, expected a number of seconds"):
                await call
        with pytest.raises(TypeError, match="max_records is '5', expected an integer above 0"):
            await consumer.poll(1.0, max_records="5")
        with pytest.raises(TypeError, match=r"seek_to_end\(\*partitions\)"):
            consumer.seek_to_end([A])
        await consumer.unsubscribe()
        for topics in (5, ["orders", 5], [b"orders"]):
            with pytest.raises(TypeError, match="is not the name of a topic; pass a str"):
                consumer.subscribe(topics)


def test_a_topic_in_place_of_the_address_is_explained() -> None:
    from kafkalite_sdk import Consumer

    with pytest.raises(TypeError, match="one positional argument, the address"):
        Consumer("orders", "localhost:9092")


@story()
async def test_texts_of_clients_show_their_state_and_no_secrets(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    consumer = new_consumer(world, group="g")
    assert repr(consumer) == "<Consumer of node1:9092, group g, not started>"
    async with consumer:
        consumer.assign([A])
        assert repr(consumer) == "<Consumer of node1:9092, group g, 1 partitions>"
        append(world, A, b"a" * 61, b"b" * 70)
        short, long = await consumer.poll(5.0)
        assert "value=b'aaa" in repr(short) and "value=<70 bytes>" in repr(long)
    assert repr(consumer) == "<Consumer of node1:9092, group g, closed>"
    producer = new_producer(world)
    assert repr(producer) == "<Producer of node1:9092, not started>"
    async with producer:
        assert repr(producer) == "<Producer of node1:9092, open>"
    assert repr(producer) == "<Producer of node1:9092, closed>"
