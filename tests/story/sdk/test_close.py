"""`close` of every asynchronous client, called by any number of tasks at any time; virtual time.

Those of the blocking clients and of aiokafka's interface: `test_close_of_facades`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kafkalite_sdk.admin import Admin
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.columns import ColumnReader
from kafkalite_sdk.consumer.listeners import RebalanceListener
from kafkalite_sdk.rpc import Connection

from kafkalite.errors import ClientUseError, KafkaError, KafkaTimeoutError
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.leave_group import LeaveGroupRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.client_rig import Story, outcome, story
from tests.story.sdk.consumer_rig import A, append, committed, new_consumer
from tests.story.sdk.consumer_rig import values as polled
from tests.story.sdk.producer_rig import new_producer, numbers, values

Client = Any
New = Callable[[Story], Client]


def member(world: Story, **options: Any) -> Client:
    """A member of a group that reads `orders`."""
    consumer = new_consumer(world, **{"group": "g", "group_protocol": "classic", **options})
    consumer.subscribe("orders")
    return consumer


def assigned(world: Story) -> Client:
    consumer = new_consumer(world)
    consumer.assign([A])
    return consumer


def of(client: type) -> New:
    return lambda world: client(
        world.broker.bootstrap, environment=Environment(dial=world.network.dial, random=world.random)
    )


CLIENTS: dict[str, New] = {
    "producer": new_producer,
    "producer with a handler": lambda world: new_producer(world, handler=lambda _batch: None),
    "consumer": assigned,
    "member": member,
    "member without automatic commits": lambda world: member(world, enable_auto_commit=False),
    "admin": of(Admin),
    "column reader": of(ColumnReader),
    "connection": of(Connection),
}
clients = pytest.mark.parametrize("name", CLIENTS)


async def iterated(consumer: Client) -> list[bytes]:
    return [record.value async for record in consumer]


async def read(reader: Client) -> None:
    async for _ in reader.read("orders", 0, 0, 1_000):
        pass


CALLS: dict[str, tuple[str, Callable[[Client], Awaitable[Any]]]] = {
    "send": ("producer", lambda producer: producer.send("orders", b"last")),
    "send_many": ("producer", lambda producer: producer.send_many([("orders", b"last")])),
    "flush": ("producer", lambda producer: producer.flush()),
    "poll": ("consumer", lambda consumer: consumer.poll(60.0)),
    "poll_columns": ("consumer", lambda consumer: consumer.poll_columns(60.0)),
    "getmany": ("consumer", lambda consumer: consumer.getmany(timeout_ms=60_000)),
    "iteration": ("consumer", iterated),
    "poll of a member": ("member", lambda consumer: consumer.poll(60.0)),
    "iteration of a member": ("member", iterated),
    "commit": ("member", lambda consumer: consumer.commit({A: 0})),
    "end_offsets": ("consumer", lambda consumer: consumer.end_offsets()),
    "describe": ("admin", lambda admin: admin.topics.list()),
    "read": ("column reader", read),
    "call": ("connection", lambda connection: connection.poll(60.0, MetadataRequest(topics=None))),
}
STALLED = (FetchRequest, ListOffsetsRequest, MetadataRequest)


@clients
def test_any_number_of_tasks_close_a_client(name: str) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        client = CLIENTS[name](world)
        await client.start()
        await asyncio.gather(*(client.close() for _ in range(3)))
        await client.close()
        assert isinstance(await outcome(client.start()), ClientUseError)

    run()


@clients
def test_a_client_is_closed_before_and_during_its_start(name: str) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        unused = CLIENTS[name](world)
        await asyncio.gather(unused.close(), unused.close())
        assert isinstance(await outcome(unused.start()), ClientUseError)
        rule = world.broker.on(MetadataRequest, stall=True)
        client = CLIENTS[name](world)
        starting = asyncio.ensure_future(client.start())
        await pass_time(1.0)
        await asyncio.gather(client.close(), client.close())
        result = await outcome(starting)
        assert isinstance(result, ClientUseError) or (name == "producer with a handler" and result is None)
        rule.release()

    run()


@pytest.mark.parametrize("call", CALLS)
def test_close_ends_the_calls_of_other_tasks(call: str) -> None:
    name, use = CALLS[call]

    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        client = CLIENTS[name](world)
        await client.start()
        if name == "member":
            assert await client.poll(10.0) == []
        rules = [] if name in ("producer", "member") else [world.broker.on(each, stall=True) for each in STALLED]
        if name == "producer":
            client.send("orders", b"first")
        using = asyncio.ensure_future(use(client))
        await pass_time(0.0 if name == "producer" else 1.0)
        began = world.now
        await asyncio.gather(client.close(), client.close())
        assert world.now - began < 2.0
        result = await outcome(using)
        if name == "producer":
            assert not isinstance(result, BaseException)
            assert values(world) == [b"first", b"last"][: 1 + (call != "flush")]
        elif call.startswith("iteration"):
            assert result == [], "an iteration ends"
        elif call == "call":
            assert [str(each.error) for each in result] == ["this Connection was closed"]
        elif call != "commit":
            assert isinstance(result, ClientUseError) and "was closed" in str(result)
        for rule in rules:
            rule.release()

    run()


# Producers


def stalled_producer(world: Story) -> tuple[Client, Any]:
    world.broker.cluster.create_topic("orders")
    return new_producer(world), world.broker.on(ProduceRequest, stall=True)


@story()
async def test_a_second_close_of_a_producer_waits_for_the_records(world: Story) -> None:
    producer, rule = stalled_producer(world)
    await producer.start()
    sent = [producer.send("orders", each) for each in numbers(1000)]
    closing = [asyncio.ensure_future(producer.close()) for _ in range(3)]
    await pass_time(1.0)
    assert not any(each.done() for each in closing)
    rule.release()
    await asyncio.gather(*closing)
    assert values(world) == numbers(1000) and [(await each).offset for each in sent] == list(range(1000))


@story()
async def test_a_close_beside_the_end_of_a_block_waits_for_the_records(world: Story) -> None:
    producer, rule = stalled_producer(world)
    async with producer:
        producer.send("orders", b"kept")
        closing = asyncio.ensure_future(producer.close())
        await pass_time(1.0)
        rule.release()
    await closing
    assert values(world) == [b"kept"]


@story()
async def test_the_timeout_of_a_second_close_ends_its_own_wait(world: Story) -> None:
    producer, rule = stalled_producer(world)
    await producer.start()
    producer.send("orders", b"kept")
    first = asyncio.ensure_future(producer.close())
    await pass_time(0.0)
    began = world.now
    error = await outcome(producer.close(timeout=2.0))
    assert isinstance(error, KafkaTimeoutError) and "another close() of this Producer" in str(error)
    assert 2.0 <= world.now - began < 2.1 and not first.done()
    rule.release()
    await first
    assert values(world) == [b"kept"]


@story()
async def test_a_cancelled_close_ends_its_own_wait_and_the_last_one_the_close(world: Story) -> None:
    producer, rule = stalled_producer(world)
    await producer.start()
    sent = producer.send("orders", b"lost")
    closing = [asyncio.ensure_future(producer.close()) for _ in range(2)]
    await pass_time(1.0)
    closing[0].cancel()
    await pass_time(1.0)
    assert closing[0].cancelled() and not closing[1].done() and not sent.done()
    closing[1].cancel()
    await asyncio.wait(closing)
    assert closing[1].cancelled() and isinstance(await outcome(sent), KafkaError)
    rule.release()


@story()
async def test_every_close_that_waits_raises_the_error_of_a_record(world: Story) -> None:
    producer, rule = stalled_producer(world)
    await producer.start()
    producer.send("orders", b"lost")
    errors = await asyncio.gather(*(producer.close(timeout=1.0) for _ in range(2)), return_exceptions=True)
    assert all(isinstance(each, KafkaTimeoutError) for each in errors)
    await producer.close()
    rule.release()


@story()
async def test_the_end_of_a_block_has_a_bound_and_reports_the_records(world: Story) -> None:
    producer, rule = stalled_producer(world)
    began = world.now
    with pytest.raises(KafkaTimeoutError, match=r"within 15 s") as raised:
        async with producer:
            producer.send("orders", b"lost")
            producer.send("orders", b"lost")
    assert 15.0 <= world.now - began < 15.5
    assert "raised for 2 record(s)" in str(raised.value.__notes__)
    rule.release()


# Consumers


@story()
async def test_concurrent_closes_of_a_member_commit_and_leave_once(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0", b"1")
    consumer = member(world)
    await consumer.start()
    await polled(consumer, 2)
    rule = world.broker.on(OffsetCommitRequest, stall=True)
    closing = [asyncio.ensure_future(consumer.close()) for _ in range(3)]
    await pass_time(1.0)
    assert not any(each.done() for each in closing)
    rule.release()
    await asyncio.gather(*closing)
    assert committed(world) == [{("orders", 0): 2}] and len(world.broker.requests(LeaveGroupRequest)) == 1


@pytest.mark.parametrize("end", ["iteration", "poll"])
@pytest.mark.parametrize("auto_commit", [True, False])
def test_close_commits_what_another_task_has_received_and_ends_its_poll(end: str, auto_commit: bool) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        append(world, A, b"0", b"1")
        consumer = member(world, enable_auto_commit=auto_commit)
        await consumer.start()

        async def poll() -> list[bytes]:
            return await polled(consumer, 3)

        using = asyncio.ensure_future(iterated(consumer) if end == "iteration" else poll())
        await pass_time(5.0)
        await consumer.close()
        result = await outcome(using)
        assert result == [b"0", b"1"] if end == "iteration" else "was closed" in str(result)
        assert committed(world) == ([{("orders", 0): 2}] if auto_commit else [])
        assert len(world.broker.requests(LeaveGroupRequest)) == 1

    run()


@story()
async def test_a_poll_waits_while_another_task_changes_the_subscription(world: Story) -> None:
    for topic in ("orders", "payments"):
        world.broker.cluster.create_topic(topic)
    append(world, A._replace(topic="payments"), b"paid")
    async with member(world) as consumer:
        poll = asyncio.ensure_future(consumer.poll(60.0))
        await pass_time(5.0)
        await consumer.unsubscribe()
        consumer.subscribe("payments")
        assert [each.value for each in await poll] == [b"paid"]
        poll = asyncio.ensure_future(consumer.poll(60.0))
        await pass_time(1.0)
        await consumer.unsubscribe()
        assert "nothing to poll" in str(await outcome(poll))


@story()
async def test_close_waits_for_an_unsubscribe_that_runs(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0")
    consumer = member(world)
    await consumer.start()
    await polled(consumer, 1)
    rule = world.broker.on(OffsetCommitRequest, stall=True)
    leaving = asyncio.ensure_future(consumer.unsubscribe())
    await pass_time(0.1)
    closing = asyncio.ensure_future(consumer.close())
    await pass_time(1.0)
    assert not closing.done()
    rule.release()
    assert await asyncio.gather(leaving, closing) == [None, None]
    assert committed(world) == [{("orders", 0): 1}] and len(world.broker.requests(LeaveGroupRequest)) == 1


class Waiting(RebalanceListener):
    """Waits until it is released."""

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self.released = asyncio.Event()

    async def on_partitions_assigned(self, partitions: object) -> None:
        self.called.set()
        await self.released.wait()


@pytest.mark.parametrize("returns", [True, False])
def test_close_ends_a_poll_whose_listener_runs(returns: bool) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        listener = Waiting()
        consumer = new_consumer(world, group="g", group_protocol="classic", close_timeout_ms=8_000)
        consumer.subscribe("orders", listener=listener)
        await consumer.start()
        poll = asyncio.ensure_future(consumer.poll(600.0))
        await listener.called.wait()
        closing = asyncio.ensure_future(consumer.close())
        await pass_time(1.0)
        assert not closing.done()
        began = world.now
        if returns:
            listener.released.set()
        await closing
        assert world.now - began < (0.5 if returns else 7.0)
        error = await outcome(poll)
        assert isinstance(error, ClientUseError if returns else KafkaTimeoutError)
        assert len(world.broker.requests(LeaveGroupRequest)) == 1
        assert "was closed" in str(await outcome(consumer.poll()))

    run()


class NeverRevoked(RebalanceListener):
    """Has a revocation that does not return."""

    async def on_partitions_revoked(self, partitions: object) -> None:
        await asyncio.Event().wait()


@story()
async def test_close_limits_a_listener_that_begins_after_it(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0")
    consumer = new_consumer(world, group="g", group_protocol="classic", close_timeout_ms=8_000)
    consumer.subscribe("orders", listener=NeverRevoked())
    await consumer.start()
    await polled(consumer, 1)
    rule = world.broker.on(OffsetCommitRequest, stall=True)
    consumer.subscribe(["orders", "payments"], listener=NeverRevoked())
    poll = asyncio.ensure_future(consumer.poll(600.0))
    await pass_time(1.0)
    closing = asyncio.ensure_future(consumer.close())
    await pass_time(0.5)
    began = world.now
    rule.release()
    await asyncio.wait_for(closing, 30.0)
    assert world.now - began < 7.6
    assert isinstance(await outcome(poll), KafkaTimeoutError)
    assert len(world.broker.requests(LeaveGroupRequest)) == 1


@story()
async def test_close_in_a_function_that_poll_waits_for_is_rejected(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0")
    errors: list[BaseException] = []

    async def on_poison(_record: object, _error: object) -> None:
        errors.append(await outcome(consumer.close()))  # in a task of its own, which is awaited
        errors.append(await outcome(consumer.unsubscribe()))

    consumer = new_consumer(world, value_deserializer=lambda _: 1 // 0, on_poison=on_poison)
    async with consumer:
        consumer.assign([A])
        assert await consumer.poll(1.0) == []
        assert len(errors) == 2 and all("listener" in str(each) for each in errors)
        append(world, A, b"1")
