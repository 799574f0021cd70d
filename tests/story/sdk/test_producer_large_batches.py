"""Large batches: a thread compresses them, the loop continues meanwhile, and the order of records stays."""

import asyncio
import random
import threading

import pytest
from kafkalite_sdk import Producer

from tests.kit.scripted_broker import ScriptedBroker

LARGE = random.Random(1).randbytes(200_000) * 2
WAIT_S = 60


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_thread_compresses_large_batches_in_order_and_ends_with_the_close(codec: str) -> None:
    async def main() -> None:
        async with ScriptedBroker() as broker:
            broker.cluster.create_topic("orders")
            async with asyncio.timeout(WAIT_S):
                await produce(broker)

    async def produce(broker: ScriptedBroker) -> None:
        producer = Producer(broker.bootstrap, compression_type=codec, linger_ms=0)
        await producer.start()
        await producer.send("orders", b"first")
        assert workers() == []
        expected = [b"first"]
        sent = []
        for number in range(4):
            for value in (b"small-%d" % number, LARGE + b"%d" % number):
                expected.append(value)
                sent.append(producer.send("orders", value))
        await asyncio.sleep(0)  # the batches are passed to threads
        threads = workers()
        assert threads
        offsets = [(await each).offset for each in sent]
        assert offsets == list(range(1, 9))
        await producer.close()
        for thread in threads:
            await asyncio.to_thread(thread.join, WAIT_S)
        assert workers() == []
        assert broker.cluster.topics["orders"].partitions[0].values() == expected

    asyncio.run(main())


def workers() -> list[threading.Thread]:
    """The threads that compress."""
    return [each for each in threading.enumerate() if each.name.startswith("kafkalite-compress")]
