"""Every file of a log directory but the batches is garbage, one at a time: it is built again, or one line names it.

Never another exception, never a record less than there was.
"""

import os
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkalite._speedups.records.batches import batches
from kafkalite._speedups.storage.file import Disk
from kafkalite.storage import checkpoints, names
from kafkalite.storage.checkpoints import CLEANER_OFFSETS
from kafkalite.storage.compaction.cleaner import CleanerConfig, LogCleaner
from kafkalite.storage.dirs.log_directory import DirectoryError
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.transaction_index import AbortedTransaction, pack
from kafkalite.storage.manager import LogManager
from kafkalite.storage.recovery.load_logs import LoadedDirectory
from kafkalite.storage.verify.verify import verify_log
from kafkalite.testing.virtual_clock import InlineOffload, SeededRandom, VirtualClock
from tests.kit.logs import read_log
from tests.rigs.garbage import garbage
from tests.rigs.lines import Lines
from tests.rigs.machine import CONFIG, US, Machine
from tests.rigs.model import read_all

MUTATIONS = 9_000
BASE_MUTATIONS = 1_000
PARTITIONS = 10
pytestmark = pytest.mark.torture
TOPIC = "t0"
TEXTS = ("leader-epoch-checkpoint", "partition.metadata")
BASE_FILES = (
    *("meta.properties", ".kafkalite-format", ".kafka_cleanshutdown"),
    *("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", CLEANER_OFFSETS),
)


@dataclass
class Sample:
    """A directory that was left cleanly: the files of one partition, those of the directory, and what is read."""

    directory: Path
    partition: dict[str, bytes]
    base: dict[str, bytes]
    records: list[tuple[int, int, bytes]]
    times: dict[int, object]


def look_ups(log: Log) -> dict[int, object]:
    """By time, what is found."""
    return {timestamp: log.look_up_time(timestamp) for timestamp in range(9_950, 10_200, 50)}


def sample(root: Path, seed: int) -> Sample:
    machine = Machine(root, random.Random(seed))
    machine.boot()
    machine.create()
    log = machine.log()
    while len(log.segments) < 2 or len(log.active.batches()) < 3:
        machine.append()
    records, times = [tuple(stored) for stored in read_all(log)], look_ups(log)
    machine.shutdown()
    directory = Path(log.directory)
    aborted = directory / names.file_name(log.segments[0].base_offset, names.TXN_INDEX)
    if not aborted.exists():
        aborted.write_bytes(pack([AbortedTransaction(9, 1, 2, 3)]))
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    (root / CLEANER_OFFSETS).write_bytes(b"0\n0\n")
    base = {name: (root / name).read_bytes() for name in BASE_FILES}
    return Sample(directory, files, base, records, times)  # type: ignore[arg-type]


