"""Tests logs whose topic the journal does not know: they are renamed, reported and kept."""

import asyncio
import gc
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkalite.server.process.resources import JOURNAL
from kafkalite.storage.dirs import stray_partitions
from tests.kit.server import batch, running

NO_DELAY = {"log.segment.delete.delay.ms": "0"}


@pytest.fixture(autouse=True)
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The warnings and errors of the broker."""
    with caplog.at_level(logging.WARNING, "kafkalite"):
        yield caplog


def segments(data: Path) -> dict[str, bytes]:
    """The segments below a directory, by their directory's topic, partition and their name."""
    return {f"{path.parent.name.partition('.')[0]}/{path.name}": path.read_bytes() for path in data.rglob("*.log")}


async def older_journal(data: Path) -> bytes:
    """Run a broker with topic `a`, keep its journal, then add `b`, with records in both of its partitions."""
    async with running(str(data), NO_DELAY) as client:
        await client.create("a")
        await client.produce("a", batch(b"a"))
    older = (data / JOURNAL).read_bytes()
    async with running(str(data), NO_DELAY) as client:
        await client.create("b", partitions=2)
        await client.produce("b", batch(b"b0"))
        await client.produce("b", batch(b"b1", b"b2"), partition=1)
    return older


async def test_older_journal_deletes_no_log(tmp_path: Path, warnings: pytest.LogCaptureFixture) -> None:
    older = await older_journal(tmp_path)
    newer, before = (tmp_path / JOURNAL).read_bytes(), segments(tmp_path)
    (tmp_path / JOURNAL).write_bytes(older)
    for _ in range(2):
        warnings.clear()
        async with running(str(tmp_path), NO_DELAY) as client:
            assert set(client.broker.image.topics) == {"a"}
            assert await client.read("a") == [b"a"]
        (line,) = [line for line in warnings.messages if "stray" in line]
        size = sum(len(content) for name, content in before.items() if name.startswith("b-"))
        assert "2 stray partitions" in line and f"{size:,} bytes" in line and "kafkalite log stray" in line
    assert segments(tmp_path) == before
    assert [(one.topic, one.partition) for one in stray_partitions.find(Disk(), str(tmp_path))] == [("b", 0), ("b", 1)]
    (tmp_path / JOURNAL).write_bytes(newer)
    async with running(str(tmp_path), NO_DELAY) as client:  # the journal of today knows them, but not their new names
        assert set(client.broker.image.topics) == {"a", "b"}
    assert segments(tmp_path) == before


