"""Large compressed batches: a thread decompresses them, and the loop continues meanwhile."""

import asyncio
import random
import threading

from kafkalite_sdk.client.ownership import Owner
from kafkalite_sdk.consumer.fetch import decompression
from kafkalite_sdk.consumer.fetch.decompression import Decompression

from tests.kit.server import batch
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.consumer_rig import A, consuming, values
from tests.unit.sdk.fetch_rig import Rig, data

LARGE = random.Random(1).randbytes(decompression.OFFLOAD_BYTES * 2)


def append_large(world: Story, count: int) -> list[bytes]:
    """Append small and large compressed batches by turns to a new topic; return their values."""
    world.broker.cluster.create_topic("orders", partitions=1)
    log = world.broker.cluster.topics["orders"].partitions[0]
    expected = []
    for number in range(count):
        small = b"small-%d" % number
        log.append(batch(small))
        log.append(batch(LARGE + small, codec=4))
        expected += [small, LARGE + small]
    return expected


@story()
async def test_large_compressed_batches_are_returned_in_order(world: Story) -> None:
    expected = append_large(world, 3)
    async with consuming(world, A) as consumer:
        assert await values(consumer, 6) == expected


def test_a_thread_decompresses_and_ends_with_the_close() -> None:
    asyncio.run(decompressed_in_a_thread())


async def decompressed_in_a_thread() -> None:
    rig = Rig(1, decoder={"offload_bytes": decompression.OFFLOAD_BYTES})
    rig.answer(rig.request(), data(batch(LARGE, codec=4)))
    assert rig.take() == []
    ended = asyncio.Event()
    thread = Decompression(rig.fetcher, ended.set, Owner("Consumer").guard)
    thread.start_jobs(asyncio.get_running_loop())
    (worker,) = [each for each in threading.enumerate() if each.name.startswith("kafkalite-decompress")]
    await asyncio.wait_for(ended.wait(), 60)
    assert rig.take() == [(0, 0)]
    thread.close()
    worker.join(60)
    assert not worker.is_alive()
