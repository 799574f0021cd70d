"""Requests to the leader of several replicas. The test assigns them and fetches for the followers; no broker does."""

import pytest

from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.cluster.partition.leader import Leader
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.delete_records import DeleteRecordsRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsResponse
from kafkalite.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.kit.server import Client, Hub, Wire, batch, outcomes, produce_request, stopped_time

NOT_LEADER = KafkaErrorCode.NOT_LEADER_OR_FOLLOWER
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
TIMEOUT_MS = 1_000  # of `produce_request`
FOLLOWERS = {2: (8,), 3: (8, 9)}


def partition_of(client: Client) -> Partition:
    found = client.broker.replicas.partition("t", bytes(16), 0, by_id=False)
    assert isinstance(found, Partition)
    return found


def lead(client: Client, factor: int) -> Leader:
    """Begin a leader epoch of this broker with followers, all of them in the ISR."""
    partition = partition_of(client)
    replicas = (client.broker.broker_id, *FOLLOWERS[factor])
    state = PartitionImage(replicas, replicas, replicas[0], partition.leader_epoch + 1)
    partition.lead(state, lambda: None)
    assert isinstance(partition.role, Leader)
    return partition.role


def fetch(leader: Leader, offset: int) -> None:
    """Fetch as every follower, at the same offset."""
    for replica_id in leader.followers:
        assert leader.follower_fetched(replica_id, 1, offset, 0, 0) == 0


@pytest.fixture
async def filled(client: Client) -> Client:
    """One record at 1000 ms, of the leader epoch with one replica."""
    await client.create("t")
    await client.produce("t", batch(b"first", timestamp=1_000))
    return client


@pytest.mark.parametrize("factor", FOLLOWERS)
async def test_acks_all_is_answered_when_the_followers_have_the_batch(filled: Client, hub: Hub, factor: int) -> None:
    leader, wire = lead(filled, factor), Wire(hub)
    fetch(leader, 1)
    wire.send((produce_request("t", (0, batch(b"second", timestamp=2_000))), 12))
    hub.pump()
    assert wire.answers() == [] and await filled.read("t") == [b"first"]
    fetch(leader, 2)
    (found,) = outcomes(await wire.answer())
    assert (found.error_code, found.base_offset) == (0, 1)
    assert await filled.read("t") == [b"first", b"second"]


async def test_timeout_of_the_request_is_answered_and_the_batch_stays(filled: Client, hub: Hub) -> None:
    clock = stopped_time(filled.broker)
    leader, wire = lead(filled, 2), Wire(hub)
    fetch(leader, 1)
    wire.send((produce_request("t", (0, batch(b"second", timestamp=2_000))), 12))
    hub.pump()
    clock.advance(TIMEOUT_MS)
    hub.pump()
    (found,) = outcomes(await wire.answer())
    assert (found.error_code, found.base_offset) == (KafkaErrorCode.REQUEST_TIMED_OUT, -1)
    fetch(leader, 2)
    assert await filled.read("t") == [b"first", b"second"]


async def test_isr_that_falls_below_the_minimum_is_answered(client: Client, hub: Hub) -> None:
    await client.create("t", min_insync_replicas="2")
    await client.produce("t", batch(b"first"))
    leader, wire = lead(client, 3), Wire(hub)
    wire.send((produce_request("t", (0, batch(b"held"))), 12))
    hub.pump()
    assert wire.answers() == []
    leader.change_isr((client.broker.broker_id,))
    hub.pump()
    (found,) = outcomes(await wire.answer())
    assert found.error_code == KafkaErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    found = await client.produce("t", batch(b"refused"))
    assert found.error_code == KafkaErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("version", [4, 5, 11])
async def test_offsets_are_not_available_until_the_new_leader_knows_them(filled: Client, version: int) -> None:
    """KIP-207. Before v5 clients do not know the code."""
    lead(filled, 2)
    await filled.produce("t", batch(b"second", timestamp=5_000), acks=1)
    leader = lead(filled, 2)
    before_v5 = KafkaErrorCode.LEADER_NOT_AVAILABLE
    code = KafkaErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else before_v5

    async def found(timestamp: int) -> ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse:
        return await filled.offset("t", timestamp, version=version)  # type: ignore[no-any-return]

    for timestamp in (LATEST, 2_000, 9_000):
        assert (await found(timestamp)).error_code == code, timestamp
    for timestamp, offset in ((EARLIEST, 0), (500, 0)):
        assert ((answer := await found(timestamp)).error_code, answer.offset) == (0, offset)
    fetch(leader, 2)
    for timestamp, offset in ((LATEST, 2), (2_000, 1), (9_000, -1)):
        assert ((answer := await found(timestamp)).error_code, answer.offset) == (0, offset), timestamp