async def test_partial_journal_deletes_no_log(tmp_path: Path) -> None:
    """As 1.1 of the trial: the journal cut at any byte either stops the start or costs no file."""
    await older_journal(tmp_path / "data")
    journal, before = (tmp_path / "data" / JOURNAL).read_bytes(), segments(tmp_path / "data")
    async with running(str(tmp_path / "fresh")):
        pass
    shortest = (tmp_path / "fresh" / JOURNAL).stat().st_size
    for size in range(shortest, len(journal), max(1, (len(journal) - shortest) // 7)):
        copy = tmp_path / str(size)
        shutil.copytree(tmp_path / "data", copy)
        (copy / JOURNAL).write_bytes(journal[:size])
        async with running(str(copy), NO_DELAY):
            pass
        assert segments(copy) == before


async def test_recreated_topic_starts_empty_beside_its_stray(tmp_path: Path) -> None:
    older = await older_journal(tmp_path)
    before = segments(tmp_path)
    (tmp_path / JOURNAL).write_bytes(older)
    async with running(str(tmp_path), NO_DELAY) as client:
        await client.create("b")
        assert (await client.produce("b", batch(b"new"))).base_offset == 0
    async with running(str(tmp_path), NO_DELAY) as client:
        assert await client.read("b") == [b"new"]
    found = {one.name: one.size for one in stray_partitions.find(Disk(), str(tmp_path))}
    assert len(found) == 2
    assert sum(found.values()) == sum(len(content) for name, content in before.items() if name.startswith("b-"))


async def test_partitions_beyond_those_of_an_older_journal_are_strays(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as client:
        await client.create("t")
        await client.produce("t", batch(b"0"))
    older = (tmp_path / JOURNAL).read_bytes()
    async with running(str(tmp_path)) as client:
        more = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2, assignments=None)
        await client.call(CreatePartitionsRequest(topics=[more], timeout_ms=1000))
        await client.produce("t", batch(b"1"), partition=1)
    (tmp_path / JOURNAL).write_bytes(older)
    async with running(str(tmp_path)) as client:
        assert await client.read("t") == [b"0"]
    assert [(one.topic, one.partition) for one in stray_partitions.find(Disk(), str(tmp_path))] == [("t", 1)]


async def test_stray_keeps_its_log_start(tmp_path: Path) -> None:
    older = await older_journal(tmp_path)
    async with running(str(tmp_path)) as client:
        partition = client.broker.replicas.partition("b", b"", 1, by_id=False)
        assert not isinstance(partition, int) and partition.delete_records_before(1) == 0
    (tmp_path / JOURNAL).write_bytes(older)
    async with running(str(tmp_path)):
        pass
    found = {
        one.partition: (one.log_start_offset, one.recovery_point)
        for one in stray_partitions.find(Disk(), str(tmp_path))
    }
    assert found == {0: (0, 1), 1: (1, 2)}


async def test_recorded_deletion_is_finished_at_start(tmp_path: Path, warnings: pytest.LogCaptureFixture) -> None:
    async with running(str(tmp_path / "data"), NO_DELAY) as client:
        await client.create("t")
        await client.produce("t", batch(b"old"))
        shutil.copytree(tmp_path / "data" / "t-0", tmp_path / "t-0")
        await client.delete("t")
    shutil.copytree(tmp_path / "t-0", tmp_path / "data" / "t-0")  # as if the rename had never come to the disk
    async with running(str(tmp_path / "data"), NO_DELAY):
        pass
    assert not list((tmp_path / "data").glob("t-0*stray")) and not (tmp_path / "data" / "t-0").exists()
    assert not warnings.messages


async def test_records_without_a_topic_id_survive_a_partition_that_has_no_files_yet(tmp_path: Path) -> None:
    """Before, the creation in the background emptied the first segment of an unknown topic."""
    async with running(str(tmp_path / "other"), NO_DELAY) as client:
        await client.create("t")
        await client.produce("t", batch(b"kept"))
    data = tmp_path / "data"
    async with running(str(data), NO_DELAY) as client:
        await client.create("known")
    async with running(str(data), NO_DELAY) as client:
        (tmp_path / "other/t-0/partition.metadata").unlink()
        client.broker.hosting.close()  # nothing is created before the first append
        await client.create("t")
    shutil.rmtree(data / "t-0", ignore_errors=True)
    shutil.copytree(tmp_path / "other/t-0", data / "t-0")
    before = segments(data)
    assert before["t-0/00000000000000000000.log"]
    async with running(str(data), NO_DELAY) as client:
        assert (await client.produce("t", batch(b"new"))).error_code == KafkaErrorCode.KAFKA_STORAGE_ERROR
        await client.create("u")
        while ("u", 0) not in client.broker.logs.created:  # it is queued behind t, where t is queued
            await asyncio.sleep(0)
    assert before.items() <= segments(data).items()


async def test_damaged_files_of_unknown_topic_survive_a_new_topic_of_their_name(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with running(str(data), NO_DELAY) as client:
        await client.create("known")
    (data / "t-0").mkdir()
    (data / "t-0/00000000000000000000.log").write_bytes(b"records of somebody" * 100)
    (data / "t-0/partition.metadata").write_text("damaged")
    before = segments(data)["t-0/00000000000000000000.log"]
    async with running(str(data), NO_DELAY) as client:
        await client.create("t")
        assert (await client.produce("t", batch(b"new"))).error_code == KafkaErrorCode.KAFKA_STORAGE_ERROR
        await client.delete("t")
    assert segments(data)["t-0/00000000000000000000.log"] == before


async def test_stray_keeps_its_cleaner_offset(tmp_path: Path) -> None:
    older = await older_journal(tmp_path)
    (tmp_path / JOURNAL).write_bytes(older)
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n2\nb 1 2\nunknown 7 5\n")
    async with running(str(tmp_path), NO_DELAY):
        gc.collect()
        held = [found for found in gc.get_objects() if isinstance(found, dict) and ("unknown", 7) in found]
    assert held == []
    assert [(one.partition, one.cleaned) for one in stray_partitions.find(Disk(), str(tmp_path))] == [(0, None), (1, 2)]
