"""Tests segments that are deleted while a slow consumer reads them, and the log start over a restart."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite._speedups.codec import encode_request
from kafkalite.cluster.partition.partition import Partition
from kafkalite.protocol.messages.delete_records import DeleteRecordsRequest
from kafkalite.server.running.running_broker import RunningBroker
from kafkalite.storage import file_removal
from kafkalite.storage.log.log import Log
from tests.kit.logs import read_log
from tests.kit.server import Client, batch, fetch_request, running

RECEIVE_BUFFER_BYTES = 4096
BATCH_BYTES = 900_000
SEGMENTS = 3
VERSION = 12
DEADLINE_S = 120.0

Vanish = Callable[[Client], Awaitable[object]]


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Awaitable[Any]]:
    """Begins to watch for files that are removed; answers how to wait for them."""
    event = asyncio.Event()

    def telling(remove: Callable[..., None]) -> Callable[..., None]:
        loop = asyncio.get_running_loop()

        def job(*args: object) -> None:
            remove(*args)
            loop.call_soon_threadsafe(event.set)

        return job

    async def wait() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await event.wait()

    async def watch() -> Callable[[], Awaitable[object]]:
        monkeypatch.setattr(file_removal, "remove_batch", telling(file_removal.remove_batch))
        return wait

    return watch


def log_of(broker: RunningBroker) -> Log:
    partition = broker.replicas.partition("t", b"", 0, by_id=False)
    assert isinstance(partition, Partition) and partition.log is not None
    return partition.log


class SlowReader:
    """Fetches all of the first segment, and reads the response only in `rest`."""

    def __init__(self, broker: RunningBroker) -> None:
        host, port = broker.address.rsplit(":", 1)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self._socket.connect((host, int(port)))
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()

    async def ask(self) -> None:
        """Return when the first bytes of the answer were received, so that all others are in flight."""
        request = fetch_request("t", (0, 0), partition_max_bytes=1 << 20, max_bytes=1 << 20)
        frame = encode_request(request, VERSION, 1, "slow")
        await self._loop.sock_sendall(self._socket, len(frame).to_bytes(4, "big") + frame)
        self.answer = await self._receive(4)

    async def rest(self) -> bytes:
        """All of the answer."""
        return await self._receive(int.from_bytes(self.answer, "big"))

    async def _receive(self, size: int) -> bytes:
        found = bytearray()
        async with asyncio.timeout(DEADLINE_S):
            await self._receive_into(found, size)
        return bytes(found)

    async def _receive_into(self, found: bytearray, size: int) -> None:
        while len(found) < size:
            data = await self._loop.sock_recv(self._socket, min(size - len(found), RECEIVE_BUFFER_BYTES))
            assert data, f"the connection was closed with {size - len(found)} bytes outstanding"
            found += data

    def close(self) -> None:
        self._socket.close()


async def by_age(client: Client) -> None:
    client.broker.logs.upkeep.check_retention(lambda log: log.log_end_offset)


async def by_log_start(client: Client) -> None:
    assert await delete_records(client, SEGMENTS) == (0, SEGMENTS)
    await by_age(client)


async def by_topic(client: Client) -> None:
    await client.delete("t")


@pytest.mark.parametrize(
    ("vanish", "configs"),
    [
        (by_age, {"retention_ms": "1"}),
        (by_age, {"retention_bytes": "1"}),
        (by_log_start, {"retention_ms": "-1"}),
        (by_topic, {"retention_ms": "-1"}),
    ],
    ids=["time", "size", "log start", "topic"],
)
async def test_slow_consumer_receives_all_bytes_of_a_deleted_segment(
    tmp_path: Path, vanish: Vanish, configs: dict[str, Any], removed: Callable[[], Awaitable[Any]]
) -> None:
    gone = await removed()
    async with running(str(tmp_path)) as client:
        await client.create("t", segment_bytes=str(1 << 20), file_delete_delay_ms="0", **configs)
        for _ in range(SEGMENTS):
            await client.produce("t", batch(os.urandom(BATCH_BYTES)))
        log = log_of(client.broker)
        first = log.segments[0]
        assert len(log.segments) == SEGMENTS
        regions = read_log(log, 0, 1 << 20, SEGMENTS)
        assert isinstance(regions, list)
        wanted = regions[0].read()
        path = Path(first.path(".log"))
        del regions
        reader = SlowReader(client.broker)
        try:
            await reader.ask()
            await vanish(client)
            await gone()
            assert not any(tmp_path.rglob(f"{path.name}*")), "the files of the first segment are gone"
            assert wanted in await reader.rest()
        finally:
            reader.close()


async def delete_records(client: Client, offset: int) -> tuple[int, int]:
    asked = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[asked])]
    answer = await client.call(DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    found = answer.topics[0].partitions[0]
    return found.error_code, found.low_watermark


async def test_delete_records_survives_a_restart(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as client:
        await client.create("t")
        for value in range(9):
            await client.produce("t", batch(b"%d" % value))
        assert await delete_records(client, 5) == (0, 5)
    for _ in range(2):
        async with running(str(tmp_path)) as client:
            assert (log_of(client.broker).log_start_offset, log_of(client.broker).log_end_offset) == (5, 9)
