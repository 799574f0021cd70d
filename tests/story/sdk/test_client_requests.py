"""Requests of a cluster client to brokers that fail, freeze, move or come back, in virtual time."""

import asyncio
from functools import partial
from typing import Any

import pytest

from kafkalite.errors import (
    ClientUseError,
    DecodeError,
    EncodeError,
    KafkaConnectionError,
    KafkaTimeoutError,
)
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.scripted_frames import truncated, wrong_correlation_id
from tests.kit.server import batch, produce_request
from tests.story.sdk.client_rig import Ends, Story, metadata_when, outcome, story

NOTHING = MetadataRequest(topics=[])


def topics_of(request: MetadataRequest) -> list[str | None]:
    return [each.name for each in request.topics or []]


def naming(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])


@story(nodes=2)
async def test_requests_before_the_connection_leave_in_the_order_of_their_calls(world: Story) -> None:
    async with world.client("node1:9092") as client:
        ends = Ends()
        for number in range(20):
            client.submit(2, naming(str(number)), ends.end, ends.end)
            if number == 10:
                await pass_time(0.003)
        assert client.in_flight(2) > 0
        answers = await ends.reached(20)
        assert [each.topics[0].name for each in answers] == [str(number) for number in range(20)]
        assert client.in_flight(2) == 0 and client.is_connected(2)
        assert [each.request.topics[0].name for each in world.broker.requests(MetadataRequest, node=2)] == [
            str(number) for number in range(20)
        ]


@story()
async def test_callbacks_that_submit_stay_behind_requests_that_wait_for_the_connection(world: Story) -> None:
    async with world.client() as client:
        ends = Ends()
        impossible = naming("x" * 40_000)

        def again(error: Exception) -> None:
            assert isinstance(error, EncodeError)
            client.submit(1, naming("late"), ends.end, ends.end, channel="other")

        client.submit(1, impossible, ends.end, again, channel="other")
        client.submit(1, naming("early"), ends.end, ends.end, channel="other")
        answers = await ends.reached(2)
        assert [each.topics[0].name for each in answers] == ["early", "late"]


@story()
async def test_channels_are_connections_of_their_own(world: Story) -> None:
    async with world.client() as client:
        held = world.broker.on(MetadataRequest, stall=True, when=lambda request: "held" in topics_of(request))
        ends = Ends()
        client.submit(1, naming("held"), ends.end, ends.end, channel="group")
        await held.reached()
        assert (await client.call(1, naming("free"))).topics[0].name == "free"
        assert ends.ends == [] and client.in_flight(1, "group") == 1 and client.in_flight(1) == 0
        held.release()
        await ends.reached(1)


@story()
async def test_request_to_an_unknown_broker_fails_and_requests_metadata(world: Story) -> None:
    async with world.client() as client:
        asked = len(world.broker.requests(MetadataRequest))
        with pytest.raises(KafkaConnectionError, match="broker 9 is not in the metadata"):
            await client.call(9, NOTHING)
        await world.broker.received(MetadataRequest, asked + 1)


@story(nodes=2)
async def test_requests_wait_during_the_back_off_and_end_at_their_deadline(world: Story) -> None:
    async with world.client("node1:9092") as client:
        world.network.refuse("node2", 9092)
        first = await outcome(client.call(2, NOTHING))
        assert isinstance(first, KafkaConnectionError) and "refused" in str(first)
        until = client.blocked_until(2)
        assert world.now < until <= world.now + 0.06
        waiting = client.call(2, NOTHING)
        late = await outcome(client.call(2, NOTHING, timeout_s=0.001))
        assert isinstance(late, KafkaTimeoutError) and "node2:9092: not connected in time" in str(late)
        assert not waiting.done() and world.now < until
        world.network.accept("node2", 9092)
        await waiting
        assert world.now >= until


@story(nodes=2)
async def test_back_off_of_a_dead_broker_grows_to_its_maximum(world: Story) -> None:
    async with world.client("node1:9092", reconnect_backoff_s=0.1, reconnect_backoff_max_s=2.0) as client:
        world.network.refuse("node2", 9092)
        pauses = []
        for _ in range(8):
            await outcome(client.call(2, NOTHING))
            pauses.append(client.blocked_until(2) - world.now)
        for pause, expected in zip(pauses, (0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0), strict=True):
            assert 0.8 * expected <= pause <= 1.2 * expected
        assert len(set(pauses)) == 8, "the back-off has jitter"


