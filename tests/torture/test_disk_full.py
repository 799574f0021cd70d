"""On a full disk appends fail with an error and reads succeed; appends succeed again once there is space.

A small file system in an image is filled to the last block while the broker is under load, its checkpoints being due
all the time. In some rounds the broker is killed while the disk is full.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path
from random import Random

import pytest

from kafkalite.errors import KafkaErrorCode
from tests.kit.brokers import Kafkalite
from tests.kit.checker import History, Partition, check
from tests.kit.load import Sender
from tests.kit.loop_disk import LoopDisk
from tests.kit.readers import READERS
from tests.kit.rig import assert_files_are_good, assert_kept, create_topic, ended

pytestmark = [
    pytest.mark.torture,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
MEGABYTES = 64
ROOM = 3 << 20  # left for the load: some segments
REFUSALS = 200
SILENT = 0.1  # the share that goes with acks=0
# Checkpoints are written all the time, also while there is no space for them.
SETTINGS = {"log.initial.task.delay.ms": "10", "log.flush.offset.checkpoint.interval.ms": "20"}


class Filling:
    """A broker on a disk that gets full, and its load."""

    def __init__(self, directory: Path, disk: LoopDisk, random: Random) -> None:
        self.disk = disk
        self.filler = disk.path / "filler"
        self.broker = Kafkalite(directory, SETTINGS)
        self.broker.data = disk.path / "data"
        self.history = History()
        numbers = itertools.count()
        self.partitions: list[Partition] = [("t", index) for index in range(3)]
        # A refusal of what wants no answer ends its connection, as at Apache Kafka.
        self.silent = Sender("silent", self.history, numbers, random, self.partitions, silent=SILENT)
        self.senders = [Sender(name, self.history, numbers, random, self.partitions) for name in ("a", "b")]

    async def begin(self, **configs: str) -> None:
        await asyncio.to_thread(self.broker.start)
        await create_topic(self.broker.address, "t", len(self.partitions), segment_bytes=str(1 << 20), **configs)

    def fill(self) -> None:
        """Take the space but for ROOM."""
        with open(self.filler, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, self.disk.free_bytes() - ROOM)

    async def until_refused(self) -> None:
        """Load until many appends were refused, and no disk space is left."""
        loads = [asyncio.create_task(each.run(self.broker.address)) for each in self.senders]
        silent = asyncio.create_task(self.silent.run(self.broker.address))
        try:
            goal = self.refusals + REFUSALS
            while self.refusals < goal:
                assert not any(load.done() for load in loads), "the broker hung up"
                await self.senders[0].all_answered()
        finally:
            for each in (*self.senders, self.silent):
                each.stop()
            await asyncio.gather(*loads, silent)

    @property
    def refusals(self) -> int:
        assert {code for each in self.senders for code in each.refusals} <= {KafkaErrorCode.KAFKA_STORAGE_ERROR}
        return sum(each.refused_by_storage for each in self.senders)

    async def judge(self, name: str) -> None:
        """Foreign clients read everything to its end, and it is what it must be."""
        for reader in READERS:
            reading = f"{name}, {reader.__name__}"
            await asyncio.to_thread(reader, reading, self.broker.address, self.partitions, self.history)
            assert_kept(check(self.history, reading))

    async def serves_again(self) -> None:
        """Every partition takes appends again, beyond the end of a segment."""
        for each in self.senders:
            before, refused = each.acks, self.refusals
            await each.run(self.broker.address, requests=700)
            assert (each.acks - before, self.refusals) == (700, refused)


@pytest.mark.parametrize(
    ("killed", "flush"),
    [
        pytest.param(False, {}, id="left alone"),
        pytest.param(True, {"flush_messages": "1"}, id="flush.messages=1, killed while full"),
    ],
)
async def test_appends_to_a_full_disk_fail_and_lose_no_acknowledged_record(
    fault: int,
    killed: bool,
    flush: dict[str, str],
    random: Random,
    tmp_path: Path,
    record_property: pytest.RecordProperty,
) -> None:
    with LoopDisk(tmp_path, "ext4", MEGABYTES) as disk:
        filling = Filling(tmp_path, disk, random)
        with ended(filling.broker):
            await filling.begin(**flush)
            filling.fill()
            await filling.until_refused()
            await filling.judge("while full")
            if killed:
                await asyncio.to_thread(filling.broker.kill)
            filling.filler.unlink()
            if killed:
                await asyncio.to_thread(filling.broker.start)
                await filling.judge("after the kill")
            await filling.serves_again()
            await filling.judge("after it")
            assert await asyncio.to_thread(filling.broker.stop) == filling.broker.clean_exit
            await asyncio.to_thread(assert_files_are_good, filling.broker.data, filling.partitions)
    record_property("summary", f"disk full {fault}: {filling.refusals} appends refused, none kept by half")
