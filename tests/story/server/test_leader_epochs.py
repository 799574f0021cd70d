"""Tests leader epochs after an unclean shutdown: a client that has read lost records detects the truncation."""

import errno
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkalite.server.broker import Broker
from kafkalite.server.process.ports import Ports
from kafkalite.server.process.resources import JOURNAL
from kafkalite.storage.checkpoints import read_epochs
from kafkalite.storage.verify.verify import verify_directory
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.running_copy import copy_running
from tests.kit.server import Client, batch, connected, fetch_request, fetched, running

FENCED, UNKNOWN = KafkaErrorCode.FENCED_LEADER_EPOCH, KafkaErrorCode.UNKNOWN_LEADER_EPOCH


def truncate(data: Path, batches: int) -> None:
    """Truncate the log of t-0 after `batches` batches of one record, as a power failure may."""
    log = data / "t-0" / "00000000000000000000.log"
    os.truncate(log, batches * len(batch(b"000")))


async def fetch(client: Client, offset: int, **epochs: int) -> Any:
    return fetched(await client.call(fetch_request("t", (0, offset), **epochs), 12))["t", 0]


async def end_of_epoch(client: Client, epoch: int, current: int = -1) -> tuple[int, int, int]:
    """(error, epoch, end offset)"""
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    asked = kind.OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[kind(topic="t", partitions=[asked])])
    found = (await client.call(request)).topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


def epoch_of(client: Client, topic: str = "t") -> int:
    return client.broker.image.topics[topic].partitions[0].leader_epoch


async def write(client: Client, first: int, last: int) -> None:
    for number in range(first, last):
        assert (await client.produce("t", batch(b"%03d" % number))).error_code == 0


async def test_consumer_detects_lost_records_by_leader_epoch(tmp_path: Path) -> None:
    """Position 100, log truncated to 50, 120 new records: before, 50 to 99 were skipped without an error."""
    async with running(str(tmp_path / "data")) as client:
        await client.create("t")
        await write(client, 0, 100)
        data = copy_running(tmp_path / "data", tmp_path / "killed")
    truncate(data, 50)
    async with running(str(data)) as client:
        assert epoch_of(client) == 1
        assert await end_of_epoch(client, 0) == (0, 0, 50), "also before the first record of the new epoch"
        assert await end_of_epoch(client, 1) == (0, 1, 50)
        await write(client, 100, 220)
        assert read_epochs(Disk(), str(data / "t-0/leader-epoch-checkpoint")) == [(0, 0), (1, 50)]
        assert (await fetch(client, 100, current_leader_epoch=0)).error_code == FENCED
        assert (await fetch(client, 100, current_leader_epoch=2)).error_code == UNKNOWN
        assert await end_of_epoch(client, 0, 0) == (FENCED, -1, -1)
        assert await end_of_epoch(client, 0, 1) == (0, 0, 50)
        found = await fetch(client, 100, current_leader_epoch=1, last_fetched_epoch=0)
        assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (0, 50)
        assert (await client.offset("t", -1)).leader_epoch == 1


async def test_consumer_detects_loss_of_all_records_by_leader_epoch(tmp_path: Path) -> None:
    """The files are those of a partition that never had a record: before, 0 to 9 were skipped without an error."""
    async with running(str(tmp_path / "data")) as client:
        await client.create("t")
        await write(client, 0, 10)
        data = copy_running(tmp_path / "data", tmp_path / "killed")
    truncate(data, 0)
    async with running(str(data)) as client:
        assert epoch_of(client) == 1
        await write(client, 100, 120)
        assert (await fetch(client, 10, current_leader_epoch=0)).error_code == FENCED
        assert await end_of_epoch(client, 0, 1) == (0, 0, 0)
        found = await fetch(client, 10, current_leader_epoch=1, last_fetched_epoch=0)
        assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (0, 0)


async def test_clean_start_keeps_leader_epochs(tmp_path: Path) -> None:
    for values in ((0, 1), (1, 2), (2, 3)):
        async with running(str(tmp_path)) as client:
            if not values[0]:
                await client.create("t", "empty")
            assert epoch_of(client) == 0 and epoch_of(client, "empty") == 0
            await write(client, *values)