@story()
async def test_broker_that_ends_each_connection_at_its_first_request_is_not_hammered(world: Story) -> None:
    async with world.client() as client:
        world.broker.on(HeartbeatRequest, times=None, disconnect=True)
        begin = world.now
        for _ in range(6):
            error = await outcome(client.call(1, heartbeat(), channel="group"))
            assert isinstance(error, KafkaConnectionError)
        assert world.now - begin > 0.8 * (0.05 + 0.1 + 0.2 + 0.4 + 0.8)


def heartbeat() -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@story(nodes=2)
async def test_timed_out_request_ends_its_connection_and_the_next_one_opens_another(world: Story) -> None:
    async with world.client("node1:9092", request_timeout_s=5.0) as client:
        await client.call(2, NOTHING)
        world.broker.nodes[2].freeze()
        ends = Ends()
        client.submit(2, naming("a"), ends.end, ends.end)
        await pass_time(1.0)
        client.submit(2, naming("b"), ends.end, ends.end)
        first, second = await ends.reached(2)
        assert isinstance(first, KafkaTimeoutError) and isinstance(second, KafkaConnectionError)
        assert "MetadataRequest timed out" in str(second)
        world.broker.nodes[2].thaw()
        answer = await client.call(2, naming("c"))
        assert answer.topics[0].name == "c"
        asked = world.broker.requests(MetadataRequest, node=2)
        assert topics_of(asked[-1].request) == ["c"] and asked[-1].connection != asked[0].connection


@story()
async def test_false_responses_fail_and_the_next_connection_works(world: Story) -> None:
    async with world.client() as client:
        world.broker.on(HeartbeatRequest, frame=truncated)
        undecodable = await outcome(client.call(1, heartbeat()))
        assert isinstance(undecodable, DecodeError) and "node1:9092, response of HeartbeatRequest v4: " in str(
            undecodable
        )
        world.broker.on(HeartbeatRequest, frame=wrong_correlation_id)
        error = await outcome(client.call(1, heartbeat()))
        assert isinstance(error, KafkaConnectionError) and "correlation id" in str(error)
        world.broker.on(HeartbeatRequest, disconnect_after_bytes=7)
        assert isinstance(await outcome(client.call(1, heartbeat())), KafkaConnectionError)
        assert isinstance(await client.call(1, NOTHING), MetadataResponse)


@story(nodes=3)
async def test_any_broker_is_the_least_loaded_one_and_another_after_a_failure(world: Story) -> None:
    async with world.client() as client:
        for node in (1, 2, 3):
            await client.call(node, NOTHING)
        world.broker.on(MetadataRequest, disconnect=True, when=lambda request: topics_of(request) == ["any"])
        answer = await client.call_any(naming("any"))
        assert answer.topics[0].name == "any"
        asked = [each.node for each in world.broker.requests(MetadataRequest) if topics_of(each.request) == ["any"]]
        assert len(asked) == 2 and len(set(asked)) == 2
        held = world.broker.on(MetadataRequest, stall=True, times=None)
        ends = Ends()
        for _ in range(3):
            client.submit_any(naming("spread"), ends.end, ends.end)
        loads = sorted(client.in_flight(node) for node in (1, 2, 3))
        assert loads in ([1, 1, 1], [0, 1, 2])  # the third connection is being opened again
        await held.reached()
        held.release()
        await ends.reached(3)


@story(nodes=2)
async def test_any_broker_waits_for_the_cluster_and_ends_at_the_deadline(world: Story) -> None:
    async with world.client() as client:
        for node in (1, 2):
            world.network.refuse(f"node{node}", 9092)
            world.broker.nodes[node].disconnect()
        await pass_time(0.01)
        begin = world.now
        error = await outcome(client.call_any(NOTHING, timeout_s=20.0))
        assert isinstance(error, KafkaTimeoutError) and "no broker answered MetadataRequest in time" in str(error)
        assert "refused" in str(error) and world.now - begin == pytest.approx(20.0, abs=0.1)
        waiting = client.call_any(NOTHING)
        await pass_time(10.0)
        world.network.accept("node2", 9092)
        begin = world.now
        await waiting
        assert world.now - begin < 1.5


