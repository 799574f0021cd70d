"""Reads of clients from followers (KIP-392), and leaders that name a follower in the rack of a client."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.cluster.partition.follower import Follower
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Node
from kafkalite.protocol.messages.fetch import FetchRequest
from tests.kit.scripted_follower import FOLLOWER, LEADER, ScriptedFollower, hosted, lead
from tests.kit.server import Client, Hub, Wire, batch, fetch_request, fetched, running, values_of

NOT_LEADER = KafkaErrorCode.NOT_LEADER_OR_FOLLOWER
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
T0 = ("t", 0)


def follow(partition: Partition, leader: int = FOLLOWER) -> Follower:
    """Let this broker follow another one, in the next leader epoch."""
    partition.follow(PartitionImage((LEADER, FOLLOWER), (LEADER, FOLLOWER), leader, partition.leader_epoch + 1))
    assert isinstance(partition.role, Follower)
    return partition.role


@pytest.fixture
async def following(client: Client) -> Client:
    """A follower with two records, of which it knows one to be committed."""
    await client.create("t")
    lead(hosted(client.broker, "t"))
    for value in (b"first", b"second"):
        await client.produce("t", batch(value), acks=1)
    follow(hosted(client.broker, "t")).follow_offsets(1, 0)
    return client


async def read(client: Client, offset: int, version: int = 12, **more: Any) -> Any:
    response = await client.call(fetch_request("t", (0, offset), **more), version)
    return fetched(response)[T0]


@pytest.mark.parametrize("version", [11, 12])
async def test_follower_serves_reads_up_to_its_high_watermark(following: Client, version: int) -> None:
    found = await read(following, 0, version)
    assert (found.error_code, found.high_watermark, values_of(found.records)) == (0, 1, [b"first"])


async def test_clients_without_the_feature_are_sent_to_the_leader(following: Client) -> None:
    assert (await read(following, 0, 10)).error_code == NOT_LEADER


@pytest.mark.parametrize("version", [4, 10, 14])
async def test_debugging_replica_id_reads_in_any_version(following: Client, version: int) -> None:
    if version >= 13:
        topic: str | bytes = following.topic_id("t")
    else:
        topic = "t"
    request = fetch_request(topic, (0, 0), replica_id=-2)
    (found,) = fetched(await following.call(request, version)).values()
    assert (found.error_code, values_of(found.records)) == (0, [b"first"])


async def test_offset_above_the_high_watermark_has_no_records_yet(following: Client) -> None:
    for offset in (1, 2):
        found = await read(following, offset)
        assert (found.error_code, found.records or b"") == (0, b"")


async def test_offset_above_the_log_end_is_out_of_range_with_the_offsets_of_the_follower(following: Client) -> None:
    """Clients compare them to decide between a retry and the leader."""
    found = await read(following, 3)
    assert (found.error_code, found.high_watermark) == (KafkaErrorCode.OFFSET_OUT_OF_RANGE, 1)


async def test_follower_checks_the_leader_epoch(following: Client) -> None:
    epoch = hosted(following.broker, "t").leader_epoch
    older, newer = KafkaErrorCode.FENCED_LEADER_EPOCH, KafkaErrorCode.UNKNOWN_LEADER_EPOCH
    for current, code in ((epoch, 0), (epoch - 1, older), (epoch + 1, newer)):
        assert (await read(following, 0, current_leader_epoch=current)).error_code == code


async def test_delayed_fetch_is_completed_by_the_high_watermark_that_the_follower_learns(
    following: Client, hub: Hub
) -> None:
    role, wire = hosted(following.broker, "t").role, Wire(hub)
    assert isinstance(role, Follower)
    wire.send((fetch_request("t", (0, 1), max_wait_ms=3_600_000), 12))
    assert wire.answers() == []
    role.follow_offsets(1, 0)
    assert wire.answers() == []
    role.follow_offsets(2, 0)
    response = await wire.answer()
    assert values_of(fetched(response)[T0].records) == [b"second"]


async def test_min_bytes_is_counted_at_a_follower(following: Client, hub: Hub) -> None:
    role, wire = hosted(following.broker, "t").role, Wire(hub)
    assert isinstance(role, Follower)
    enough = len(batch(b"first")) + 1
    wire.send((fetch_request("t", (0, 0), max_wait_ms=3_600_000, min_bytes=enough), 12))
    role.follow_offsets(1, 0)
    assert wire.answers() == []
    role.follow_offsets(2, 0)
    response = await wire.answer()
    assert values_of(fetched(response)[T0].records) == [b"first", b"second"]


async def test_another_epoch_completes_the_delayed_fetch(following: Client, hub: Hub) -> None:
    wire = Wire(hub)
    wire.send((fetch_request("t", (0, 1), max_wait_ms=3_600_000), 12))
    assert wire.answers() == []
    follow(hosted(following.broker, "t"), leader=9)
    assert fetched(await wire.answer())[T0].error_code == 0


async def test_other_requests_are_sent_to_the_leader(following: Client) -> None:
    assert (await following.produce("t", batch(b"refused"))).error_code == NOT_LEADER
    assert (await following.offset("t", -1)).error_code == NOT_LEADER


# Racks.


NODES = (Node(LEADER, "here", 1, "east"), Node(FOLLOWER, "there", 1, "west"))


@pytest.fixture
async def racks() -> AsyncIterator[Client]:
    """A leader in rack east with a follower in rack west."""
    async with running(settings={"broker.id": str(LEADER), "replica.selector.class": SELECTOR}) as client:
        broker: Any = client.broker
        broker.in_cluster, broker.nodes = True, lambda *_: NODES
        await client.create("t")
        lead(hosted(client.broker, "t"))
        await client.produce("t", batch(b"first"), acks=1)
        yield client


async def fetch_in(client: Client, rack: str, offset: int = 0, **more: Any) -> Any:
    request = fetch_request("t", (0, offset), rack_id=rack, max_wait_ms=more.pop("max_wait_ms", 0), **more)
    return fetched(await client.call(request, 12))[T0]


async def test_leader_names_the_follower_in_the_rack_of_the_client(racks: Client) -> None:
    follower = ScriptedFollower(hub := Hub(racks.broker), racks.broker)
    await follower.fetch(("t", 0, 1))
    found = await fetch_in(racks, "west", max_wait_ms=3_600_000)
    assert (found.preferred_read_replica, found.records or b"", found.high_watermark) == (FOLLOWER, b"", 1)
    found = await fetch_in(racks, "east")
    assert (found.preferred_read_replica, values_of(found.records)) == (-1, [b"first"])
    assert (await fetch_in(racks, "")).preferred_read_replica == -1
    hub.pump()


async def test_follower_without_the_offset_is_not_named(racks: Client) -> None:
    follower = ScriptedFollower(Hub(racks.broker), racks.broker)
    await follower.fetch(("t", 0, 0))
    assert (await fetch_in(racks, "west", 0)).preferred_read_replica == FOLLOWER
    assert (await fetch_in(racks, "west", 1)).preferred_read_replica == -1


async def test_follower_outside_the_isr_is_not_named(racks: Client) -> None:
    follower = ScriptedFollower(Hub(racks.broker), racks.broker)
    await follower.fetch(("t", 0, 1))
    lead(hosted(racks.broker, "t"), isr=())
    await follower.fetch(("t", 0, 1), max_wait_ms=0)
    assert (await fetch_in(racks, "west")).preferred_read_replica == -1


async def test_named_replica_is_in_each_incremental_response(racks: Client) -> None:
    await ScriptedFollower(Hub(racks.broker), racks.broker).fetch(("t", 0, 1))
    first = await racks.call(fetch_request("t", (0, 0), rack_id="west", session_epoch=0), 12)
    again = FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[], rack_id="west", session_id=first.session_id, session_epoch=1
    )
    assert fetched(await racks.call(again, 12))[T0].preferred_read_replica == FOLLOWER


async def test_named_follower_receives_high_watermarks_soon(racks: Client) -> None:
    follower = ScriptedFollower(Hub(racks.broker), racks.broker)
    await follower.fetch(("t", 0, 1))
    await fetch_in(racks, "west")
    await racks.produce("t", batch(b"second"), acks=1)
    await follower.fetch(("t", 0, 1))
    follower.send(("t", 0, 2), max_wait_ms=3_600_000)
    await follower.answer()
    assert follower.watermarks[T0] == 2


async def test_without_a_selector_no_follower_is_named(racks: Client) -> None:
    object.__setattr__(racks.broker.config, "replica_selector_class", None)
    await ScriptedFollower(Hub(racks.broker), racks.broker).fetch(("t", 0, 1))
    assert (await fetch_in(racks, "west")).preferred_read_replica == -1
