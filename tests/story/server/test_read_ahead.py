"""Tests reads of records that are not in memory: a job waits for the disk, the loop serves other requests.

`Cellar` says which files are only on the disk; a read by a job loads them into memory, when the test allows it.
"""

import asyncio
import ctypes
import errno
import mmap
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite._speedups.storage.file import File
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.fetch import FetchResponse
from kafkalite.server.broker import Broker
from kafkalite.server.process.ports import Ports
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.scripted_follower import ScriptedFollower, lead
from tests.kit.server import (
    NOW_MS,
    Client,
    Hub,
    Wire,
    batch,
    connected,
    fetch_request,
    fetched,
    outcomes,
    produce_request,
    running,
    values_of,
)

OTHERS = 1_000
PARTITIONS = 4
WAIT_S = 60.0  # a guard against hanging, not a bound: the sanitizer on a busy machine takes more than 10 s
VALUE_BYTES = 300_000  # three to a segment
READS = 50  # one of which finds a page missing


class Cellar:
    """Files that are cold until a job has read them; jobs wait until the test opens the door."""

    def __init__(self, disk: FaultyDisk) -> None:
        self.cold: set[str] = set()
        self.stubborn = False  # what was brought in is dropped at once
        self.loop_reads: list[str] = []
        self.job_opens: list[str] = []
        self.door = threading.Event()
        self.entered = asyncio.Semaphore(0)
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        disk.resident = lambda path, offset, size: 0 if path in self.cold else 1
        disk.hook = self.happens

    def happens(self, operation: str, path: str) -> None:
        on_loop = threading.get_ident() == self._loop_thread
        if operation == "open" and not on_loop:
            self.job_opens.append(path)
        if operation != "read" or path not in self.cold:
            return
        if on_loop:
            self.loop_reads.append(path)
            return
        self._loop.call_soon_threadsafe(self.entered.release)
        assert self.door.wait(WAIT_S), "the test never opened the door"
        if not self.stubborn:
            self.cold.discard(path)

    async def job_waits(self) -> None:
        """A job stands at the door."""
        async with asyncio.timeout(WAIT_S):
            await self.entered.acquire()


@pytest.fixture
async def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
async def client(disk: FaultyDisk, tmp_path: Path) -> AsyncIterator[Client]:
    broker = Broker(str(tmp_path / "data"), ports=Ports(disk=disk))
    async with broker, connected(broker) as client:
        await client.create("old", partitions=PARTITIONS, segment_bytes=str(1 << 20))
        await client.create("new")
        await client.produce("new", batch(b"the files are made at the first append"))
        for index in range(PARTITIONS):
            for number in range(12):
                await client.produce("old", written(number), partition=index)
        yield client


@pytest.fixture
async def hub(client: Client) -> Hub:
    return Hub(client.broker)


@pytest.fixture
async def cellar(client: Client, disk: FaultyDisk) -> AsyncIterator[Cellar]:
    cellar = Cellar(disk)
    yield cellar
    cellar.door.set()  # a failed test leaves no job behind


def written(number: int) -> bytes:
    return batch(bytes([number]) * VALUE_BYTES, timestamp=NOW_MS + number)


def hosted(client: Client, topic: str, index: int = 0) -> Partition:
    found = client.broker.replicas.partition(topic, b"", index, by_id=False)
    assert isinstance(found, Partition) and found.log is not None
    return found


def first_segment(client: Client, index: int = 0) -> Any:
    log = hosted(client, "old", index).log
    assert log is not None and len(log.segments) > 2
    return log.segments[0]


def make_cold(client: Client, cellar: Cellar, *indexes: int) -> None:
    for index in indexes:
        cellar.cold.add(first_segment(client, index).path(".log"))


def part_of(answer: FetchResponse, index: int = 0, topic: str = "old") -> Any:
    return fetched(answer)[topic, index]


def numbers(part: Any) -> list[int]:
    return [value[0] for value in values_of(part.records) if value is not None]


