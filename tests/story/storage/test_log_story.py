"""Random appends, rolls, reads, truncations, deletions, faults, kills and restarts of a log, compared with a list.

Set KAFKALITE_SEED to replay a run, KAFKALITE_STORIES to run more of them.
"""

import errno
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kafkalite._speedups.records.batches import batches
from kafkalite._speedups.storage.file import Disk
from kafkalite.config.topic import TopicConfig
from kafkalite.storage.file_removal import PendingRemoval, remove_batch
from kafkalite.storage.log.segment_cache import SegmentCache
from kafkalite.storage.recovery.recover_log import PartitionDirectory, recover
from kafkalite.storage.retention import mark_deleted
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit import dump_log, jvm
from tests.kit.logs import new_log, read_log
from tests.kit.seeds import chosen_seed
from tests.unit.storage.damage import batch, last_log

STORIES = int(os.environ.get("KAFKALITE_STORIES", "12"))
STEPS = 150
SEED = chosen_seed()


@dataclass
class Sent:
    """One batch as the model knows it."""

    base: int
    last: int
    value: bytes
    timestamp: int
    epoch: int


@dataclass
class Story:
    """A log, its model, and the steps that change both."""

    path: Path
    rng: random.Random
    disk: FaultyDisk = field(default_factory=FaultyDisk)
    batches: list[Sent] = field(default_factory=list)
    start: int = 0
    end: int = 0
    epoch: int = 0
    number: int = 0
    steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.config = replace(
            TopicConfig(),
            segment_bytes=self.rng.choice([2_000, 10_000, 50_000]),
            index_interval_bytes=self.rng.choice([1, 500, 4_096]),
            segment_index_bytes=self.rng.choice([200, 10_000]),
            segment_ms=self.rng.choice([5_000, 2**62]),
        )
        self.log = new_log(self.disk, str(self.path), "t", 0, self.config)

    # Steps.

    def append(self) -> None:
        sent = []
        end = self.end
        for _ in range(self.rng.randint(1, 12)):
            self.number += 1
            count = self.rng.randint(1, 5)
            value = b"%d-" % self.number
            timestamp = 100 * self.number + self.rng.randint(-500, 500)
            made = batch(count, timestamp, self.rng.randint(1, 40), value)
            assert self.log.append(made, None, self.epoch) == end
            sent.append(Sent(end, end + count - 1, value, timestamp, self.epoch))
            end += count
        failing = self.rng.random() < 0.15
        if failing:
            operation = self.rng.choice(["write", "write", "open", "truncate"])
            self.disk.fail(operation, errno.ENOSPC, when=self.rng.randint(1, 5), allowed=self.rng.randint(0, 500))
        failed = self.log.write()
        self.disk.heal()
        assert failing or not failed
        if not failed:
            self.batches += sent
            self.end = end

    def new_epoch(self) -> None:
        self.epoch += self.rng.randint(1, 3)

    def truncate(self) -> None:
        offset = self.rng.randint(max(self.start, self.end - 60), self.end)
        self.log.truncate_to(self.log.begin_truncation(offset))
        if offset < self.end:
            self.end = min([offset, *(sent.base for sent in self.batches if sent.last >= offset)])
            self.batches = [sent for sent in self.batches if sent.last < offset]
            self.start = min(self.start, self.end)
            self.epoch += 1

    def delete_records(self) -> None:
        offset = self.rng.randint(self.start, min(self.end, self.start + 100))
        assert self.log.delete_records_before(offset) == 0
        self.start = offset

    def delete_segments(self) -> None:
        count = sum(segment.base_offset <= self.start for segment in self.log.segments[1:])
        remove_batch(self.disk, [PendingRemoval(path) for path in mark_deleted(self.log.drop_first(count))])

    def restart_cleanly(self) -> None:
        self.log.close()
        self.reopen(clean=True, recovery_point=self.log.recovery_point)

    def kill(self) -> None:
        """The process dies: what the page cache holds stays, indexes of the active segment do not."""
        self.reopen(clean=False, recovery_point=self.rng.choice([0, self.log.recovery_point]))

    def kill_in_a_write(self) -> None:
        """The process dies with the last batches half in the file."""
        path = Path(self.log.active.path(".log"))
        with open(path, "ab") as file:
            torn = batch(2, 1, 10)
            torn[:8] = self.end.to_bytes(8, "big")
            file.write(torn[: self.rng.randint(1, len(torn) - 1)])
        self.reopen(clean=False, recovery_point=self.log.recovery_point)

    def reopen(self, *, clean: bool, recovery_point: int) -> None:
        self.disk = FaultyDisk()
        partition_dir = PartitionDirectory(
            self.disk, str(self.path), "t", 0, self.config, clean, recovery_point, self.start
        )
        self.log, _ = recover(partition_dir)
        self.log.use_cache(SegmentCache(files_max=self.rng.choice([1, 2, 50])))
        self.epoch += 1

    # What must hold.

    def check(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset, log.next_offset) == (self.start, self.end, self.end)
        assert log.log_start_offset <= log.recovery_point <= log.log_end_offset
        assert log.size == sum(path.stat().st_size for path in self.path.glob("*.log"))
        visible = [sent for sent in self.batches if sent.last >= self.start]
        assert self.read(self.start) == [(sent.base, sent.last, sent.value) for sent in visible]
        for sent in self.rng.sample(visible, min(5, len(visible))):
            self.check_look_ups(sent, visible)

    def check_look_ups(self, sent: Sent, visible: list[Sent]) -> None:
        offset = self.rng.randint(max(sent.base, self.start), sent.last)
        regions = read_log(self.log, offset, 1, self.end)
        assert isinstance(regions, list)
        assert batches(regions[0].read())[0].base_offset == sent.base
        assert self.log.epoch_at(offset) == sent.epoch
        expected = self.first_at(sent.timestamp, visible)
        found = self.log.look_up_time(sent.timestamp)
        assert (None if found is None else found[:2]) == expected

    def first_at(self, wanted: int, visible: list[Sent]) -> tuple[int, int] | None:
        for sent in visible:
            for offset in range(max(sent.base, self.start), sent.last + 1):
                if (timestamp := sent.timestamp + offset - sent.base) >= wanted:
                    return timestamp, offset
        return None

    def read(self, offset: int) -> list[tuple[int, int, bytes]]:
        found = []
        while regions := read_log(self.log, offset, self.rng.choice([1, 300, 5_000]), self.end):
            assert isinstance(regions, list)
            for each in batches(b"".join(region.read() for region in regions)):
                each.check_crc()
                value = each.records()[0].value
                assert value is not None
                found.append((each.base_offset, each.last_offset, value.split(b"-")[0] + b"-"))
                offset = each.last_offset + 1
        return found

    def live(self) -> None:
        steps: list[Callable[[], None]] = [
            *[self.append] * 20, self.new_epoch, self.truncate, self.delete_records, self.delete_segments,
            self.restart_cleanly, self.kill, self.kill_in_a_write,
        ]  # fmt: skip
        for _ in range(STEPS):
            step = self.rng.choice(steps)
            self.steps.append(step.__name__)
            step()
            self.check()


