"""A fetch of a replica without sockets: `pytest perf/micro/test_replica_fetch.py`.

One follower has all partitions in its session. Each cycle has one fetch that waits, an append to some partitions, and
the response. The cost must depend on the changed partitions only, and a fetch that ends without a change must cost the
same for any number of partitions.
"""

import pytest

from tests.kit.scripted_follower import ScriptedFollower, hosted, lead
from tests.kit.server import Hub, Wire, batch, produce_request, running, stopped_time

SHARED = 2_000


@pytest.mark.parametrize("changed", [0, 1, 20, 100])
@pytest.mark.parametrize("partitions", [200, SHARED])
async def test_fetch_with_changed_partitions(benchmark, partitions, changed):
    benchmark.group = f"replica fetch, {changed} changed partitions"
    async with running() as client:
        await client.create("t", partitions=partitions)
        for index in range(changed):
            await client.produce("t", batch(b"value"), partition=index)
        for index in range(partitions):
            lead(hosted(client.broker, "t", index))
        hub = Hub(client.broker)
        follower, producer = ScriptedFollower(hub, client.broker), Wire(hub)
        ends = {("t", index): int(index < changed) for index in range(partitions)}
        await follower.fetch(*((*key, end) for key, end in ends.items()))
        clock = stopped_time(client.broker)
        request = produce_request("t", *((index, batch(b"value")) for index in range(changed)), acks=1)

        def cycle() -> None:
            follower.send(*((*key, end) for key, end in follower.ends.items()), max_wait_ms=500)
            hub.pump()
            if changed:
                producer.send((request, 12))
            else:
                clock.advance(500)
            hub.pump()
            assert follower.received() is not None
            producer.answers()

        benchmark(cycle)
