"""Tests a broker process whose descriptors are all used by connections: no acknowledged record is lost."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from contextlib import ExitStack
from pathlib import Path

from kafkalite.net.client import ClientConnection
from tests.kit.brokers import Kafkalite, wait_until
from tests.kit.rig import create_topic
from tests.kit.server import batch, fetch_request, fetched, outcomes, produce_request, values_of

STORAGE_ERROR = 56
VALUE_BYTES = 100_000
SPARE = 8  # connections that the limit leaves; descriptors of the disk, too
SETTINGS = {
    "log.segment.bytes": "1048576",
    "log.initial.task.delay.ms": "10",
    "log.flush.offset.checkpoint.interval.ms": "20",
    "log.flush.interval.messages": "1",
}


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


class Producer:
    """Appends numbered records one by one and remembers which were acknowledged; retries KAFKA_STORAGE_ERROR."""

    def __init__(self, peer: ClientConnection) -> None:
        self.peer = peer
        self.acknowledged: list[bytes] = []
        self.refused = 0
        self._number = 0

    async def append(self, count: int) -> None:
        for _ in range(count):
            value = b"%010d" % self._number * (VALUE_BYTES // 10)
            self._number += 1
            answer = await self.peer.call(produce_request("t", (0, batch(value))), version_max=12)
            (outcome,) = outcomes(answer)
            assert outcome.error_code in (0, STORAGE_ERROR), outcome
            if outcome.error_code:
                self.refused += 1
            else:
                self.acknowledged.append(value)


async def read_all(peer: ClientConnection, until: bytes) -> list[bytes | None]:
    found: list[bytes | None] = []
    while not found or found[-1] != until:
        answer = await peer.call(fetch_request("t", (0, len(found)), max_bytes=1 << 26), version_max=12)
        part = fetched(answer)["t", 0]
        assert part.error_code == 0 and part.records, part
        found += values_of(part.records)
    return found


def take_all_descriptors(broker: Kafkalite, stack: ExitStack) -> None:
    """Lower the limit of the running broker, and connect until it accepts no more."""
    limit = descriptors(broker.pid) + SPARE
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (limit, limit))
    for _ in range(3 * SPARE):
        stack.enter_context(socket.create_connection(("127.0.0.1", broker.port)))


async def test_rolls_flushes_and_checkpoints_without_descriptors(tmp_path: Path) -> None:
    broker = Kafkalite(tmp_path, SETTINGS)
    await asyncio.to_thread(broker.start)
    try:
        await create_topic(broker.address, "t", 1)
        async with ClientConnection("127.0.0.1", broker.port, timeout_s=60) as peer:
            producer = Producer(peer)
            await producer.append(5)
            with ExitStack() as stack:
                take_all_descriptors(broker, stack)
                appends = asyncio.create_task(producer.append(60))  # rolls six times, and flushes each append
                await asyncio.to_thread(
                    wait_until,
                    lambda: "write failed, retrying" in broker.said() or appends.done(),
                    "an error is logged",
                )
                assert "Too many open files" in broker.said() and broker.running()
            await appends
            await producer.append(60)
            assert "offline" not in broker.said() and "Traceback" not in broker.said()
            assert producer.acknowledged[-1].startswith(b"%010d" % 124), "it appends again"
        broker.kill()
        await asyncio.to_thread(broker.start)
        async with ClientConnection("127.0.0.1", broker.port) as peer:
            there = await read_all(peer, producer.acknowledged[-1])
            found = [value for value in there if value in set(producer.acknowledged)]
            assert found == producer.acknowledged
        assert await asyncio.to_thread(broker.stop) == 0
    finally:
        if broker.running():
            broker.kill()
