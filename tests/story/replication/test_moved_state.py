"""What a new leader knows of earlier ones: the answers to batches that are sent again."""

from __future__ import annotations

from pathlib import Path

from kafkalite.protocol.messages.delete_records import DeleteRecordsRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.server import fetch_request, fetched, idempotent, outcomes, produce_request, values_of
from tests.story.replication.final_checks import check_replicas
from tests.story.replication.observer import Observer
from tests.story.replication.test_three_replicas import ORDERS, in_a_cluster, leader_of, until_in_sync
from tests.story.replication.world import ReplicatedWorld


async def produce(world: ReplicatedWorld, sequence: int) -> tuple[int, int]:
    """Send a batch of one record to the leader; returns the error and the offset."""
    records = idempotent(b"%d" % sequence, sequence=sequence)
    request = produce_request(ORDERS[0], (ORDERS[1], records))
    (outcome,) = outcomes(await world.call(leader_of(world), request, 9))
    return outcome.error_code, outcome.base_offset


async def read_from(world: ReplicatedWorld, offset: int) -> list[bytes | None]:
    """The values from an offset on."""
    response = await world.call(leader_of(world), fetch_request(ORDERS[0], (ORDERS[1], offset)), 12)
    return values_of(fetched(response)[ORDERS].records)


async def delete_before(world: ReplicatedWorld, offset: int) -> None:
    """Move the log start of all replicas."""
    part = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition(partition_index=ORDERS[1], offset=offset)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name=ORDERS[0], partitions=[part])
    response = await world.call(leader_of(world), DeleteRecordsRequest(topics=[topic], timeout_ms=5_000), 2)
    (found,) = response.topics[0].partitions
    assert (found.error_code, found.low_watermark) == (0, offset)


def test_batch_that_is_sent_again_has_its_first_offset_after_elections_and_deletions(tmp_path: Path) -> None:
    """As redpanda#5356, whose second leader answered with another offset."""

    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        assert [await produce(world, sequence) for sequence in range(4)] == [(0, each) for each in range(4)]
        await delete_before(world, 2)
        for _ in range(3):
            killed = leader_of(world)
            world.cluster.kill(killed)
            while leader_of(world) in (killed, -1):
                await pass_time(0.1)
            await pass_time(1.0)
            assert [await produce(world, sequence) for sequence in range(4)] == [(0, each) for each in range(4)]
            await world.cluster.start(killed)
            await until_in_sync(world)
        await delete_before(world, 4)
        assert [await produce(world, sequence) for sequence in range(4)] == [(0, each) for each in range(4)]
        assert await produce(world, 4) == (0, 4)
        assert await read_from(world, 4) == [b"4"]
        await pass_time(1.0)
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)
