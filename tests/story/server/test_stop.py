"""Tests the stop of a broker: delayed requests complete at once, and nothing of the broker remains."""

import asyncio
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from kafkalite.clock import ThreadOffload
from kafkalite.cluster.topics.manager import NewTopic
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.server.broker import Broker
from kafkalite.server.process.ports import Ports
from tests.kit.server import connected, running

LONG_MS = 60_000


async def test_stop_completes_delayed_fetches(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path))
    await broker.start()
    created: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    parts = broker.running
    parts.topics.create([NewTopic("orders")], validate_only=False, then=created.set_result)
    assert await created == [None]
    host, port = broker.address.rsplit(":", 1)
    async with ClientConnection(host, int(port)) as peer:
        topic = FetchRequest.FetchTopic(
            topic="orders",
            topic_id=parts.image.topics["orders"].topic_id,
            partitions=[FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1024)],
        )
        delayed_fetch = asyncio.ensure_future(
            peer.call(FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, max_bytes=1024, topics=[topic]))
        )
        (partition,) = next(iter(parts.replicas)).partitions.values()
        while not partition.delayed_fetches:
            await asyncio.sleep(0)
        await broker.stop(grace_s=LONG_MS / 1000)
        answer = await delayed_fetch
    assert answer.responses[0].partitions[0].error_code == 0


async def test_stopped_broker_is_freed_and_froze_no_object() -> None:
    frozen = gc.get_freeze_count()
    async with Broker() as broker:
        assert gc.get_freeze_count() <= frozen  # frozen objects may be freed
    ended = weakref.ref(broker)
    del broker
    await asyncio.sleep(0)  # the callback of a job that ended during the stop
    gc.collect()
    assert ended() is None


@pytest.mark.parametrize("ended", [True, False])
async def test_broker_starts_once_and_another_continues_in_its_directory(tmp_path: Path, ended: bool) -> None:
    """A second start would serve outdated state."""
    broker = Broker(str(tmp_path))
    async with broker, connected(broker) as client:
        await client.create("orders")
        if not ended:
            with pytest.raises(RuntimeError, match="another `Broker`"):
                await broker.start()
            await client.create("payments")  # it still serves
    if ended:
        with pytest.raises(RuntimeError, match="another `Broker`"):
            await broker.start()
        with pytest.raises(RuntimeError, match="another `Broker`"):
            async with broker:
                pass
    async with running(str(tmp_path)) as client:
        assert sorted(client.broker.image.topics) == (["orders"] if ended else ["orders", "payments"])


async def test_failed_start_closes_executors_and_unlocks_the_directory(tmp_path: Path) -> None:
    """The last step fails: logs, timers, jobs and the group coordinator are there by then."""
    executors: list[ThreadOffload] = []

    def recorded(*args: Any, **named: Any) -> ThreadOffload:
        executors.append(ThreadOffload(*args, **named))
        return executors[-1]

    async with running(str(tmp_path)) as client:
        await client.create("orders")
        await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    settings = {"listeners": "PLAINTEXT://192.0.2.1:1"}
    broker = Broker(str(tmp_path), settings, ports=Ports(offload=recorded))
    with pytest.raises(OSError, match="cannot listen on"):
        await broker.start()
    assert len(executors) > 3
    for executor in executors:
        with pytest.raises(RuntimeError, match="closed"):
            executor.run(int, done=print)
    with pytest.raises(RuntimeError, match="not started"):
        broker.running  # noqa: B018  (the access is the test)
    async with running(str(tmp_path)) as client:
        assert set(client.broker.image.topics) == {"orders", "__consumer_offsets"}