async def test_unclean_start_raises_leader_epochs_by_one(tmp_path: Path) -> None:
    """Also without a record in between."""
    data = tmp_path / "0"
    async with running(str(data)) as client:
        await client.create("t")
        await write(client, 0, 1)
        data = copy_running(data, tmp_path / "1")
    for start in range(1, 4):
        async with running(str(data)) as client:
            assert epoch_of(client) == start
            data = copy_running(data, tmp_path / str(start + 1))
        assert verify_directory(Disk(), str(tmp_path / str(start))) == []
    async with running(str(tmp_path / "3")) as client:  # it ended cleanly
        assert epoch_of(client) == 3
        assert read_epochs(Disk(), str(tmp_path / "3/t-0/leader-epoch-checkpoint")) == [(0, 0), (3, 1)]
        await write(client, 1, 2)
        assert await end_of_epoch(client, 0) == (0, 0, 1) and await end_of_epoch(client, 3) == (0, 3, 2)


async def test_older_journal_does_not_lower_leader_epochs(tmp_path: Path) -> None:
    async with running(str(tmp_path / "data")) as client:
        await client.create("t")
        await write(client, 0, 1)
    older = (tmp_path / "data" / JOURNAL).read_bytes()
    (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
    async with running(str(tmp_path / "data")) as client:
        assert epoch_of(client) == 1
        await write(client, 1, 2)
    (tmp_path / "data" / JOURNAL).write_bytes(older)
    for _ in range(2):  # the second one finds the epoch that the first one chose
        async with running(str(tmp_path / "data")) as client:
            assert epoch_of(client) == 2
            assert await end_of_epoch(client, 1) == (0, 1, 2)


async def test_crashed_start_raises_leader_epochs_again(tmp_path: Path) -> None:
    """At every change of the start after a kill: an epoch that a client has seen never belongs to other records."""
    async with running(str(tmp_path / "data")) as client:
        await client.create("t")
        await write(client, 0, 2)
        data = copy_running(tmp_path / "data", tmp_path / "killed")
    step = 0
    while True:
        copy, disk = tmp_path / str(step), FaultyDisk()
        shutil.copytree(data, copy)
        disk.stop_at = step
        broker = Broker(str(copy), ports=Ports(disk=disk))
        try:
            await broker.start()
        except BaseException as error:  # Crash is no Exception
            assert disk.crashed, error
        else:
            disk.stop_at = None
            await broker.stop()
            break
        async with running(str(copy)) as client:
            assert epoch_of(client) >= 1, f"after a crash before step {step}"
            await write(client, 2, 3)
            assert (await end_of_epoch(client, 0))[2] == 2
        step += 1
    assert step > 5


async def test_unclean_start_on_full_disk_raises_leader_epochs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(str(tmp_path / "data")) as client:
        await client.create("t")
        await write(client, 0, 2)
        data = copy_running(tmp_path / "data", tmp_path / "killed")
    disk = FaultyDisk()
    broker = Broker(str(data), ports=Ports(disk=disk))
    disk.fail("write", errno.ENOSPC, repeat=True)
    with caplog.at_level(logging.WARNING, "kafkalite"):
        async with broker, connected(broker) as client:
            assert any("leader epoch" in line for line in caplog.messages)
            assert epoch_of(client) == 1 and await end_of_epoch(client, 0) == (0, 0, 2)
            disk.heal()
            await write(client, 2, 3)
            await client.create("other")  # a change of the journal, which writes what it owes
            again = copy_running(data, tmp_path / "again")
            (again / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    async with running(str(again)) as client:
        assert epoch_of(client) >= 1


async def test_partition_restored_from_backup_gets_a_new_leader_epoch(tmp_path: Path) -> None:
    """Its checkpoints know nothing of the copy, so it counts as not closed cleanly although the broker was."""
    async with running(str(tmp_path / "data")) as client:
        await client.create("t")
        await write(client, 0, 2)
    shutil.copytree(tmp_path / "data/t-0", tmp_path / "backup")
    async with running(str(tmp_path / "data")) as client:
        await write(client, 2, 4)
    shutil.rmtree(tmp_path / "data/t-0")
    async with running(str(tmp_path / "data")):
        pass
    shutil.copytree(tmp_path / "backup", tmp_path / "data/t-0")
    async with running(str(tmp_path / "data")) as client:
        assert epoch_of(client) == 1
        await write(client, 4, 5)
        assert await end_of_epoch(client, 0) == (0, 0, 2)
