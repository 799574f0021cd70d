"""Tests which available bytes satisfy `min_bytes`, as Apache Kafka counts them."""

import pytest

from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from tests.kit.server import Client, Hub, Wire, batch, fetch_request, fetched, produce_request, running, stopped_time

WAIT_MS = 60_000
ONE = len(batch(b"x" * 1000))


async def backlog(client: Client, batches: int, *, partitions: int = 1, **configs: str) -> None:
    await client.create("t", partitions=partitions, **configs)
    for index in range(partitions):
        for _ in range(batches):
            await client.produce("t", batch(b"x" * 1000), partition=index)


def sizes(wire: Wire) -> list[list[int]]:
    """The bytes of records of each partition, per answer that has arrived."""
    return [[len(part.records) for part in fetched(answer).values()] for answer in wire.answers()]


@pytest.mark.parametrize("min_bytes", [2 * ONE + 10, 10 * ONE])
async def test_read_that_stops_at_the_partition_bound_is_enough(client: Client, hub: Hub, min_bytes: int) -> None:
    await backlog(client, 5)
    stopped_time(client.broker)
    wire = Wire(hub)
    bounds = {"partition_max_bytes": 2 * ONE + 10, "min_bytes": min_bytes, "max_wait_ms": WAIT_MS}
    wire.send((fetch_request("t", (0, 0), **bounds), 12))
    assert sizes(wire) == [[2 * ONE]]


async def test_read_of_the_whole_log_waits_for_min_bytes(client: Client, hub: Hub) -> None:
    await backlog(client, 2)
    clock = stopped_time(client.broker)
    wire = Wire(hub)
    bounds = {"partition_max_bytes": 2 * ONE + 10, "min_bytes": 2 * ONE + 10, "max_wait_ms": WAIT_MS}
    wire.send((fetch_request("t", (0, 0), **bounds), 12))
    assert sizes(wire) == [] and clock.timers == 1
    Wire(hub).send((produce_request("t", (0, batch(b"x" * 1000))), 12))
    assert sizes(wire) == [[2 * ONE]] and clock.timers == 0


async def test_read_that_stops_at_the_response_bound_is_enough(client: Client, hub: Hub) -> None:
    await backlog(client, 1, partitions=2)
    stopped_time(client.broker)
    wire = Wire(hub)
    bounds = {"max_bytes": ONE + 10, "min_bytes": ONE + 10, "max_wait_ms": WAIT_MS}
    wire.send((fetch_request("t", (0, 0), (1, 0), **bounds), 12))
    assert sizes(wire) == [[ONE, 0]]


async def test_min_bytes_is_capped_by_max_bytes(client: Client, hub: Hub) -> None:
    await backlog(client, 2)
    stopped_time(client.broker)
    wire = Wire(hub)
    wire.send((fetch_request("t", (0, 0), max_bytes=2 * ONE, min_bytes=10 * ONE, max_wait_ms=WAIT_MS), 12))
    assert sizes(wire) == [[2 * ONE]]


async def test_min_bytes_is_capped_by_fetch_max_bytes() -> None:
    async with running(settings={"fetch.max.bytes": "1024"}) as client:
        await client.create("t")
        await client.produce("t", batch(b"x" * 2000))
        stopped_time(client.broker)
        wire = Wire(Hub(client.broker))
        wire.send((fetch_request("t", (0, 0), min_bytes=1 << 20, max_wait_ms=WAIT_MS), 12))
        assert len(sizes(wire)) == 1


async def test_read_that_ends_with_its_segment_is_enough(client: Client, hub: Hub) -> None:
    await client.create("t", segment_bytes=str(1 << 20))
    await client.produce("t", batch(b"x" * 600_000))
    await client.produce("t", batch(b"y" * 600_000))  # does not fit into the first segment
    stopped_time(client.broker)
    wire = Wire(hub)
    bounds = {"partition_max_bytes": 4 << 20, "min_bytes": 1 << 20, "max_wait_ms": WAIT_MS}
    wire.send((fetch_request("t", (0, 0), **bounds), 12))
    assert sizes(wire) == [[len(batch(b"x" * 600_000))]]


async def test_fetch_at_the_log_end_waits_behind_a_full_segment(client: Client, hub: Hub) -> None:
    await client.create("t", segment_bytes=str(1 << 20))
    await client.produce("t", batch(b"x" * 600_000))
    clock = stopped_time(client.broker)
    wire = Wire(hub)
    wire.send((fetch_request("t", (0, 0), partition_max_bytes=4 << 20, min_bytes=1 << 20, max_wait_ms=WAIT_MS), 12))
    assert sizes(wire) == [] and clock.timers == 1


async def test_read_committed_waits_where_it_has_read_up_to_the_last_stable_offset(client: Client, hub: Hub) -> None:
    await backlog(client, 2)
    clock = stopped_time(client.broker)
    wire = Wire(hub)
    bounds = {"min_bytes": 3 * ONE, "max_wait_ms": WAIT_MS, "isolation_level": 1}
    wire.send((fetch_request("t", (0, 0), **bounds), 12))
    assert sizes(wire) == [] and clock.timers == 1


async def test_offset_below_the_log_start_is_out_of_range_for_any_epoch(client: Client) -> None:
    await backlog(client, 2)  # epoch 0: offsets 0 and 1
    partition = client.broker.replicas.partition("t", b"", 0, by_id=False)
    assert isinstance(partition, Partition)
    for partition.leader_epoch in (5, 7):  # offsets 2 and 3
        await client.produce("t", batch(b"c"))
    assert partition.delete_records_before(2) == 0
    found = []
    for offset in (1, 4):
        answer = await client.call(fetch_request("t", (0, offset), last_fetched_epoch=6), 12)
        found += fetched(answer).values()
    below, above = found
    assert below.error_code == KafkaErrorCode.OFFSET_OUT_OF_RANGE and below.diverging_epoch is None
    assert above.error_code == 0 and (above.diverging_epoch.epoch, above.diverging_epoch.end_offset) == (5, 3)