@pytest.mark.parametrize("replica_id", [8, -2])
async def test_offsets_of_a_replica_end_at_the_log_end(filled: Client, replica_id: int) -> None:
    """They are available at once, also to a replica id for debugging."""
    lead(filled, 2)
    await filled.produce("t", batch(b"second", timestamp=5_000), acks=1)
    for timestamp, offset in ((LATEST, 2), (2_000, 1), (EARLIEST, 0)):
        found = await filled.offset("t", timestamp, replica_id=replica_id, isolation_level=1)
        assert (found.error_code, found.offset) == (0, offset), timestamp


async def test_epoch_of_the_leader_ends_at_its_log_end(filled: Client) -> None:
    lead(filled, 2)
    await filled.produce("t", batch(b"second"), acks=1)
    partition = partition_of(filled)
    assert partition.high_watermark == 1
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    for epoch, end in ((0, 1), (partition.leader_epoch, 2)):
        asked = topic.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(replica_id=8, topics=[topic(topic="t", partitions=[asked])])
        (found,) = (await filled.call(request)).topics[0].partitions
        assert (found.error_code, found.leader_epoch, found.end_offset) == (0, epoch, end)


async def test_follower_serves_offsets_to_the_debugging_replica_only(filled: Client) -> None:
    partition = partition_of(filled)
    partition.follow(PartitionImage((1, 8), (1, 8), 8, partition.leader_epoch + 1))
    for replica_id, code in ((-2, 0), (-1, NOT_LEADER), (8, NOT_LEADER)):
        found = await filled.offset("t", LATEST, replica_id=replica_id)
        assert found.error_code == code
    found = await filled.offset("t", LATEST, replica_id=-2, current_leader_epoch=partition.leader_epoch - 1)
    assert found.error_code == KafkaErrorCode.FENCED_LEADER_EPOCH


# DeleteRecords.


def delete_request(offset: int, timeout_ms: int = TIMEOUT_MS) -> tuple[DeleteRecordsRequest, int]:
    topics = DeleteRecordsRequest.DeleteRecordsTopic
    deleted = topics.DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(topics=[topics(name="t", partitions=[deleted])], timeout_ms=timeout_ms), 2


async def deleted(wire: Wire) -> tuple[int, int]:
    (topic,) = (await wire.answer()).topics
    (found,) = topic.partitions
    return found.error_code, found.low_watermark


def fetch_of(leader: Leader, replica_id: int, offset: int, log_start: int) -> None:
    assert leader.follower_fetched(replica_id, 1, offset, log_start, 0) == 0


@pytest.mark.parametrize("offset", [1, -1])
async def test_deletion_is_answered_when_the_live_replicas_have_moved_their_log_starts(
    filled: Client, hub: Hub, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    monkeypatch.setattr(type(filled.broker.hosting), "is_live", lambda *_: True)
    leader, wire = lead(filled, 3), Wire(hub)
    fetch(leader, 1)
    wire.send(delete_request(offset))
    hub.pump()
    fetch_of(leader, 8, 1, 1)
    hub.pump()
    assert wire.answers() == [], "9 has not moved its log start"
    fetch_of(leader, 9, 1, 1)
    hub.pump()
    assert await deleted(wire) == (0, 1)
    assert leader.progress_waits == {}


async def test_deletion_does_not_wait_for_dead_replicas(filled: Client, hub: Hub) -> None:
    leader, wire = lead(filled, 3), Wire(hub)
    fetch(leader, 1)
    wire.send(delete_request(1))
    hub.pump()
    assert await deleted(wire) == (0, 1)


async def test_deletion_ends_when_the_last_awaited_replica_has_died(
    filled: Client, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = {9}
    monkeypatch.setattr(type(filled.broker.hosting), "is_live", lambda _, broker_id, __: broker_id in live)
    leader, wire = lead(filled, 3), Wire(hub)
    fetch(leader, 1)
    wire.send(delete_request(1))
    hub.pump()
    assert wire.answers() == []
    live.clear()
    lead(filled, 3)
    hub.pump()
    assert await deleted(wire) == (0, 1)


async def test_deletion_times_out_and_is_not_undone(filled: Client, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(filled.broker.hosting), "is_live", lambda *_: True)
    clock = stopped_time(filled.broker)
    leader, wire = lead(filled, 2), Wire(hub)
    fetch(leader, 1)
    wire.send(delete_request(1))
    hub.pump()
    clock.advance(TIMEOUT_MS)
    hub.pump()
    assert await deleted(wire) == (KafkaErrorCode.REQUEST_TIMED_OUT, -1)
    assert partition_of(filled).log_start_offset == 1 and leader.progress_waits == {}


async def test_deletion_fails_when_the_leadership_ends(
    filled: Client, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(filled.broker.hosting), "is_live", lambda *_: True)
    leader, wire = lead(filled, 2), Wire(hub)
    fetch(leader, 1)
    wire.send(delete_request(1))
    hub.pump()
    partition_of(filled).resign()
    hub.pump()
    assert await deleted(wire) == (KafkaErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