@pytest.mark.parametrize("story", range(STORIES))
def test_log_equals_the_model(tmp_path: Path, story: int) -> None:
    print(f"KAFKALITE_SEED={SEED}")
    history = Story(tmp_path / "t-0", random.Random(SEED * 1_000 + story))
    try:
        history.live()
    finally:
        print(history.steps)


def test_last_batches_truncated_at_every_byte(tmp_path: Path) -> None:
    history = Story(tmp_path / "t-0", random.Random(7))
    for _ in range(4):
        history.append()
    source, last = tmp_path / "t-0", last_log(tmp_path / "t-0")
    tail = history.log.active.batches()[-3:]
    assert len(tail) == 3
    content = last.read_bytes()
    for zeros in (False, True):
        for cut in range(tail[0].position, len(content)):
            directory = tmp_path / "cut"
            shutil.copytree(source, directory)
            (directory / last.name).write_bytes(content[:cut] + bytes(len(content) - cut if zeros else 0))
            log, _ = recover(PartitionDirectory(Disk(), str(directory), "t", 0, history.config))
            left = (directory / last.name).read_bytes()
            whole = [
                batch for batch in tail if content[: batch.position + batch.size] == left[: batch.position + batch.size]
            ]
            assert log.log_end_offset == (whole[-1].last_offset + 1 if whole else tail[0].base_offset), (
                f"cut at {cut}, zeros {zeros}"
            )
            shutil.rmtree(directory)


@pytest.mark.skipif(jvm.java_missing() is not None, reason=f"DumpLogSegments: {jvm.java_missing()}")
def test_kafka_reads_the_files_of_a_random_history(tmp_path: Path) -> None:
    print(f"KAFKALITE_SEED={SEED}")
    history = Story(tmp_path / "t-0", random.Random(SEED))
    history.truncate = history.new_epoch  # type: ignore[method-assign]  # a cut inside a batch leaves a gap, which the tool reports
    history.live()
    history.log.close()
    report = dump_log.dump(tmp_path / "t-0")
    assert report.problems == []
    assert report.batches == sum(len(segment.batches()) for segment in history.log.segments)
