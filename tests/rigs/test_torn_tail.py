"""The last three batches are cut at every byte, and zero-filled from every byte on.

What is recovered is the log up to the last whole batch: the same bytes, the same indexes, the same epochs as a log to
which no more was ever appended.
"""

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.storage.log.log import Log
from kafkalite.storage.recovery.recover_log import PartitionDirectory, recover
from kafkalite.storage.verify.verify import verify_log
from tests.kit.logs import new_log
from tests.rigs.machine import CONFIG
from tests.rigs.model import StoredBatch, read_all
from tests.unit.storage.damage import batch, last_log

pytestmark = pytest.mark.torture
TORN = 3
BATCHES = 14


@dataclass
class Sample:
    """A log on the disk, and what it is after each of its last batches."""

    directory: Path
    content: bytes
    tail: list[StoredBatch]
    positions: list[int]
    states: list[tuple[object, ...]]


def state(log: Log, window: int) -> tuple[object, ...]:
    """Everything a log is, to be compared with another one; `window`: so many batches of a producer count."""
    indexes = [tuple(index.tobytes() for index in segment.indexes) for segment in log.segments]
    counters = (log.active.bytes_since_index, log.active.max_timestamp, log.active.first_timestamp)
    producers = {key: entry.seen()[-window:] for key, entry in log.producers.entries.items()}
    # The last epoch may begin at the log end: it has no batch, as after becoming leader.
    epochs = tuple(entry for entry in log.epochs.entries if entry[1] < log.log_end_offset)
    return log.log_end_offset, tuple(read_all(log)), indexes[-1], counters, epochs, producers


def sample(directory: Path, rng: random.Random, window: int) -> Sample:
    """A log of several segments, at least five batches in its last one, with a new epoch in the last three."""
    log = new_log(Disk(), str(directory), "t", 0, CONFIG)
    states: list[tuple[object, ...]] = []
    number = 0
    while number < BATCHES or len(log.active.batches()) < TORN + 2:
        made = batch(
            rng.randint(1, 3),
            10_000 + 10 * number,
            1,
            producer_id=7,
            producer_epoch=0,
            base_sequence=log.log_end_offset,
        )
        log.append(made, None, 4 if number >= BATCHES - 2 else 3)
        assert log.write() == 0
        states.append(state(log, window))
        number += 1
    locations = log.active.batches()[-TORN:]
    content = last_log(directory).read_bytes()
    return Sample(
        directory, content, read_all(log)[-TORN:], [*(batch.position for batch in locations), len(content)], states
    )


def recovered(made: Sample, target: Path, content: bytes, recovery_point: int) -> Log:
    shutil.copytree(made.directory, target)
    (target / last_log(made.directory).name).write_bytes(content)
    log, _ = recover(PartitionDirectory(Disk(), str(target), "t", 0, CONFIG, False, recovery_point))
    return log


@pytest.mark.parametrize("synced", [False, True], ids=["nothing-synced", "synced-before-the-tail"])
@pytest.mark.parametrize("zeros", [False, True], ids=["cut", "zero-filled"])
def test_the_tail_is_torn_at_every_byte(ram: Path, seed: int, zeros: bool, synced: bool) -> None:
    window = 1 if synced else 5  # a snapshot holds the last batch of a producer
    made = sample(ram / "t-0", random.Random(seed), window)
    recovery_point = made.tail[0].base if synced else 0
    target = ram / "torn"
    for cut in range(made.positions[0], len(made.content) + 1):
        content = made.content[:cut] + bytes(len(made.content) - cut if zeros else 0)
        log = recovered(made, target, content, recovery_point)
        whole = sum(
            content[:end] == made.content[:end] and len(content) >= end for end in made.positions[1:]
        )  # zeros may be what was there
        assert state(log, window) == made.states[len(made.states) - 1 - TORN + whole], f"cut at {cut}"
        assert last_log(target).read_bytes() == made.content[: made.positions[whole]], f"cut at {cut}"
        said = verify_log(Disk(), str(target), recovery_point=recovery_point)
        assert [str(each) for each in said] == [], f"cut at {cut}"
        shutil.rmtree(target)