async def test_other_requests_are_served_while_a_cold_read_waits(client: Client, hub: Hub, cellar: Cellar) -> None:
    make_cold(client, cellar, 0)
    reader, others = Wire(hub), [Wire(hub) for _ in range(10)]
    reader.send((fetch_request("old", (0, 0)), 12))
    await cellar.job_waits()
    for number in range(OTHERS // 2):
        other = others[number % len(others)]
        other.send((produce_request("new", (0, batch(b"%d" % number))), 12))
        other.send((fetch_request("new", (0, 1 + number)), 12), (fetch_request("old", (1, 0)), 12))
        produced, new, old = other.answers()
        assert outcomes(produced)[0].error_code == 0
        assert values_of(part_of(new, topic="new").records) == [b"%d" % number]
        assert numbers(part_of(old, 1))[0] == 0
    assert reader.answers() == [] and len(client.broker.read_ahead) == 1
    cellar.door.set()
    part = part_of(await reader.answer())
    assert part.error_code == 0 and numbers(part) == list(range(len(numbers(part)))) and len(numbers(part)) > 2
    assert cellar.loop_reads == [] and client.broker.read_ahead.jobs == 1


async def test_cold_reads_of_the_same_region_share_a_job(client: Client, hub: Hub, cellar: Cellar) -> None:
    make_cold(client, cellar, 0)
    readers = [Wire(hub) for _ in range(20)]
    for reader in readers:
        reader.send((fetch_request("old", (0, 0)), 12))
    await cellar.job_waits()
    assert len(client.broker.read_ahead) == 1
    cellar.door.set()
    found = [numbers(part_of(await reader.answer())) for reader in readers]
    assert found == [found[0]] * len(readers) and found[0][0] == 0
    assert client.broker.read_ahead.jobs == 1 and cellar.loop_reads == []


async def test_disconnect_cancels_a_queued_cold_read(client: Client, hub: Hub, cellar: Cellar) -> None:
    make_cold(client, cellar, 0, 1, 2, 3)
    readers = [Wire(hub) for _ in range(PARTITIONS)]
    for index, reader in enumerate(readers):
        reader.send((fetch_request("old", (index, 0)), 12))
    await cellar.job_waits()
    await cellar.job_waits()
    read_ahead = client.broker.read_ahead
    assert (read_ahead.jobs, len(read_ahead)) == (2, PARTITIONS), "two jobs at a time"
    readers[2].hang_up()  # waits in the queue
    readers[0].hang_up()  # is being read
    assert len(read_ahead) == PARTITIONS - 1
    cellar.door.set()
    for index in (1, 3):
        assert numbers(part_of(await readers[index].answer(), index))[0] == 0
    assert read_ahead.jobs == 3, "nobody read for the one in the queue"


@pytest.mark.parametrize("how", ["the topic is deleted", "its records are deleted"])
async def test_records_deleted_during_a_cold_read_are_not_returned(
    client: Client, hub: Hub, cellar: Cellar, how: str
) -> None:
    make_cold(client, cellar, 0)
    reader = Wire(hub)
    reader.send((fetch_request("old", (0, 0)), 12))
    await cellar.job_waits()
    if how == "the topic is deleted":
        assert (await client.delete("old"))[0].error_code == 0
        expected: int = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        assert hosted(client, "old").delete_records_before(9) == 0
        expected = KafkaErrorCode.OFFSET_OUT_OF_RANGE
    cellar.door.set()
    assert part_of(await reader.answer()).error_code == expected


async def test_failed_cold_read_is_a_storage_error(client: Client, hub: Hub, cellar: Cellar, disk: FaultyDisk) -> None:
    make_cold(client, cellar, 0)
    cellar.door.set()
    path = first_segment(client).path(".log")
    disk.fail("read", errno.EIO, path=path)
    cellar.stubborn = True
    reader = Wire(hub)
    reader.send((fetch_request("old", (0, 0), (1, 0)), 12))
    answer = await reader.answer()
    assert part_of(answer, 0).error_code == KafkaErrorCode.KAFKA_STORAGE_ERROR
    assert part_of(answer, 1).error_code == 0 and numbers(part_of(answer, 1))[0] == 0
    assert cellar.loop_reads == []


async def test_hot_and_cold_records_are_returned_together_within_max_bytes(
    client: Client, hub: Hub, cellar: Cellar
) -> None:
    make_cold(client, cellar, 0, 2)
    cellar.door.set()
    reader = Wire(hub)
    one = len(written(0))
    request = fetch_request("old", (0, 0), (1, 0), (2, 0), max_bytes=6 * one, partition_max_bytes=3 * one)
    reader.send((request, 12))
    answer = await reader.answer()
    assert [numbers(part_of(answer, index)) for index in range(3)] == [[0, 1, 2], [0, 1, 2], []]
    assert cellar.loop_reads == [] and client.broker.read_ahead.jobs == 1, "nothing is read that cannot be answered"


async def test_fetch_is_delayed_after_a_cold_read_of_too_few_bytes(client: Client, hub: Hub, cellar: Cellar) -> None:
    log = hosted(client, "old").log
    assert log is not None
    log.roll(log.log_end_offset)  # the segment of the last records is closed, and an empty one follows
    cellar.cold.add(log.segments[-2].path(".log"))
    reader, other, writer = Wire(hub), Wire(hub), Wire(hub)
    three = 3 * len(written(0))
    asked = fetch_request("old", (0, 9), (1, 12), max_wait_ms=60_000, min_bytes=three + 1, max_bytes=1 << 24)
    reader.send((asked, 12))
    other.send((fetch_request("old", (0, 9)), 12))
    await cellar.job_waits()
    cellar.door.set()
    assert numbers(part_of(await other.answer())) == [9, 10, 11]
    assert reader.answers() == [] and len(hosted(client, "old").delayed_fetches) == 1
    writer.send((produce_request("old", (1, written(12))), 12))
    answer = await reader.answer()
    assert (numbers(part_of(answer, 0)), numbers(part_of(answer, 1))) == ([9, 10, 11], [12])
    assert client.broker.read_ahead.jobs == 1 and not hosted(client, "old").delayed_fetches


async def test_cold_records_before_the_log_end_need_no_min_bytes(client: Client, hub: Hub, cellar: Cellar) -> None:
    make_cold(client, cellar, 0)
    cellar.door.set()
    reader = Wire(hub)
    reader.send((fetch_request("old", (0, 0), max_wait_ms=60_000, min_bytes=1 << 24, max_bytes=1 << 25), 12))
    assert numbers(part_of(await reader.answer())) == [0, 1, 2]


@pytest.mark.parametrize("index_file", ["sane", "missing", "insane"])
async def test_closed_segment_is_opened_by_the_job(client: Client, hub: Hub, cellar: Cellar, index_file: str) -> None:
    segment = first_segment(client)
    client.broker.logs.cache.forget(segment)
    segment.unload()
    if index_file == "missing":
        client.broker.disk.remove(segment.path(".index"))
    elif index_file == "insane":
        Path(segment.path(".index")).write_bytes(b"\xff" * 16)
    cellar.door.set()
    reader = Wire(hub)
    reader.send((fetch_request("old", (0, 1), partition_max_bytes=1), 12))
    assert reader.answers() == [] and segment.file is None
    assert numbers(part_of(await reader.answer())) == [1]
    assert segment.path(".log") in cellar.job_opens and segment.path(".index") in cellar.job_opens
    assert segment.file is not None and client.broker.read_ahead.jobs == 1
    reader.send((fetch_request("old", (0, 2), partition_max_bytes=1), 12))
    assert [numbers(part_of(answer)) for answer in reader.answers()] == [[2]], "it stays open"


async def test_unknown_page_cache_state_is_read_by_a_job(
    client: Client, hub: Hub, cellar: Cellar, disk: FaultyDisk
) -> None:
    disk.resident = lambda path, offset, size: -1
    reader = Wire(hub)
    for offset in range(12):
        reader.send((fetch_request("old", (0, offset)), 12))
        assert numbers(part_of(await reader.answer()))[0] == offset
    jobs = client.broker.read_ahead.jobs
    closed = hosted(client, "old").log.active.base_offset  # type: ignore[union-attr]
    assert jobs == closed, "one for each read of a closed segment, none at the end of the log"


async def test_pages_dropped_after_read_ahead_are_still_read(client: Client, hub: Hub, cellar: Cellar) -> None:
    make_cold(client, cellar, 0)
    cellar.stubborn = True
    cellar.door.set()
    reader = Wire(hub)
    reader.send((fetch_request("old", (0, 0)), 12))
    assert numbers(part_of(await reader.answer()))[0] == 0
    assert 2 < client.broker.read_ahead.jobs < 20 and cellar.loop_reads


async def test_offset_lookup_of_cold_records(client: Client, hub: Hub, cellar: Cellar) -> None:
    make_cold(client, cellar, 0, 1)
    cellar.door.set()
    assert (await client.offset("old", NOW_MS + 2)).offset == 2
    assert client.broker.read_ahead.jobs >= 1 and cellar.loop_reads == []
    segment = first_segment(client, 1)
    client.broker.logs.cache.forget(segment)
    segment.unload()
    assert (await client.offset("old", NOW_MS + 1, partition=1)).offset == 1
    assert cellar.loop_reads == [] and segment.path(".log") in cellar.job_opens


def pages_in_memory(file: File) -> int:
    """By mincore, which only looks; asking `File.resident` makes the kernel begin to read what is not there."""
    size = file.size()
    pages = -(-size // mmap.PAGESIZE)
    said = (ctypes.c_ubyte * pages)()
    with mmap.mmap(file.fd, size, flags=mmap.MAP_PRIVATE) as mapped:
        start = ctypes.c_char.from_buffer(mapped)
        failed = ctypes.CDLL(None, use_errno=True).mincore(ctypes.byref(start), ctypes.c_size_t(size), said)
        del start  # or the mapping could not be closed
    assert failed == 0, os.strerror(ctypes.get_errno())
    return sum(page & 1 for page in said)


def dropped(file: File) -> bool:
    """Have the kernel drop every page; those that it is just looking at itself stay, so it is asked more than once."""
    os.fsync(file.fd)
    for _ in range(1_000):
        os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if pages_in_memory(file) == 0:
            return True
    return False


async def test_cold_read_with_the_real_page_cache(tmp_path: Path) -> None:
    """No twin: the kernel drops the pages of a log on request, and reports that they are gone.

    A read that finds no page has the kernel read ahead. The pages of a fast disk are there before that read returns
    when another process has the core meanwhile: then no job was needed, and the pages are dropped again.
    """
    async with running(str(tmp_path / "data")) as client:
        await client.create("old")
        expected = [os.urandom(50_000) for _ in range(40)]
        for value in expected:
            await client.produce("old", batch(value))
        file = hosted(client, "old").log.active.file  # type: ignore[union-attr]
        assert await client.read("old", offset=0) and client.broker.read_ahead.jobs == 0
        for _ in range(READS):
            if not dropped(file):
                pytest.skip("this file system drops no pages, or does not tell")
            found: list[bytes | None] = []
            while len(found) < len(expected):
                found += await client.read("old", offset=len(found))
            assert found == expected
            if jobs := client.broker.read_ahead.jobs:
                break
        assert jobs, f"{pages_in_memory(file)} pages were in memory at the end"
        assert await client.read("old", offset=0)
        assert client.broker.read_ahead.jobs == jobs, "what was brought in is in memory"


async def test_follower_receives_other_partitions_while_a_cold_read_waits(
    client: Client, hub: Hub, cellar: Cellar
) -> None:
    """The cold partition is in the response after its job, without being named again."""
    for index in (0, 1):
        lead(hosted(client, "old", index))
    follower = ScriptedFollower(hub, client.broker)
    await follower.fetch(("old", 0, 12), ("old", 1, 12))
    make_cold(client, cellar, 0)
    await follower.fetch(("old", 0, 0), ("old", 1, 0))
    assert set(follower.ends) == {("old", 1)}
    await cellar.job_waits()
    follower.send(("old", 1, 12))
    assert follower.received() is None
    cellar.door.set()
    response = await follower.answer()
    assert numbers(follower.parts(response)["old", 0])[0] == 0
    assert cellar.loop_reads == [] and client.broker.read_ahead.jobs == 1


async def test_first_response_of_a_session_has_all_partitions_while_a_cold_read_waits(
    client: Client, hub: Hub, cellar: Cellar
) -> None:
    """A follower rejects a full response that lacks a partition, and would repeat the full request."""
    for index in (0, 1):
        lead(hosted(client, "old", index))
    make_cold(client, cellar, 0)
    follower = ScriptedFollower(hub, client.broker)
    response = await follower.fetch(("old", 0, 0), ("old", 1, 0))
    parts = follower.parts(response)
    assert response.session_id and set(parts) == {("old", 0), ("old", 1)}
    assert (parts["old", 0].error_code, parts["old", 0].high_watermark, numbers(parts["old", 0])) == (0, 12, [])
    await cellar.job_waits()
    follower.send(("old", 1, 12))
    assert follower.received() is None
    cellar.door.set()
    assert numbers(follower.parts(await follower.answer())["old", 0])[0] == 0


async def test_end_of_a_followers_session_cancels_its_queued_cold_reads(
    client: Client, hub: Hub, cellar: Cellar
) -> None:
    for index in range(PARTITIONS):
        lead(hosted(client, "old", index))
    make_cold(client, cellar, *range(PARTITIONS))
    follower = ScriptedFollower(hub, client.broker)
    await follower.fetch(*(("old", index, 0) for index in range(PARTITIONS)))
    await cellar.job_waits()
    await cellar.job_waits()
    read_ahead = client.broker.read_ahead
    assert (read_ahead.jobs, len(read_ahead)) == (2, PARTITIONS), "two jobs at a time"
    follower.wire.hang_up()
    hub.pump()
    assert len(read_ahead) == 2
    cellar.door.set()


async def test_failed_cold_read_of_a_follower_is_a_storage_error(
    client: Client, hub: Hub, cellar: Cellar, disk: FaultyDisk
) -> None:
    lead(hosted(client, "old"))
    make_cold(client, cellar, 0)
    cellar.door.set()
    disk.fail("read", errno.EIO, path=first_segment(client).path(".log"))
    follower = ScriptedFollower(hub, client.broker)
    await follower.fetch(("old", 0, 0))
    part = follower.parts(await follower.fetch())["old", 0]
    assert part.error_code == KafkaErrorCode.KAFKA_STORAGE_ERROR