@story()
async def test_requests_without_response_end_when_they_are_written(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with world.client() as client:
        log = world.broker.cluster.topics["orders"].partitions[0]
        request = produce_request("orders", (0, batch(b"a")), acks=0)
        ends = Ends()
        for _ in range(3):
            client.submit(1, request, ends.end, ends.end, version_max=12, one_way=True)
        assert ends.ends == []
        assert await ends.reached(3) == [None] * 3
        await client.call(1, NOTHING)
        assert log.values() == [b"a"] * 3


@story()
async def test_requests_without_response_wait_for_a_broker_that_does_not_read(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with world.client() as client:
        world.network.stall("node1", 9092, 1000.0)
        request = produce_request("orders", (0, batch(bytes(100_000))), acks=0)
        ends = Ends()
        for _ in range(10):
            client.submit(1, request, ends.end, ends.end, version_max=12, one_way=True, timeout_s=7.0)
            await pass_time(0.001)
        written = len(ends.ends)
        assert 0 < written < 4 and ends.ends == [None] * written
        begin = world.now
        await ends.reached(10)
        assert world.now - begin == pytest.approx(7.0, abs=0.1)
        errors = ends.ends[written:]
        assert isinstance(errors[0], KafkaTimeoutError) and "did not accept ProduceRequest in time" in str(errors[0])
        assert all(isinstance(each, KafkaConnectionError | KafkaTimeoutError) for each in errors)


@story(nodes=2)
async def test_idle_connections_are_closed_and_opened_again_without_a_pause(world: Story) -> None:
    async with world.client("node1:9092", connections_max_idle_s=60.0) as client:
        await client.call(2, NOTHING)
        await client.call(2, NOTHING, channel="group")
        for _ in range(5):
            await pass_time(20.0)
            await client.call(1, NOTHING)
        assert client.is_connected(1) and not client.is_connected(2) and not client.is_connected(2, "group")
        assert not world.broker.nodes[2].connections
        begin = world.now
        await client.call(2, NOTHING)
        assert world.now - begin < 0.05


@story(nodes=2)
async def test_connection_with_an_open_request_is_not_idle(world: Story) -> None:
    async with world.client(connections_max_idle_s=10.0, request_timeout_s=100.0) as client:
        held = world.broker.on(HeartbeatRequest, stall=True)
        waiting = client.call(2, heartbeat())
        await pass_time(50.0)
        held.release()
        await waiting


@story(nodes=2)
async def test_connection_that_the_broker_closed_while_idle_is_opened_again_at_once(world: Story) -> None:
    async with world.client("node1:9092") as client:
        await client.call(2, NOTHING)
        world.broker.nodes[2].disconnect()
        await pass_time(0.01)
        assert not client.is_connected(2)
        begin = world.now
        await client.call(2, NOTHING)
        assert world.now - begin < 0.02


@story(nodes=2)
async def test_broker_that_comes_back_at_another_port_is_found(world: Story) -> None:
    async with world.client("node1:9092") as client:
        await client.call(2, NOTHING)
        node = world.broker.nodes[2]
        held = world.broker.on(HeartbeatRequest, node=2, stall=True)
        ends = Ends()
        client.submit(2, heartbeat(), ends.end, ends.end)
        await held.reached()
        node.stop()
        node.port = 9999
        await node.start()
        world.broker.cluster.addresses[2] = node.host, node.port
        (error,) = await ends.reached(1)
        assert isinstance(error, KafkaConnectionError)
        await metadata_when(client, lambda: client.view.brokers[2].port == 9999)
        assert isinstance(await client.call(2, NOTHING), MetadataResponse)


@story(nodes=2)
async def test_metadata_with_another_address_ends_the_connection_to_the_old_one(world: Story) -> None:
    async with world.client("node1:9092") as client:
        held = world.broker.on(HeartbeatRequest, node=2, stall=True)
        ends = Ends()
        client.submit(2, heartbeat(), ends.end, ends.end)
        await held.reached()
        world.broker.cluster.addresses[2] = "node1", 9092
        client.refresh_metadata()
        (error,) = await ends.reached(1)
        assert str(error) == "node2:9092: connection closed, its broker has another address"
        await client.call(2, heartbeat())
        assert world.broker.requests(HeartbeatRequest)[-1].node == 1


@story(nodes=2)
async def test_all_calls_end_once_while_brokers_fail_at_random(world: Story) -> None:
    async with world.client(request_timeout_s=3.0, default_api_timeout_s=5.0) as client:
        ended: dict[int, int] = {}

        def end(number: int, _result: object) -> None:
            ended[number] = ended.get(number, 0) + 1

        submitted = 0
        for _ in range(300):
            event = world.random.randrange(8)
            host = f"node{1 + world.random.randrange(2)}"
            if event == 0:
                world.network.reset(host, 9092)
            elif event == 1:
                world.network.stall(host, 9092, world.random.random() * 6)
            elif event == 2:
                world.network.refuse(host, 9092)
            elif event == 3:
                world.network.accept(host, 9092)
            for _ in range(world.random.randrange(5)):
                both = partial(end, submitted), partial(end, submitted)
                if world.random.randrange(3):
                    client.submit(1 + world.random.randrange(2), NOTHING, *both)
                else:
                    client.submit_any(NOTHING, *both)
                submitted += 1
            await pass_time(world.random.random() * 0.3)
        await pass_time(20.0)
        assert ended == dict.fromkeys(range(submitted), 1)


@story()
async def test_versions_are_known_once_connected(world: Story) -> None:
    world.broker.versions[HeartbeatRequest] = (0, 2)
    async with world.client() as client:
        assert client.version(1, HeartbeatRequest, "group") is None
        ends = Ends()
        client.connect(1, ends.end, ends.end, channel="group")
        (versions,) = await ends.reached(1)
        assert versions[HeartbeatRequest.api_key] == (0, 2)
        assert client.version(1, HeartbeatRequest, "group") == 2
        client.connect(1, ends.end, ends.end, channel="group")
        assert len(ends.ends) == 2
        client.connect(5, ends.end, ends.end)
        assert isinstance(ends.ends[2], KafkaConnectionError)


@story()
async def test_cancelled_call_is_sent_and_its_response_dropped(world: Story) -> None:
    async with world.client() as client:
        call = client.call(1, naming("dropped"))
        call.cancel()
        await client.call(1, naming("kept"))
        assert [topics_of(each.request) for each in world.broker.requests(MetadataRequest)[1:]] == [
            ["dropped"],
            ["kept"],
        ]
        assert call.cancelled()


@story()
async def test_open_calls_fail_when_the_client_is_closed(world: Story) -> None:
    client = world.new_client()
    await client.start()
    held = world.broker.on(ProduceRequest, stall=True)
    world.broker.cluster.create_topic("orders")
    call = asyncio.ensure_future(client.call(1, produce_request("orders", (0, batch(b"a"))), version_max=12))
    await held.reached()
    await client.close()
    with pytest.raises(ClientUseError, match="this client was closed"):
        await call


@story(nodes=3)
async def test_tasks_exist_only_while_the_client_connects(world: Story) -> None:
    created: list[str] = []
    loop = asyncio.get_running_loop()
    real = loop.get_task_factory()

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, **options)
        created.append(coroutine.__qualname__)
        return task

    client = world.new_client(metadata_max_age_s=5.0, request_timeout_s=3.0)
    loop.set_task_factory(factory)
    try:
        await client.start()
        world.broker.cluster.create_topic("orders", 3)
        client.use_topics(["orders", "missing"])
        await metadata_when(client, lambda: "orders" in client.view.topics)
        ends = Ends()
        client.find_coordinator("g", 0, ends.end, ends.end)
        await ends.reached(1)
        for node in (1, 2, 3):
            await client.call(node, NOTHING)
        connecting = len(created)
        assert set(created) == {"Channel._open"} and connecting >= 3
        for node in (1, 2, 3):
            await client.call_any(NOTHING)
            await client.call(node, naming("orders"))
        await pass_time(60.0)
        assert len(created) == connecting
        world.broker.nodes[2].disconnect()
        await pass_time(10.0)
        await client.call(2, NOTHING)
        world.broker.nodes[3].freeze()
        client.submit(3, NOTHING, ends.end, ends.end)
        await client.close(timeout_s=1.0)
        assert set(created) == {"Channel._open"}
    finally:
        loop.set_task_factory(real)


@story(nodes=2)
async def test_callbacks_that_fail_do_not_keep_others_from_their_ends(world: Story) -> None:
    world.expect_failures()

    def failing(_result: object) -> None:
        raise ZeroDivisionError

    async with world.client("node1:9092") as client:
        ends = Ends()
        expected = 0

        async def submit_pairs() -> None:
            nonlocal expected
            for both in ((failing, failing), (ends.end, ends.end)):
                client.submit(2, NOTHING, *both)
                client.submit_any(NOTHING, *both, timeout_s=1.0)
                client.find_coordinator("g", 0, *both, timeout_s=1.0)
            expected += 3
            await ends.reached(expected)

        await submit_pairs()
        client.forget_coordinator("g")
        for node in (1, 2):
            world.network.refuse(f"node{node}", 9092)
            world.broker.nodes[node].disconnect()
        await pass_time(0.01)
        await submit_pairs()
        assert sum(isinstance(each, Exception) for each in ends.ends) == 3
        for node in (1, 2):
            world.network.accept(f"node{node}", 9092)
        await pass_time(3.0)
        world.broker.nodes[1].freeze()
        world.broker.nodes[2].freeze()
        for both in ((failing, failing), (ends.end, ends.end)):
            client.submit(2, NOTHING, *both)
            client.submit_any(NOTHING, *both)
            client.find_coordinator("h", 0, *both)
        assert isinstance(await outcome(client.close(timeout_s=1.0)), ZeroDivisionError)
        assert len(ends.ends) == 9
