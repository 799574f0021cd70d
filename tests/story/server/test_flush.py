"""Tests acknowledgement after fsync, on a broker whose disk waits for the test."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from kafkalite.errors import KafkaErrorCode
from kafkalite.server.broker import Broker
from kafkalite.server.process.ports import Ports
from kafkalite.server.running.running_broker import RunningBroker
from kafkalite.storage.log.log import Log
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.server import ANSWER_S, Client, batch, connected

HELD_S = 60.0
REQUESTS = 1000
EVERY = {"flush_messages": "1"}


class HeldDisk(FaultyDisk):
    """A disk whose next sync of a partition's batches waits for the test."""

    def __init__(self, partition: str) -> None:
        super().__init__()
        self.partition = partition
        self.begun = asyncio.Event()
        self.let_go = threading.Event()
        self.loop = asyncio.get_running_loop()
        self.hook = self.hold

    def hold(self, operation: str, path: str) -> None:
        if operation == "sync" and self.partition in path and path.endswith(".log"):
            self.loop.call_soon_threadsafe(self.begun.set)
            assert self.let_go.wait(HELD_S), "the test let nobody go"


@asynccontextmanager
async def on(disk: FaultyDisk, data: Path, settings: dict[str, str] | None = None) -> AsyncIterator[Client]:
    broker = Broker(str(data), settings, ports=Ports(disk=disk))
    async with broker, connected(broker) as client:
        yield client


