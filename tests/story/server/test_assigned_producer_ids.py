"""No producer id of a log is assigned again, whatever journal or adopted log the broker starts from.

A producer with the id of an earlier one loses its records: the broker takes its first batch for a repetition of the
earlier one's, and acknowledges it without an append.
"""

import asyncio
import logging
import shutil
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.cluster.producer_id_blocks import BLOCK, IDS_MAX, RAISED_BY, last_assigned
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.coordination.znodes import PRODUCER_ID_BLOCK
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.server.adoption.stray_adoption import StrayAdoption
from kafkalite.server.adoption.topic_adoption import AdoptedTopic, TopicAdoption
from kafkalite.server.process.resources import JOURNAL
from kafkalite.storage.dirs import stray_partitions
from kafkalite.storage.dirs.log_directory import LogDirectory
from kafkalite.testing.virtual_clock import SeededRandom, VirtualClock
from tests.kit.running_copy import copy_running
from tests.kit.server import Client, batch, running

CLEAN = ".kafka_cleanshutdown"


async def new_producer(client: Client) -> int:
    """The id of a producer that begins now."""
    answer = await client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    return int(answer.producer_id)


async def send(client: Client, producer_id: int, value: bytes, sequence: int = 0, topic: str = "t") -> int:
    """Produce one record of a producer; its offset."""
    records = batch(value, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    answer = await client.produce(topic, records)
    assert answer.error_code == 0
    return int(answer.base_offset)


async def first_records(data: Path, *topics: str) -> int:
    """Create topics and write a first record with a producer of its own to each; the last of their ids."""
    producer_id = -1
    async with running(str(data)) as client:
        for topic in topics:
            await client.create(topic)
            producer_id = await new_producer(client)
            assert await send(client, producer_id, b"earlier", topic=topic) == 0
    return producer_id


async def check_no_record_is_lost(data: Path, topic: str = "t") -> int:
    """A producer that begins now writes behind the records that are there; its id."""
    async with running(str(data)) as client:
        before = await client.read(topic)
        producer_id = await new_producer(client)
        assert await send(client, producer_id, b"new", topic=topic) == len(before)
        assert await client.read(topic) == [*before, b"new"]
    return producer_id


def adopt(source: Path, data: Path) -> AdoptedTopic:
    directory = LogDirectory(Disk(), str(data))
    directory.lock()
    try:
        adoption = TopicAdoption(Disk(), VirtualClock(), SeededRandom(5), str(source), directory, move=False)
        return asyncio.run(adoption.run(lambda size: lambda done: None))
    finally:
        directory.unlock()


def adopt_strays(data: Path) -> None:
    directory = LogDirectory(Disk(), str(data))
    directory.lock()
    try:
        adoption = StrayAdoption(Disk(), VirtualClock(), SeededRandom(5), "", directory, move=True)
        asyncio.run(adoption.adopt(stray_partitions.find(Disk(), str(data))))
    finally:
        directory.unlock()


def other_broker(data: Path, source: Path) -> None:
    """Let a log directory be that of a broker without a journal, as Apache Kafka's is."""
    copy_running(data, source)
    (source / JOURNAL).unlink()
    (source / ".kafkalite-format").unlink()


async def test_adopted_logs_keep_the_ids_of_their_producers(tmp_path: Path) -> None:
    """The producers of the other cluster have the ids from 0 on, as those of a new journal have."""
    await first_records(tmp_path / "theirs", "t")
    other_broker(tmp_path / "theirs", tmp_path / "kafka")
    await asyncio.to_thread(adopt, tmp_path / "kafka", tmp_path / "ours")
    await check_no_record_is_lost(tmp_path / "ours")


async def test_an_adoption_raises_the_ids_of_the_journal(tmp_path: Path) -> None:
    """Before a start: `kafkalite cluster adopt` may be the next step, and other brokers assign ids then."""
    producer_id = await first_records(tmp_path / "theirs", "t")
    other_broker(tmp_path / "theirs", tmp_path / "kafka")
    await asyncio.to_thread(adopt, tmp_path / "kafka", tmp_path / "ours")
    service = EmbeddedCoordination.open(Disk(), str(tmp_path / "ours" / JOURNAL), VirtualClock())
    service.close()
    assert last_assigned(service.tree.get(PRODUCER_ID_BLOCK)[0]) == producer_id + RAISED_BY


async def test_ids_of_a_later_adoption_are_not_those_of_running_producers(tmp_path: Path) -> None:
    """Between two adoptions the broker assigns ids, which the log that is adopted next may have."""
    await first_records(tmp_path / "theirs", "a", "t")
    other_broker(tmp_path / "theirs", tmp_path / "kafka")
    (tmp_path / "first").mkdir()
    shutil.move(tmp_path / "kafka/a-0", tmp_path / "first/a-0")
    await asyncio.to_thread(adopt, tmp_path / "first", tmp_path / "ours")
    producer_id = await check_no_record_is_lost(tmp_path / "ours", "a")
    await asyncio.to_thread(adopt, tmp_path / "kafka", tmp_path / "ours")
    async with running(str(tmp_path / "ours")) as client:
        assert await send(client, producer_id, b"first of this partition") == 1


@pytest.mark.parametrize("clean", [True, False])
async def test_an_older_journal_assigns_no_id_again(tmp_path: Path, clean: bool) -> None:
    """Also where a record is in no producer snapshot, as after a kill."""
    async with running(str(tmp_path / "data")) as client:
        await client.create("t")
    older = (tmp_path / "data" / JOURNAL).read_bytes()
    async with running(str(tmp_path / "data")) as client:
        producer_id = await new_producer(client)
        await send(client, producer_id, b"earlier")
        copy_running(tmp_path / "data", tmp_path / "killed")
    data = tmp_path / ("data" if clean else "killed")
    assert (data / CLEAN).exists() is clean
    (data / JOURNAL).write_bytes(older)
    assert await check_no_record_is_lost(data) > producer_id


async def test_strays_count_among_the_logs(tmp_path: Path) -> None:
    """A stray may be adopted later: its producers keep their ids, also while an older journal is restored again."""
    await first_records(tmp_path, "a")
    older = (tmp_path / JOURNAL).read_bytes()
    producer_id = await first_records(tmp_path, "t")
    for _ in range(2):
        (tmp_path / JOURNAL).write_bytes(older)
        async with running(str(tmp_path)) as client:
            assert await new_producer(client) > producer_id
    await asyncio.to_thread(adopt_strays, tmp_path)
    await check_no_record_is_lost(tmp_path)


async def test_a_repeated_batch_of_a_running_producer_is_still_recognised(tmp_path: Path) -> None:
    await first_records(tmp_path, "t")
    older = (tmp_path / JOURNAL).read_bytes()
    async with running(str(tmp_path)) as client:
        producer_id = await new_producer(client)
        assert await send(client, producer_id, b"a") == 1
    (tmp_path / JOURNAL).write_bytes(older)
    async with running(str(tmp_path)) as client:
        assert await send(client, producer_id, b"a") == 1
        assert await send(client, producer_id, b"b", sequence=1) == 2


async def test_an_older_journal_is_reported_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With what it means for ids, leader epochs, topics and settings."""
    async with running(str(tmp_path)) as client:
        await client.create("t")
        await client.produce("t", batch(b"of epoch 0"))
    older = (tmp_path / JOURNAL).read_bytes()
    (tmp_path / CLEAN).unlink()
    producer_id = -1
    async with running(str(tmp_path)) as client:
        for number in range(3):
            producer_id = await new_producer(client)
            await send(client, producer_id, b"%d" % number)
    (tmp_path / JOURNAL).write_bytes(older)
    with caplog.at_level(logging.WARNING, "kafkalite"):
        async with running(str(tmp_path)) as client:
            assert await new_producer(client) == producer_id + RAISED_BY + 1
        (line,) = [line for line in caplog.messages if "older" in line]
        assert line.startswith(f"{tmp_path / JOURNAL}: an older copy: its last change is ")
        assert f"producer ids up to {producer_id} are in logs, it has assigned none" in line
        assert "leader epochs of 1 partition, first t-0, were raised" in line and "put the newer file back" in line
        caplog.clear()
        async with running(str(tmp_path)):
            assert not [line for line in caplog.messages if "older" in line]


async def test_a_clean_start_changes_no_id(tmp_path: Path) -> None:
    before = await first_records(tmp_path, "t")
    assert await check_no_record_is_lost(tmp_path) == before + BLOCK


async def test_an_invented_id_does_not_use_up_all_ids(tmp_path: Path) -> None:
    await first_records(tmp_path, "t")
    async with running(str(tmp_path)) as client:
        await send(client, IDS_MAX, b"invented")
    assert await check_no_record_is_lost(tmp_path) == BLOCK


async def test_ids_of_adopted_transactional_ids_are_not_assigned_again(tmp_path: Path) -> None:
    """A transactional id has its producer id before the producer writes a batch: no other log has it."""
    init = InitProducerIdRequest(transactional_id="me", transaction_timeout_ms=1000)
    async with running(str(tmp_path / "theirs")) as client:
        theirs = await client.call(init)
        assert theirs.error_code == 0
    other_broker(tmp_path / "theirs", tmp_path / "kafka")
    await asyncio.to_thread(adopt, tmp_path / "kafka", tmp_path / "ours")
    async with running(str(tmp_path / "ours")) as client:
        assert await new_producer(client) == theirs.producer_id + RAISED_BY + 1
        again = await client.call(init)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (0, theirs.producer_id, 1)
