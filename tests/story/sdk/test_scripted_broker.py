"""The scripted broker itself: it follows its script, and serves all other requests correctly."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kafkalite.errors import DecodeError, KafkaConnectionError, KafkaErrorCode, KafkaTimeoutError
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.join_group import JoinGroupRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.protocol.messages.sync_group import SyncGroupRequest
from tests.kit.scripted_broker import ScriptedBroker, ScriptedNode
from tests.kit.scripted_frames import (
    foreign,
    huge_count,
    huge_size,
    negative_size,
    truncated,
    wrong_correlation_id,
)
from tests.kit.server import batch, fetch_request, fetched, idempotent, outcomes, produce_request, values_of

NAMED = 12  # the last versions of Produce and Fetch that name topics


@asynccontextmanager
async def connected(node: ScriptedNode, **options: Any) -> AsyncIterator[ClientConnection]:
    async with ClientConnection(node.host, node.port, **options) as client:
        yield client


async def test_produced_batches_are_fetched_by_name_and_by_id() -> None:
    async with ScriptedBroker() as broker, connected(broker.nodes[1]) as client:
        topic = broker.cluster.create_topic("orders", 2)
        for named, version in (("orders", NAMED), (topic.topic_id, 13)):
            answer = await client.call(produce_request(named, (1, batch(b"a"))), version_max=version)
            assert [each.error_code for each in outcomes(answer)] == [0]
        read = fetched(await client.call(fetch_request("orders", (1, 0)), version_max=NAMED))["orders", 1]
        assert values_of(read.records) == [b"a", b"a"] and read.high_watermark == 2
        by_id = fetched(await client.call(fetch_request(topic.topic_id, (1, 1))))[topic.topic_id, 1]
        assert values_of(by_id.records) == [b"a"]


async def test_fetch_waits_for_data() -> None:
    async with ScriptedBroker() as broker, connected(broker.nodes[1]) as client, connected(broker.nodes[1]) as other:
        broker.cluster.create_topic("orders")
        waiting = client.call(fetch_request("orders", (0, 0), max_wait_ms=30_000), version_max=NAMED)
        await broker.received(FetchRequest)
        await other.call(produce_request("orders", (0, batch(b"late"))), version_max=NAMED)
        assert values_of(fetched(await waiting)["orders", 0].records) == [b"late"]


async def test_sequences_of_idempotent_producers_are_checked() -> None:
    async with ScriptedBroker() as broker, connected(broker.nodes[1]) as client:
        broker.cluster.create_topic("orders")
        identity = await client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))

        async def produce(sequence: int, epoch: int = 0) -> tuple[int, int]:
            records = idempotent(b"v", sequence=sequence, producer=identity.producer_id, epoch=epoch)
            (outcome,) = outcomes(await client.call(produce_request("orders", (0, records)), version_max=NAMED))
            return outcome.error_code, outcome.base_offset

        assert [await produce(0), await produce(1), await produce(0)] == [(0, 0), (0, 1), (0, 0)]
        assert broker.cluster.duplicates == 1
        assert await produce(5) == (KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produce(0, epoch=1) == (0, 2)
        assert await produce(2) == (KafkaErrorCode.INVALID_PRODUCER_EPOCH, -1)


async def test_leaders_move_and_fences_are_reported() -> None:
    async with ScriptedBroker(nodes=2) as broker, connected(broker.nodes[1]) as client:
        broker.cluster.create_topic("orders", leaders=[1])
        broker.cluster.move_leader("orders", 0, 2)
        (outcome,) = outcomes(
            await client.call(produce_request(broker.cluster.topics["orders"].topic_id, (0, batch(b"a"))))
        )
        assert outcome.error_code == KafkaErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (outcome.current_leader.leader_id, outcome.current_leader.leader_epoch) == (2, 1)
        described = await client.call(MetadataRequest(topics=None))
        assert [each.leader_id for each in described.topics[0].partitions] == [2]
        assert {each.port for each in described.brokers} == {each.port for each in broker.nodes.values()}
        async with connected(broker.nodes[2]) as leader:
            fenced = fetch_request("orders", (0, 0), current_leader_epoch=0)
            part = fetched(await leader.call(fenced, version_max=NAMED))["orders", 0]
            assert part.error_code == KafkaErrorCode.FENCED_LEADER_EPOCH


async def test_scripted_errors_have_no_effect_unless_applied() -> None:
    async with ScriptedBroker() as broker, connected(broker.nodes[1]) as client:
        log = broker.cluster.create_topic("orders", 2).partitions[0]
        request = produce_request("orders", (0, batch(b"a")), (1, batch(b"b")))
        broker.on(ProduceRequest, error=KafkaErrorCode.NOT_ENOUGH_REPLICAS, skip=1)
        late = KafkaErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        broker.on(ProduceRequest, error=late, applied=True, partitions={("orders", 0)})
        seen = [[each.error_code for each in outcomes(await client.call(request, version_max=NAMED))] for _ in range(3)]
        assert seen == [[late, 0], [KafkaErrorCode.NOT_ENOUGH_REPLICAS] * 2, [0, 0]]
        assert log.values() == [b"a", b"a"]
        broker.on(FindCoordinatorRequest, error=KafkaErrorCode.COORDINATOR_NOT_AVAILABLE, times=2)
        for version in (1, 4):
            found = await client.call(FindCoordinatorRequest(key="g", coordinator_keys=["g"]), version_max=version)
            answer = found if version < 4 else found.coordinators[0]
            assert answer.error_code == KafkaErrorCode.COORDINATOR_NOT_AVAILABLE
        broker.on(MetadataRequest, error=KafkaErrorCode.LEADER_NOT_AVAILABLE)
        described = await client.call(MetadataRequest(topics=None))
        assert (described.topics[0].error_code, described.topics[0].partitions) == (5, [])


async def test_stalled_response_holds_back_later_ones_of_its_connection() -> None:
    async with ScriptedBroker() as broker, connected(broker.nodes[1]) as client, connected(broker.nodes[1]) as other:
        stalled = broker.on(MetadataRequest, stall=True)
        first = client.call(MetadataRequest(topics=[]))
        await stalled.reached()
        second = client.call(MetadataRequest(topics=[]))
        await other.call(MetadataRequest(topics=[]))
        await broker.received(MetadataRequest, 3)
        assert not first.done() and not second.done()
        stalled.release()
        await asyncio.gather(first, second)


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (wrong_correlation_id, KafkaConnectionError),
        (truncated, DecodeError),
        (huge_size, KafkaConnectionError),
        (negative_size, KafkaConnectionError),
        (foreign, KafkaConnectionError),
        (huge_count, DecodeError),
    ],
)
async def test_false_responses_are_errors(frame: Any, error: type[Exception]) -> None:
    async with ScriptedBroker() as broker, connected(broker.nodes[1]) as client:
        broker.cluster.create_topic("orders", 3)
        broker.on(MetadataRequest, frame=frame)
        with pytest.raises(error):
            await client.call(MetadataRequest(topics=None))


@pytest.mark.parametrize("sent", [0, 3, 20])
async def test_disconnect_in_the_middle_of_a_frame(sent: int) -> None:
    async with ScriptedBroker() as broker, connected(broker.nodes[1]) as client:
        broker.cluster.create_topic("orders", 3)
        broker.on(MetadataRequest, disconnect_after_bytes=sent)
        with pytest.raises(KafkaConnectionError):
            await client.call(MetadataRequest(topics=None))


async def test_frozen_node_serves_what_has_arrived_when_it_continues() -> None:
    async with ScriptedBroker() as broker, connected(broker.nodes[1], timeout_s=30.0) as client:
        broker.nodes[1].freeze()
        late = client.call(MetadataRequest(topics=[]), timeout_s=0.01, keep_connection=True)
        with pytest.raises(KafkaTimeoutError):
            await late
        kept = client.call(MetadataRequest(topics=[]))
        broker.nodes[1].thaw()
        await kept


async def test_stopped_node_refuses_connections_and_listens_at_the_same_port_again() -> None:
    async with ScriptedBroker() as broker:
        node = broker.nodes[1]
        port = node.port
        node.stop()
        with pytest.raises(KafkaConnectionError):
            await ClientConnection(node.host, port).connect()
        await node.start()
        async with ClientConnection(node.host, port) as client:
            await client.call(MetadataRequest(topics=[]))


async def test_versions_are_limited_and_unserved_requests_end_the_connection() -> None:
    async with ScriptedBroker() as broker:
        broker.versions[FetchRequest] = (4, 11)
        del broker.versions[ListOffsetsRequest]
        async with connected(broker.nodes[1]) as client:
            assert client.version(FetchRequest) == 11
            assert ListOffsetsRequest.api_key not in client.api_versions


async def test_classic_group_waits_for_all_members_and_hands_over_the_assignment() -> None:
    def joining(member_id: str) -> JoinGroupRequest:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"topics")
        return JoinGroupRequest(
            group_id="g", session_timeout_ms=1, member_id=member_id, protocol_type="consumer", protocols=[protocol]
        )

    async with ScriptedBroker() as broker, connected(broker.nodes[1]) as one, connected(broker.nodes[1]) as two:
        ids = [(await client.call(joining(""))).member_id for client in (one, two)]
        leader = await one.call(joining(ids[0]))
        assert (leader.leader, leader.generation_id, len(leader.members)) == (ids[0], 1, 1)
        second = two.call(joining(ids[1]))
        await broker.received(JoinGroupRequest, 4)
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=ids[0])
        assert (await one.call(beat)).error_code == KafkaErrorCode.REBALANCE_IN_PROGRESS
        leader = await one.call(joining(ids[0]))
        assert (await second).generation_id == leader.generation_id == 2
        assigned = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=each, assignment=each.encode()) for each in ids
        ]
        waiting = two.call(SyncGroupRequest(group_id="g", generation_id=2, member_id=ids[1], assignments=[]))
        mine = await one.call(SyncGroupRequest(group_id="g", generation_id=2, member_id=ids[0], assignments=assigned))
        assert bytes(mine.assignment).decode() == ids[0] and bytes((await waiting).assignment).decode() == ids[1]
