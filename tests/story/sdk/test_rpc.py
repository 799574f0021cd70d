"""`rpc.Connection.poll`: many requests to several brokers, and their replies as they arrive; virtual time."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.rpc import Call, Connection
from kafkalite_sdk.rpc import connection as connection_module
from kafkalite_sdk.rpc.offsets_before import before

from kafkalite.errors import (
    BufferExhaustedError,
    ClientUseError,
    KafkaConnectionError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from kafkalite.protocol.extensions.list_segments import ListSegmentsResponse
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.describe_acls import DescribeAclsRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.client_rig import Story, story

Piece = ListSegmentsResponse.SegmentsTopic.SegmentsPartition


@asynccontextmanager
async def connection_of(world: Story, **options: Any):
    environment = Environment(dial=world.network.dial, random=world.random)
    async with Connection(world.broker.bootstrap, environment=environment, **options) as connection:
        yield connection


def metadata_of(broker: int) -> Call:
    return Call(MetadataRequest(topics=[]), broker=broker)


@story(nodes=3)
async def test_replies_are_returned_as_they_arrive(world: Story) -> None:
    async with connection_of(world) as connection:
        stalled = world.broker.on(MetadataRequest, node=2, stall=True)
        calls = [metadata_of(broker) for broker in (1, 2, 3)]
        replies = await connection.poll(5.0, *calls)
        while connection.open_calls > 1:
            replies += await connection.poll(5.0)
        assert {each.call for each in replies} == {calls[0], calls[2]} and all(each.result() for each in replies)
        assert await connection.poll(0.0) == []
        begin = world.now
        assert await connection.poll(0.5) == [] and world.now - begin == pytest.approx(0.5)
        stalled.release()
        (last,) = await connection.poll(5.0)
        assert last.call is calls[1] and connection.open_calls == 0
        assert await connection.poll(None) == []


@story()
async def test_many_requests_of_one_broker_are_pipelined_in_order(world: Story) -> None:
    async with connection_of(world) as connection:
        calls = [
            Call(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=str(n))]), broker=1)
            for n in range(200)
        ]
        replies = await connection.poll(5.0, *calls)
        while connection.open_calls:
            replies += await connection.poll(5.0)
        assert [each.call for each in replies] == calls
        assert [each.result().topics[0].name for each in replies] == [str(n) for n in range(200)]
        assert world.now < 1.0


@story(nodes=3)
async def test_request_goes_to_the_coordinator_of_its_group(world: Story) -> None:
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="billing", topics=None)
    async with connection_of(world) as connection:
        (reply,) = await connection.poll(5.0, Call(OffsetFetchRequest(groups=[group]), group="billing"))
        assert reply.result().groups[0].group_id == "billing"
        (asked,) = world.broker.requests(OffsetFetchRequest)
        assert len(world.broker.requests(FindCoordinatorRequest)) == 1
        connection.forget_coordinator(group="billing")
        (reply,) = await connection.poll(5.0, Call(OffsetFetchRequest(groups=[group]), group="billing"))
        assert len(world.broker.requests(FindCoordinatorRequest)) == 2
        assert {each.node for each in world.broker.requests(OffsetFetchRequest)} == {asked.node}


@story(nodes=3)
async def test_bare_requests_go_to_the_broker_that_serves_them(world: Story) -> None:
    world.broker.cluster.controller = 3
    async with connection_of(world) as connection:
        topic = CreateTopicsRequest.CreatableTopic(
            name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        (reply,) = await connection.poll(5.0, CreateTopicsRequest(topics=[topic]))
        assert reply.result().topics[0].error_code == 0
        assert [each.node for each in world.broker.requests(CreateTopicsRequest)] == [3]
        with pytest.raises(ValueError, match="ListOffsetsRequest is served by the leader of a partition: pass broker"):
            await connection.poll(5.0, ListOffsetsRequest(replica_id=-1, topics=[]))
        with pytest.raises(ValueError, match="pass one of broker, group"):
            Call(MetadataRequest(topics=[]), broker=1, group="g")
        assert connection.open_calls == 0


@story()
async def test_bare_request_goes_to_the_bootstrap_server_while_no_broker_is_known(world: Story) -> None:
    world.broker.on(MetadataRequest, edit=lambda response: setattr(response, "error_code", 129), times=1, skip=1)
    async with connection_of(world, metadata_max_age_ms=50) as connection:
        await pass_time(0.06)
        while connection.brokers:
            await pass_time(0.001)
        (reply,) = await connection.poll(5.0, MetadataRequest(topics=[]))
        assert reply.result().brokers[0].node_id == 1


@story(nodes=2)
async def test_failures_are_replies_and_nothing_is_repeated(world: Story) -> None:
    async with connection_of(world, request_timeout_ms=2000) as connection:
        world.broker.on(MetadataRequest, node=1, disconnect=True, times=1)
        world.broker.on(MetadataRequest, node=2, stall=True)
        calls = [metadata_of(1), metadata_of(2), metadata_of(9), Call(DescribeAclsRequest())]
        replies = await connection.poll(5.0, *calls)
        while connection.open_calls:
            replies += await connection.poll(5.0)
        errors = {each.call: each.error for each in replies}
        kinds = (KafkaConnectionError, KafkaTimeoutError, KafkaConnectionError, UnsupportedVersionError)
        assert [type(errors[call]) for call in calls] == [*kinds]
        with pytest.raises(UnsupportedVersionError, match="key 29"):
            next(each for each in replies if each.call is calls[3]).result()


@story()
async def test_cancelled_poll_loses_no_reply(world: Story) -> None:
    async with connection_of(world) as connection:
        stalled = world.broker.on(MetadataRequest, stall=True)
        call = metadata_of(1)
        poll = asyncio.ensure_future(connection.poll(5.0, call))
        await pass_time(0.1)
        poll.cancel()
        await asyncio.wait([poll])
        stalled.release()
        (reply,) = await connection.poll(5.0)
        assert reply.call is call


@story()
async def test_a_second_task_that_polls_is_rejected_and_the_first_one_receives_its_reply(world: Story) -> None:
    async with connection_of(world) as connection:
        stalled = world.broker.on(MetadataRequest, stall=True)
        waiting = asyncio.ensure_future(connection.poll(None, metadata_of(1)))
        await pass_time(1.0)
        with pytest.raises(ClientUseError, match="polled by another task"):
            await connection.poll(0.0, metadata_of(1))
        stalled.release()
        assert len(await waiting) == 1 and connection.open_calls == 0


@story()
async def test_number_of_open_calls_is_bounded(world: Story) -> None:
    async with connection_of(world) as connection:
        with pytest.raises(BufferExhaustedError, match="at most 10000"):
            await connection.poll(0.0, *[metadata_of(1)] * (connection_module.CALLS_MAX + 1))
        assert connection.open_calls == 0
    with pytest.raises(ClientUseError, match="was closed"):
        await connection.poll(0.0)


@story()
async def test_offsets_before_of_a_broker_with_version_0(world: Story) -> None:
    def answer(call: Any) -> ListOffsetsResponse:
        topic, asked = call.request.topics[0], call.request.topics[0].partitions[0]
        assert (call.version, asked.timestamp, asked.max_num_offsets) == (0, 1234, 2)
        found = ListOffsetsResponse.ListOffsetsTopicResponse
        partition = found.ListOffsetsPartitionResponse(partition_index=asked.partition_index, old_style_offsets=[7, 3])
        return ListOffsetsResponse(topics=[found(name=topic.name, partitions=[partition])])

    world.broker.cluster.create_topic("orders", partitions=1)
    world.broker.on(ListOffsetsRequest, respond=answer)
    async with connection_of(world) as connection:
        assert await connection.offsets_before("orders", 0, 1234, 2) == [7, 3]


@story()
async def test_offsets_before_of_a_broker_without_version_0_is_a_clear_error(world: Story) -> None:
    world.broker.cluster.create_topic("orders", partitions=1)
    world.broker.versions[ListOffsetsRequest] = (1, 11)
    async with connection_of(world) as connection:
        with pytest.raises(UnsupportedVersionError, match=r"neither ListOffsets v0 .* nor ListSegments"):
            await connection.offsets_before("orders", 0, -1, 5)
        with pytest.raises(ValueError, match="max_offsets is 0"):
            await connection.offsets_before("orders", 0, -1, 0)


@pytest.mark.parametrize(
    ("time_ms", "max_offsets", "expected"),
    [
        (-1, 9, [30, 20, 10, 5]),
        (-1, 2, [30, 20]),
        (-2, 9, [5]),
        (99, 9, []),
        (100, 9, [5]),
        (250, 9, [10, 5]),
        (300, 2, [20, 10]),
    ],
)
def test_offsets_before_are_those_of_segments(time_ms: int, max_offsets: int, expected: list[int]) -> None:
    """The first segment begins below the log start; the last one has records, so that -1 includes the log end."""
    times = [(0, 100), (10, 200), (20, 300)]
    segments = [Piece.Segment(base_offset=base, size=1, max_timestamp=stamp) for base, stamp in times]
    first = Piece(partition_index=0, log_start_offset=5, log_end_offset=30, next_offset=10, segments=segments[:1])
    rest = Piece(partition_index=0, log_start_offset=5, log_end_offset=30, segments=segments[1:])
    assert before([first, rest], time_ms, max_offsets) == expected