class Trial:
    """One log directory of many partitions, each with one file of garbage."""

    def __init__(self, root: Path, made: Sample, rng: random.Random, partitions: int = PARTITIONS) -> None:
        self.root = root
        self.made = made
        self.rng = rng
        self.partitions = partitions
        self.hurt: dict[int, str] = {}
        self.base_hurt = ""

    def write(self, *, hurt_base: bool = False) -> None:
        self.root.mkdir()
        for number in range(self.partitions):
            files = self.made.partition
            name = self.rng.choice([name for name in files if not name.endswith(names.LOG)])
            self.hurt[number] = name = "" if hurt_base else name
            directory = self.root / names.directory_name(TOPIC, number)
            directory.mkdir()
            for each, data in files.items():
                if each == name:
                    (directory / each).write_bytes(garbage(self.rng, data, text=name in TEXTS))
                else:  # what is rebuilt beside the garbage becomes what it was, so the files are shared
                    os.link(self.made.directory / each, directory / each)
        self.base_hurt = self.rng.choice(BASE_FILES) if hurt_base else ""
        lines = "".join(f"{TOPIC} {number} {{}}\n" for number in range(self.partitions))
        checkpoint_offsets = {
            "recovery-point-offset-checkpoint": self.end,
            "log-start-offset-checkpoint": 0,
            CLEANER_OFFSETS: 0,
        }
        for name, data in self.made.base.items():
            if name in checkpoint_offsets:
                data = f"0\n{self.partitions}\n{lines.format(*[checkpoint_offsets[name]] * self.partitions)}".encode()
            (self.root / name).write_bytes(garbage(self.rng, data, text=True) if name == self.base_hurt else data)

    @property
    def end(self) -> int:
        return self.made.records[-1][1] + 1

    def load(self) -> LoadedDirectory:
        clock = VirtualClock()
        self.manager = LogManager(Disk(), [str(self.root)], clock, InlineOffload(), SeededRandom(1))
        self.manager.lock()
        try:
            self.manager.claim(US)
            (loaded,) = self.manager.load(lambda topic: CONFIG, 1)
            cleaner = LogCleaner(self.manager, clock, InlineOffload(), SeededRandom(1), CleanerConfig())
            cleaner.start(lambda log: log.log_end_offset)
        finally:
            self.manager.unlock()
        assert loaded.error is None, loaded.error
        return loaded

    def judge(self, loaded: LoadedDirectory, said: Sequence[str]) -> None:
        for number, name in self.hurt.items():
            log = self.manager.find(TOPIC, number)
            if log is None:
                path = str(self.root / names.directory_name(TOPIC, number) / name)
                reasons = [*said, *loaded.rejected.values()]  # the broker logs those that belong to a topic
                assert any(path in line for line in reasons), f"{name} is refused, and no line names it: {reasons}"
            else:
                assert self.read(log) == self.made.records, f"garbage as {name} loses records"
                # The highest time of a closed segment is believed at a clean start; `log verify` finds a lie there.
                received = look_ups(log) == self.made.times or self.verified(number, name)
                assert received, f"garbage as {name} hides times"

    def finish(self) -> None:
        """Give back files and space."""
        for log in self.manager.all():
            for segment in log.segments:
                segment.unload()
        shutil.rmtree(self.root)

    def verified(self, number: int, name: str) -> bool:
        """Whether `log verify` names the file."""
        directory = self.root / names.directory_name(TOPIC, number)
        return str(directory / name) in [each.path for each in verify_log(Disk(), str(directory))]

    def read(self, log: Log) -> list[tuple[int, int, bytes]]:
        """Everything, by the offset of each batch, through the indexes."""
        found, offset = [], log.log_start_offset
        while offset < log.log_end_offset:
            regions = read_log(log, offset, 1, log.log_end_offset)
            assert isinstance(regions, list) and regions, f"offset {offset} is not found"
            data = regions[0].read()
            (batch,) = batches(data)
            found.append((batch.base_offset, batch.last_offset, data))
            offset = batch.last_offset + 1
        return found


@pytest.mark.fuzz
def test_garbage_in_a_partition(ram: Path, seed: int, fuzz_inputs: int, lines: Lines) -> None:
    made = sample(ram / "made", seed)
    for number in range(max(MUTATIONS, fuzz_inputs // 50) // PARTITIONS):
        trial = Trial(ram / "data", made, random.Random(seed * 1_000_003 + number))
        trial.write()
        lines.said.clear()
        try:
            trial.judge(trial.load(), lines.said)
        except BaseException:
            print(f"round {number}: {trial.hurt}")
            raise
        trial.finish()


def test_garbage_in_a_log_directory(ram: Path, seed: int, lines: Lines) -> None:
    """Its own files: one line that names the file ends the start, or everything is there that was not deleted."""
    made = sample(ram / "made", seed)
    for number in range(BASE_MUTATIONS):
        trial = Trial(ram / "data", made, random.Random(seed * 1_000_003 + number), partitions=1)
        trial.write(hurt_base=True)
        lines.said.clear()
        try:
            judge_base(trial, lines)
        except BaseException:
            print(f"round {number}: {trial.base_hurt}")
            raise
        trial.finish()


def judge_base(trial: "Trial", lines: Lines) -> None:
    path = str(trial.root / trial.base_hurt)
    try:
        loaded = trial.load()
    except DirectoryError as error:
        assert trial.base_hurt in ("meta.properties", ".kafkalite-format")
        assert path in str(error)
        assert str(error).isprintable(), "one line"
        return
    log = trial.manager.find(TOPIC, 0)
    if log is None:
        assert any(path in line for line in loaded.rejected.values()), f"{trial.base_hurt}: {loaded.rejected}"
        return
    start = 0
    if trial.base_hurt == "log-start-offset-checkpoint":
        try:
            start = checkpoints.read_offsets(Disk(), path).get((TOPIC, 0), 0)
        except checkpoints.BadCheckpoint:
            assert any(path in line for line in lines.said)
    assert log.log_start_offset == start
    assert trial.read(log) == [each for each in trial.made.records if each[1] >= start]
