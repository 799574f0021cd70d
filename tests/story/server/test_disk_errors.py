"""Tests what clients receive from a broker whose disk is full at start, returns read errors, or is slow."""

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.records.control import ControlType
from kafkalite.server.broker import Broker
from kafkalite.server.process.ports import Ports
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.segment import Segment
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.server import NOW_MS, Client, batch, connected, fetch_request, fetched
from tests.story.server.test_transactions import COMMITTED, Writer

WAIT_S = 120.0
VALUE = bytes(300_000)  # three to a segment


@pytest.fixture
async def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
async def client(disk: FaultyDisk, tmp_path: Path) -> AsyncIterator[Client]:
    broker = Broker(str(tmp_path / "data"), ports=Ports(disk=disk))
    async with broker, connected(broker) as client:
        await client.create("t", segment_bytes=str(1 << 20))
        for number in range(12):
            assert (await client.produce("t", batch(VALUE, timestamp=NOW_MS + number))).error_code == 0
        yield client


def log_of(client: Client, topic: str = "t") -> Log:
    found = client.broker.replicas.partition(topic, b"", 0, by_id=False)
    assert isinstance(found, Partition) and found.log is not None
    return found.log


def unload(client: Client, segment: Segment) -> None:
    client.broker.logs.cache.forget(segment)
    segment.unload()


async def error_at(client: Client, offset: int, **more: int) -> int:
    answer = await client.call(fetch_request("t", (0, offset), **more), 12)
    return int(fetched(answer)["t", 0].error_code)


class Door:
    """A job stops before an operation on a file until the test has done something."""

    def __init__(self, disk: FaultyDisk, operation: str, ending: str) -> None:
        self._operation, self._ending = operation, ending
        self._open = threading.Event()
        self._entered = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        disk.hook = self._happens

    def _happens(self, operation: str, path: str) -> None:
        if threading.get_ident() == self._loop_thread or operation != self._operation:
            return
        if path.endswith(self._ending) and not self._open.is_set():
            self._loop.call_soon_threadsafe(self._entered.set)
            assert self._open.wait(WAIT_S), "the test never opened the door"

    async def meanwhile(self, do: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_S):
            await self._entered.wait()
        do()
        self._open.set()


