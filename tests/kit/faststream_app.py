"""A FastStream application: subscriber, publisher, batches, manual acknowledgement, rebalance listener, dead letters.

    python -m tests.kit.faststream_app ADDRESS SUFFIX

SUFFIX is a part of its topics and groups. It prints the module of the client and what the handlers have received.
"""

import asyncio
import sys

import aiokafka
from aiokafka import ConsumerRebalanceListener
from faststream import AckPolicy
from faststream.kafka import KafkaBroker, KafkaMessage

ADDRESS, SUFFIX = sys.argv[1:]
ORDERS, REPLIES, BY_HAND, DEAD = (f"{name}-{SUFFIX}" for name in ("orders", "replies", "by-hand", "dead"))
EXPECTED = ["A", "B", "M0", "M1", "M2", "acknowledged x", "assigned", "dead y"]

broker = KafkaBroker(ADDRESS)
received: list[str] = []
complete = asyncio.Event()


def receive(text: str) -> None:
    received.append(text)
    if set(EXPECTED) <= set(received):
        complete.set()


class Listener(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked: object) -> None:
        pass

    async def on_partitions_assigned(self, assigned: object) -> None:
        receive("assigned")


@broker.subscriber(ORDERS, group_id=f"g-{SUFFIX}", auto_offset_reset="earliest", listener=Listener())
@broker.publisher(REPLIES)
async def reply(body: str) -> str:
    return body.upper()


@broker.subscriber(REPLIES, group_id=f"b-{SUFFIX}", auto_offset_reset="earliest", batch=True)
async def collect(bodies: list[str]) -> None:
    for body in bodies:
        receive(body)


@broker.subscriber(BY_HAND, group_id=f"m-{SUFFIX}", auto_offset_reset="earliest", ack_policy=AckPolicy.MANUAL)
async def acknowledge(body: str, message: KafkaMessage) -> None:
    if body == "y":
        await broker.publish(body, DEAD)
    await message.ack()
    receive(f"acknowledged {body}")


@broker.subscriber(DEAD, group_id=f"d-{SUFFIX}", auto_offset_reset="earliest", max_workers=2)
async def bury(body: str) -> None:
    receive(f"dead {body}")


async def main() -> None:
    async with broker, asyncio.timeout(60):
        await broker.start()
        for number in range(3):
            await broker.publish(f"m{number}", ORDERS, key=b"k")
        await broker.publish_batch("a", "b", topic=ORDERS)
        await broker.publish("x", BY_HAND)
        await broker.publish("y", BY_HAND)
        await complete.wait()
    print(aiokafka.__name__, sorted(set(received) & set(EXPECTED)) == EXPECTED)


if __name__ == "__main__":
    asyncio.run(main())
