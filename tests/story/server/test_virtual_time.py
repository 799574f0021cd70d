"""A whole broker in virtual time: its ports replace clock, random numbers, threads, disk and sockets."""

import asyncio
import errno
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkalite._speedups.codec.codec import decode, encode_request, read_response_header
from kafkalite.net.memory_transport import Client
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.schema import Request, response_class
from kafkalite.server.broker import Broker
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.members import codes, commit, fetch, offsets_of
from tests.kit.server import batch, fetch_request, fetched, outcomes, produce_request, values_of
from tests.kit.virtual_loop import MemoryNetwork, pass_time, run_virtually, virtual_ports

WAIT_MS = 30_000
LATE_S = 12.0
STORAGE_ERROR = 56


class VirtualClient:
    """A client whose waits pass in virtual time."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._client: Client = network.connect()
        self._bytes = bytearray()

    def send(self, request: Request, version: int) -> None:
        frame = encode_request(request, version, 1, "virtual")
        self._client.send(len(frame).to_bytes(4, "big") + frame)

    async def receive(self, request: Request, version: int) -> Any:
        while len(self._bytes) < 4 or len(self._bytes) < 4 + int.from_bytes(self._bytes[:4], "big"):
            await pass_time(0.001)
            self._bytes += self._client.received()
        end = 4 + int.from_bytes(self._bytes[:4], "big")
        answer = response_class(type(request))
        _, body = read_response_header(answer, version, bytes(self._bytes[4:end]))
        del self._bytes[:end]
        return decode(answer, version, body)

    async def call(self, request: Request, version: int) -> Any:
        self.send(request, version)
        return await self.receive(request, version)


def create(name: str, partitions: int = 1) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic])


async def scenario(data: Path, seed: int) -> list[object]:
    """Produce, fetch what comes late, commit, restart, and read again; what was seen, with its time."""
    loop, seen, disk = asyncio.get_running_loop(), list[object](), FaultyDisk()
    network = MemoryNetwork()
    async with Broker(str(data), ports=virtual_ports(seed, network, disk)) as broker:
        seen.append(broker.running.cluster_id)
        client, reader = VirtualClient(network), VirtualClient(network)
        assert (await client.call(create("orders", 3), 5)).topics[0].error_code == 0
        waiting = fetch_request("orders", (1, 0), max_wait_ms=WAIT_MS)
        reader.send(waiting, 12)
        await pass_time(LATE_S)
        produced = await client.call(produce_request("orders", (1, batch(b"late"))), 9)
        seen.append((loop.time(), [part.base_offset for part in outcomes(produced)]))
        part = fetched(await reader.receive(waiting, 12))["orders", 1]
        seen.append((loop.time(), values_of(part.records)))
        empty = await reader.call(fetch_request("orders", (2, 0), max_wait_ms=WAIT_MS), 12)
        seen.append((loop.time(), fetched(empty)["orders", 2].error_code))
        while codes(await client.call(commit("g", "orders", {1: 1}), 8)) != [0]:
            await pass_time(0.1)
        disk.fail("write", errno.ENOSPC, path="orders-1")
        (refused,) = outcomes(await client.call(produce_request("orders", (1, batch(b"refused"))), 9))
        seen.append(refused.error_code)
    disk.crash(Random(seed))
    async with Broker(str(data), ports=virtual_ports(seed, network, FaultyDisk())):
        client = VirtualClient(network)
        part = fetched(await client.call(fetch_request("orders", (1, 0)), 12))["orders", 1]
        seen.append((loop.time(), values_of(part.records)))
        found = await client.call(fetch("g"), 8)
        while found.groups[0].error_code:
            found = await client.call(fetch("g"), 8)
        seen.append(offsets_of(found))
    return seen


@pytest.mark.parametrize("seed", range(3))
def test_produce_fetch_commit_and_restart_in_virtual_time(tmp_path: Path, seed: int) -> None:
    threads, began = threading.active_count(), time.monotonic()
    seen, virtual_s = run_virtually(lambda: scenario(tmp_path / "first", seed))
    assert threading.active_count() == threads
    _cluster, produced, read, empty, refused, again, committed = seen
    assert produced[1] == [0] and read[1] == [b"late"]
    assert LATE_S <= produced[0] <= read[0] < LATE_S + 1
    assert WAIT_MS / 1000 <= empty[0] - read[0] < WAIT_MS / 1000 + 1 and empty[1] == 0
    assert refused == STORAGE_ERROR
    assert again[1] == [b"late"] and committed == {("orders", 1): 1}
    assert virtual_s > 40 and time.monotonic() - began < virtual_s / 2
    assert run_virtually(lambda: scenario(tmp_path / "second", seed)) == (seen, virtual_s), "a seed repeats its run"
