"""Resident memory of a traced producer and consumer: `python -m tests.kit.traced_clients ADDRESS TOPIC RECORDS`.

The spans are recorded and exported nowhere. It prints the bytes after each tenth of the records as a JSON list.
"""

import asyncio
import gc
import json
import os
import sys

from kafkalite_sdk import Consumer, Producer
from kafkalite_sdk.interceptors.opentelemetry import ConsumerTracing, ProducerTracing
from opentelemetry.sdk.trace import TracerProvider

from kafkalite.model import TopicPartition
from perf.process import memory

MARKS = 10
TOGETHER = 2_000


async def main(address: str, topic: str, records: int) -> list[int]:
    provider = TracerProvider()
    found = []
    tracing = ConsumerTracing(provider)
    settings = {"auto_offset_reset": "earliest", "interceptors": [tracing]}
    async with (
        Producer(address, interceptors=[ProducerTracing(provider)]) as producer,
        Consumer(address, **settings) as consumer,  # type: ignore[arg-type]
    ):
        consumer.assign([TopicPartition(topic, 0)])
        for _ in range(MARKS):
            for _ in range(records // MARKS // TOGETHER):
                for _ in range(TOGETHER):
                    producer.send(topic, b"value")
                    await producer.drain()
                await producer.flush()
                left = TOGETHER
                while left:
                    polled = await consumer.poll(120.0)
                    with tracing.process(polled[0]):
                        left -= len(polled)
            gc.collect()
            found.append(memory(os.getpid()).resident)
    return found


if __name__ == "__main__":
    address, topic, records = sys.argv[1:]
    print(json.dumps(asyncio.run(main(address, topic, int(records)))))
