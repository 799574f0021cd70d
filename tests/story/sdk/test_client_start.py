"""A cluster client starts, fails to start, and closes, in virtual time."""

import asyncio

import pytest

from kafkalite.errors import ClientUseError, KafkaConnectionError, KafkaErrorCode, KafkaTimeoutError, error_class
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.scripted_frames import foreign, truncated
from tests.story.sdk.client_rig import Ends, Story, outcome, story


@story(nodes=3)
async def test_start_loads_the_brokers_and_uses_the_bootstrap_connection_for_its_broker(world: Story) -> None:
    async with world.client() as client:
        assert sorted(client.view.brokers) == [1, 2, 3]
        (asked,) = world.broker.requests(MetadataRequest)
        assert asked.request.topics == [] and client.is_connected(asked.node)
        await client.call(asked.node, MetadataRequest(topics=[]))
        assert {each.connection for each in world.broker.requests(MetadataRequest)} == {asked.connection}


@story()
async def test_start_fails_at_once_when_every_bootstrap_address_refuses(world: Story) -> None:
    client = world.new_client("nowhere1:9092,nowhere2:1")
    with pytest.raises(
        KafkaConnectionError, match=r"no broker is reachable: .*nowhere1:9092.*nowhere2:1|nowhere2.*1:9"
    ):
        await client.start()
    assert world.now < 1.0
    with pytest.raises(ClientUseError, match="is not started"):
        client.check_owner()


@story()
async def test_error_of_a_single_bootstrap_address_is_its_own(world: Story) -> None:
    with pytest.raises(KafkaConnectionError, match=r"^cannot connect to nowhere:9092: .*refused"):
        await world.new_client("nowhere").start()


@story(nodes=2)
async def test_start_uses_another_address_while_one_does_not_answer(world: Story) -> None:
    world.broker.nodes[1].freeze()
    for _ in range(4):
        begin = world.now
        async with world.client() as client:
            assert world.now - begin < 2.5
            assert sorted(client.view.brokers) == [1, 2]


@story()
async def test_start_waits_for_a_broker_that_does_not_know_the_cluster_yet(world: Story) -> None:
    world.broker.on(MetadataRequest, edit=lambda response: response.brokers.clear(), times=3)
    async with world.client() as client:
        assert sorted(client.view.brokers) == [1] and world.now > 0.2
    assert len(world.broker.requests(MetadataRequest)) == 4


@story(nodes=2)
async def test_start_waits_for_the_cluster_while_another_address_fails(world: Story) -> None:
    world.broker.nodes[1].freeze()
    for _ in range(4):  # the first address is a random one
        world.broker.on(MetadataRequest, edit=lambda response: response.brokers.clear(), times=1)
        asked = len(world.broker.requests(MetadataRequest))
        client = world.new_client()
        starting = asyncio.ensure_future(client.start())
        await world.broker.received(MetadataRequest, asked + 1)
        await pass_time(0.01)  # the response has arrived, the pause before the next request has begun
        world.broker.nodes[1].disconnect()
        await starting
        assert sorted(client.view.brokers) == [1, 2]
        await client.close()


@story()
async def test_start_fails_at_its_deadline_when_no_broker_knows_the_cluster(world: Story) -> None:
    world.broker.on(MetadataRequest, edit=lambda response: response.brokers.clear(), times=None)
    client = world.new_client()
    assert isinstance(await outcome(client.start(2.0)), error_class(KafkaErrorCode.BROKER_NOT_AVAILABLE))
    assert world.now <= 2.0
    closed = asyncio.ensure_future(outcome(client.start(60.0)))
    await pass_time(0.25)
    await client.close()
    assert isinstance(await closed, ClientUseError)


@story()
async def test_failed_start_may_be_repeated(world: Story) -> None:
    world.network.refuse("node1", 9092)
    client = world.new_client()
    for _ in range(2):
        assert isinstance(await outcome(client.start()), KafkaConnectionError)
    world.network.accept("node1", 9092)
    await client.start()
    assert list(client.view.brokers) == [1]
    await client.close()


@story()
async def test_start_ends_at_its_deadline_when_the_broker_does_not_answer(world: Story) -> None:
    world.broker.nodes[1].freeze()
    with pytest.raises(KafkaTimeoutError):
        await world.new_client().start(timeout_s=3.0)
    assert world.now == pytest.approx(3.0, abs=0.1)
    begin = world.now
    with pytest.raises(KafkaTimeoutError, match=r"did not answer in 10\.0 s"):
        await world.new_client().start()
    assert world.now - begin == pytest.approx(10.0, abs=0.1)