async def test_produce_waits_for_its_fsync_while_other_requests_are_served(tmp_path: Path) -> None:
    disk = HeldDisk("slow-0")
    async with on(disk, tmp_path) as client, connected(client.broker) as other:
        await client.create("slow", **EVERY)
        await client.create("quick", partitions=4)
        held = asyncio.ensure_future(client.produce("slow", batch(b"held")))
        await disk.begun.wait()
        for number in range(REQUESTS // 2):
            assert (await other.produce("quick", batch(b"q"), partition=number % 4)).error_code == 0
            assert len(await other.read("quick", number % 4, offset=number // 4)) == 1
        assert not held.done(), "the sync is still held"
        assert await other.read("slow") == [], "nobody reads what is not on the disk"
        assert (await other.offset("slow", -1)).offset == 0
        disk.let_go.set()
        assert (await held).error_code == 0
        assert await other.read("slow") == [b"held"]


async def test_one_fsync_batch_covers_appends_of_many_connections(tmp_path: Path) -> None:
    disk = HeldDisk("orders-")
    async with on(disk, tmp_path) as client:
        await client.create("orders", partitions=3, **EVERY)
        first = asyncio.ensure_future(client.produce("orders", batch(b"first")))
        await disk.begun.wait()
        partitions = next(topic for topic in client.broker.replicas if topic.name == "orders").partitions.values()
        others = [asyncio.ensure_future(send(client.broker, number % 3)) for number in range(30)]
        async with asyncio.timeout(ANSWER_S):
            while sum(p.log.log_end_offset for p in partitions if p.log is not None) < 31:
                await asyncio.sleep(0)
        batches = client.broker.logs.flusher.batches
        disk.let_go.set()
        assert all(outcome.error_code == 0 for outcome in await asyncio.gather(first, *others))
        assert client.broker.logs.flusher.batches == batches + 1, "31 answers, two rounds"


async def send(broker: RunningBroker, partition: int) -> object:
    async with connected(broker) as client:
        return await client.produce("orders", batch(b"more"), partition=partition)


async def test_failed_fsync_fails_waiting_and_later_appends(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with on(disk, tmp_path) as client:
        await client.create("orders", **EVERY)
        assert (await client.produce("orders", batch(b"kept"))).error_code == 0
        disk.fail("sync", errno.EIO, path=".log")
        for _ in range(2):
            outcome = await client.produce("orders", batch(b"lost"))
            assert outcome.error_code == KafkaErrorCode.KAFKA_STORAGE_ERROR
        assert disk.counts["sync"] and not disk.faults


async def test_stop_answers_produce_requests_that_wait_for_fsync(tmp_path: Path) -> None:
    disk = HeldDisk("orders-0")
    broker = Broker(str(tmp_path), ports=Ports(disk=disk))
    await broker.start()
    async with connected(broker) as client:
        await client.create("orders", **EVERY)
        held = asyncio.ensure_future(client.produce("orders", batch(b"held")))
        await disk.begun.wait()
        stopping = asyncio.ensure_future(broker.stop(grace_s=HELD_S))
        disk.let_go.set()
        await stopping
        assert (await held).error_code == 0
    async with Broker(str(tmp_path)) as again, connected(again) as client:
        assert await client.read("orders") == [b"held"]


# The broker's own settings, `log.flush.*`: all of them far from their defaults, which no test could wait for.

AT_ONCE = {"log.initial.task.delay.ms": "1"}


def log_of(client: Client, topic: str = "orders") -> Log:
    partition = next(each for each in client.broker.replicas if each.name == topic).partitions[0]
    assert partition.log is not None
    return partition.log


async def until(received: Callable[[], bool]) -> None:
    """Let the broker work until it is so."""
    async with asyncio.timeout(ANSWER_S):
        while not received():
            await asyncio.sleep(0)


async def test_flush_messages_makes_every_nth_append_wait_for_fsync(tmp_path: Path) -> None:
    """`log.flush.interval.messages` is the default of topics."""
    disk = HeldDisk("orders-0")
    settings = {"log.flush.interval.messages": "2"}
    async with on(disk, tmp_path, settings) as client, connected(client.broker) as other:
        await client.create("orders")
        await client.create("never", flush_messages="1000")
        assert (await client.produce("orders", batch(b"first"))).error_code == 0
        assert not disk.begun.is_set() and log_of(client).synced == 0
        second = asyncio.ensure_future(client.produce("orders", batch(b"second")))
        await disk.begun.wait()
        assert (await other.produce("never", batch(b"1", b"2", b"3"))).error_code == 0
        assert not second.done() and await other.read("orders") == [b"first"]
        disk.let_go.set()
        assert (await second).error_code == 0 and log_of(client).synced == 2


async def test_flush_ms_flushes_logs_without_waiting_requests(tmp_path: Path) -> None:
    """`log.flush.scheduler.interval.ms` is the interval of checks, `log.flush.interval.ms` the maximum age."""
    old = AT_ONCE | {"log.flush.scheduler.interval.ms": "1", "log.flush.interval.ms": "1"}
    disk = HeldDisk("orders-0")
    async with on(disk, tmp_path, old) as client:
        await client.create("orders")
        await client.create("later", flush_ms="3600000")
        assert (await client.produce("later", batch(b"x"))).error_code == 0
        assert (await client.produce("orders", batch(b"x"))).error_code == 0
        assert await client.read("orders") == [b"x"] and log_of(client).synced == 0
        disk.let_go.set()
        await until(lambda: log_of(client).synced == 1)
        assert log_of(client, "later").synced == 0


async def test_flush_ms_needs_the_flush_scheduler(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with on(disk, tmp_path, AT_ONCE | {"log.flush.interval.ms": "1"}) as client:
        await client.create("orders", flush_ms="1")
        assert (await client.produce("orders", batch(b"x"))).error_code == 0
        for _ in range(100):
            assert await client.read("orders") == [b"x"]
        assert log_of(client).synced == 0
        assert not [path for operation, path in disk.trace if operation == "sync" and path.endswith(".log")]


async def test_checkpoint_intervals_are_configurable(tmp_path: Path) -> None:
    """`log.flush.offset.checkpoint.interval.ms`, and the same of `start.offset`: a kill then finds them."""
    often = AT_ONCE | {
        "log.flush.interval.messages": "1",
        "log.flush.offset.checkpoint.interval.ms": "1",
        "log.flush.start.offset.checkpoint.interval.ms": "1",
    }
    async with on(FaultyDisk(), tmp_path, often) as client:
        await client.create("orders")
        assert (await client.produce("orders", batch(b"a", b"b", b"c"))).error_code == 0
        assert log_of(client).delete_records_before(2) == 0
        await until(lambda: (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 3\n")
        await until(lambda: (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 2\n")