async def test_broker_starts_on_a_full_disk(client: Client, tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    await client.create("never-written")
    await client.broker.stop()
    (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
    disk = FaultyDisk()
    broker = Broker(path, ports=Ports(disk=disk))
    for operation in ("write", "rename"):
        disk.fail(operation, errno.ENOSPC, repeat=True)
    async with broker, connected(broker) as late:
        assert len(await late.read("t")) > 0
        for topic in ("t", "never-written"):
            assert (await late.produce(topic, batch(b"x"))).error_code == KafkaErrorCode.KAFKA_STORAGE_ERROR
        assert (await late.create("new"))[0].error_code != 0
        assert len(await late.read("t", offset=9)) > 0, "reading goes on"
        disk.heal()
        for topic in ("t", "never-written"):
            assert (await late.produce(topic, batch(b"x"))).error_code == 0
        assert (await late.create("new"))[0].error_code == 0
        assert await late.read("t", offset=12) == [b"x"]
    async with Broker(path) as broker, connected(broker) as last:
        assert await last.read("t", offset=12) == await last.read("never-written") == [b"x"]


@pytest.mark.parametrize("where", [".log", ".index"])
async def test_read_error_fails_only_its_read(client: Client, disk: FaultyDisk, where: str) -> None:
    """No acknowledged record depends on it: the directory stays online, and the next read may succeed."""
    log = log_of(client)
    unload(client, log.segments[0])
    path = log.segments[0].path(where)
    disk.fail("read", errno.EIO, path=path, repeat=True)
    for _ in range(2):
        assert await error_at(client, 0) == KafkaErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.offset("t", NOW_MS + 1)).error_code == KafkaErrorCode.KAFKA_STORAGE_ERROR
    assert await error_at(client, 11) == 0, "other segments are read"
    assert (await client.produce("t", batch(b"more"))).error_code == 0
    assert client.broker.logs.is_online(log.root) and not log.failed
    disk.heal()
    assert await error_at(client, 0) == 0
    assert (await client.offset("t", NOW_MS + 1)).offset == 1


async def test_segment_deleted_while_a_job_opens_it(client: Client, disk: FaultyDisk) -> None:
    log = log_of(client)
    unload(client, log.segments[0])
    path = log.segments[0].path(".log")

    def retire() -> None:
        log.drop_first(1)
        os.rename(path, path + ".deleted")  # the first of several renames of a job; the loop does not know of them yet

    asked = asyncio.create_task(error_at(client, 0))
    await Door(disk, "open", path).meanwhile(retire)
    assert await asked == KafkaErrorCode.OFFSET_OUT_OF_RANGE


async def test_segment_replaced_while_a_job_opens_it(client: Client, disk: FaultyDisk) -> None:
    """The cleaner replaces it: the same offsets are read from the new segment."""
    log = log_of(client)
    unload(client, log.segments[0])
    old = log.segments[0]
    path = old.path(".log")

    def replace() -> None:
        new = Segment(0, log.directory, disk, log.config)
        new.size, new.closed = old.size, True
        os.link(path, path + ".swap")
        os.rename(path, path + ".deleted")
        new.suffix = ".swap"
        new.open_again()
        log.replace([old], new)

    asked = asyncio.create_task(client.read("t"))
    await Door(disk, "open", path).meanwhile(replace)
    assert len(await asked) > 0


async def test_aborted_transactions_are_read_by_a_job(client: Client, disk: FaultyDisk) -> None:
    await client.create("x", segment_bytes=str(1 << 20))
    await client.produce("x", batch(b"first"))
    writer = Writer(client, "x")
    for _ in range(4):
        writer.send(7, *[VALUE] * 3)
        writer.end(7, ControlType.ABORT)
    log = log_of(client, "x")
    closed = [segment for segment in log.segments[:-1] if segment.transactions]
    assert closed
    for segment in closed:
        unload(client, segment)
    loop_thread, on_loop = threading.get_ident(), list[str]()

    def look(operation: str, path: str) -> None:
        if threading.get_ident() == loop_thread and operation == "read" and path.endswith(".txnindex"):
            on_loop.append(path)

    disk.hook = look
    answer = await client.call(fetch_request("x", (0, 0), isolation_level=COMMITTED, max_bytes=1 << 26), 12)
    part = fetched(answer)["x", 0]
    assert part.error_code == 0 and on_loop == []
    assert [each.first_offset for each in part.aborted_transactions][:1] == [1]
    disk.hook = None
    for segment in closed:
        unload(client, segment)
        disk.fail("read", errno.EIO, path=segment.transactions.path, repeat=True)
    answer = await client.call(fetch_request("x", (0, 0), isolation_level=COMMITTED, max_bytes=1 << 26), 12)
    assert fetched(answer)["x", 0].error_code == KafkaErrorCode.KAFKA_STORAGE_ERROR
    disk.heal()


async def test_first_group_on_a_full_disk(client: Client, disk: FaultyDisk, caplog: pytest.LogCaptureFixture) -> None:
    """Each retry of the client is answered with the reason; the log names it once."""
    for operation in ("write", "rename"):
        disk.fail(operation, errno.ENOSPC, repeat=True)
    with caplog.at_level("INFO", "kafkalite"):
        for _ in range(10):
            answer = (await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))).coordinators[0]
            assert answer.error_code == KafkaErrorCode.COORDINATOR_NOT_AVAILABLE
            assert answer.error_message.endswith("the metadata cannot be written: No space left on device.")
        (new,) = await client.create("new")
        assert new.error_code != 0 and "No space left on device" in new.error_message
    lines = [record.getMessage() for record in caplog.records if record.name != "kafkalite.cluster.requests"]
    assert "None" not in caplog.text and "one replica" not in caplog.text
    assert len([line for line in lines if "__consumer_offsets cannot be created" in line]) == 1
    assert len(lines) <= 3, lines
    disk.heal()
    with caplog.at_level("INFO", "kafkalite"):
        found = (await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))).coordinators[0]
    assert found.error_code == 0 and caplog.text.count("one replica instead of 3") <= 1


async def test_files_that_a_full_disk_refuses_are_one_line_a_minute(
    disk: FaultyDisk, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for operation in ("create", "open", "mkdir"):  # a job may still create index files of another partition
        disk.fail(operation, errno.ENOSPC, path="many-", repeat=True)
    await client.create("many", partitions=20)
    codes = {(await client.produce("many", batch(b"x"), partition=number)).error_code for number in range(20)}
    assert codes == {KafkaErrorCode.KAFKA_STORAGE_ERROR}
    assert len([each for each in caplog.messages if "cannot create the files" in each]) == 1