@story()
async def test_start_names_a_port_that_is_not_a_broker(world: Story) -> None:
    world.broker.on(ApiVersionsRequest, times=None, frame=foreign)
    with pytest.raises(KafkaConnectionError, match="is it a broker's port, without TLS"):
        await world.new_client().start()


@story(nodes=2)
async def test_broker_whose_versions_cannot_be_decoded_is_named_and_another_is_used(world: Story) -> None:
    world.broker.on(ApiVersionsRequest, times=None, frame=truncated, node=1)
    with pytest.raises(KafkaConnectionError, match=r"cannot connect to node1:9092: .*ApiVersionsRequest v4"):
        await world.new_client("node1:9092").start()
    for _ in range(4):
        async with world.client() as client:
            assert sorted(client.view.brokers) == [1, 2]


@story()
async def test_cancelled_start_leaves_nothing(world: Story) -> None:
    world.broker.nodes[1].freeze()
    client = world.new_client()
    starting = asyncio.ensure_future(client.start())
    await pass_time(0.5)
    assert world.broker.nodes[1].connections
    starting.cancel()
    assert isinstance(await outcome(starting), asyncio.CancelledError)
    world.broker.nodes[1].thaw()
    await client.start()
    await client.close()


@story()
async def test_close_during_start_ends_the_start(world: Story) -> None:
    world.broker.nodes[1].freeze()
    client = world.new_client()
    starting = asyncio.ensure_future(client.start())
    await pass_time(0.5)
    await client.close()
    with pytest.raises(ClientUseError, match="was closed"):
        await starting


@story()
async def test_second_start_and_use_after_close_are_rejected(world: Story) -> None:
    client = world.new_client()
    with pytest.raises(ClientUseError, match='this client is not started; use "async with"'):
        client.check_owner()
    ends = Ends()
    client.submit(1, MetadataRequest(topics=[]), ends.end, ends.end)
    assert str(ends.ends[0]) == "this client is not started"
    await client.start()
    with pytest.raises(ClientUseError, match="this client is started; create another one"):
        await client.start()
    await client.close()
    await client.close()
    with pytest.raises(ClientUseError, match="this client was closed; create another one"):
        client.check_owner()
    with pytest.raises(ClientUseError, match="closed"):
        await client.start()
    client.submit_any(MetadataRequest(topics=[]), ends.end, ends.end)
    client.find_coordinator("g", 0, ends.end, ends.end)
    assert [type(each) for each in ends.ends] == [ClientUseError] * 3


@story(nodes=3)
async def test_close_returns_in_time_while_every_broker_is_dead(world: Story) -> None:
    client = world.new_client(bootstrap="node1:9092")
    await client.start()
    ends = Ends()
    for each in world.broker.nodes.values():
        each.freeze()
        world.network.stall(each.host, each.port, 1000.0)
    for node in (1, 2, 3):
        for channel in ("", "group"):
            client.submit(node, MetadataRequest(topics=[]), ends.end, ends.end, channel=channel)
    client.submit_any(MetadataRequest(topics=[]), ends.end, ends.end)
    client.find_coordinator("g", 0, ends.end, ends.end)
    await pass_time(0.1)
    begin = world.now
    await client.close(timeout_s=2.0)
    assert world.now - begin <= 2.0
    assert [str(each) for each in ends.ends] == ["this client was closed"] * 8


@story()
async def test_cancelled_close_ends_the_connections(world: Story) -> None:
    client = world.new_client()
    await client.start()
    world.network.stall("node1", 9092, 1000.0)
    big = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="x" * 30_000) for _ in range(50)])
    ends = Ends()
    client.submit(1, big, ends.end, ends.end)
    closing = asyncio.ensure_future(client.close(timeout_s=100.0))
    await pass_time(1.0)
    assert not closing.done()
    closing.cancel()
    assert isinstance(await outcome(closing), asyncio.CancelledError)
    await ends.reached(1)


@story()
async def test_request_that_the_broker_does_not_serve_fails_with_the_versions(world: Story) -> None:
    del world.broker.versions[ListOffsetsRequest]
    async with world.client() as client:
        unsupported = error_class(KafkaErrorCode.UNSUPPORTED_VERSION)
        with pytest.raises(unsupported, match="does not serve ListOffsetsRequest"):
            await client.call(1, ListOffsetsRequest(topics=[]))
        with pytest.raises(unsupported):
            client.version(1, ListOffsetsRequest)
        assert client.version(1, MetadataRequest) == 13
