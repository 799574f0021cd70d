"""A whole broker in virtual time: its ports replace clock, random numbers, threads, disk and sockets."""

import asyncio
import errno
import threading
import time
from pathlib import Path
from random import Random

import pytest

from kafkalite.errors import KafkaConnectionError
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_broker import SimulatedBroker
from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.kit.members import codes, commit, fetch, offsets_of
from tests.kit.server import batch, fetch_request, fetched, outcomes, produce_request, values_of

WAIT_MS = 30_000
LATE_S = 12.0
STORAGE_ERROR = 56


def connection(network: MemoryNetwork) -> ClientConnection:
    return ClientConnection("broker", 9092, timeout_s=60.0, dial=network.dial)


def create(name: str, partitions: int = 1) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic])


async def scenario(data: Path, seed: int) -> list[object]:
    """Produce, fetch what comes late, commit, lose the power, and read again; what was seen, with its time."""
    loop, seen = asyncio.get_running_loop(), list[object]()
    network = MemoryNetwork(Random(seed), delay_s=(0.0001, 0.01), fragment_bytes=300)
    async with SimulatedBroker(str(data), network, seed=seed, settings={"log.flush.interval.messages": 1}) as broker:
        seen.append(broker.running.cluster_id)
        async with connection(network) as client, connection(network) as reader:
            assert (await client.call(create("orders", 3), version_max=5)).topics[0].error_code == 0
            waiting = reader.call(fetch_request("orders", (1, 0), max_wait_ms=WAIT_MS), version_max=12)
            await pass_time(LATE_S)
            produced = await client.call(produce_request("orders", (1, batch(b"late"))), version_max=9)
            seen.append((loop.time(), [part.base_offset for part in outcomes(produced)]))
            part = fetched(await waiting)["orders", 1]
            seen.append((loop.time(), values_of(part.records)))
            empty = await reader.call(fetch_request("orders", (2, 0), max_wait_ms=WAIT_MS), version_max=12)
            seen.append((loop.time(), fetched(empty)["orders", 2].error_code))
            while codes(await client.call(commit("g", "orders", {1: 1}), version_max=8)) != [0]:
                await pass_time(0.1)
            broker.disk.fail("write", errno.ENOSPC, path="orders-1")
            refused = await client.call(produce_request("orders", (1, batch(b"refused"))), version_max=9)
            seen.append(outcomes(refused)[0].error_code)
            broker.cut_power()
            with pytest.raises(KafkaConnectionError):
                await client.call(fetch("g"), version_max=8)
        await broker.start()
        async with connection(network) as client:
            again = await client.call(fetch_request("orders", (1, 0)), version_max=12)
            seen.append((loop.time(), values_of(fetched(again)["orders", 1].records)))
            found = await client.call(fetch("g"), version_max=8)
            while found.groups[0].error_code:
                found = await client.call(fetch("g"), version_max=8)
            seen.append(offsets_of(found))
    return seen


@pytest.mark.parametrize("seed", range(3))
def test_produce_fetch_commit_and_power_failure_in_virtual_time(tmp_path: Path, seed: int) -> None:
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
