"""The process or the power ends before every single step of the disk, in each of the things that change files.

Whatever is found at the next start is what the model allows, and the log goes on from there.
"""

import gc
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.storage.checkpoints import LOG_STARTS, read_offsets
from tests.kit.descriptors import open_descriptors
from tests.rigs.following import replicate_and_restart, replicate_and_truncate
from tests.rigs.machine import COMPACTED, Machine, crash_at_every_step

pytestmark = pytest.mark.torture
Work = Callable[[Machine], None]
COMPACT, COMPACT_DELETE = COMPACTED


def roll(machine: Machine) -> None:
    """Several segments, synced in between."""
    for _ in range(3):
        machine.append(6)
        machine.checkpoint()


def truncate(machine: Machine) -> None:
    """Across segments, with new records of another epoch in the place of the old ones."""
    machine.append(12)
    machine.checkpoint()
    machine.append(3)
    machine.truncate(3)
    machine.append(4)
    machine.checkpoint()
    machine.truncate(12)
    machine.append(8)
    machine.checkpoint()


def delete_records(machine: Machine) -> None:
    """DeleteRecords, and retention that takes the segments below."""
    machine.append(14)
    machine.delete_records()
    machine.append(4)
    machine.checkpoint()
    machine.delete_records()
    machine.checkpoint()


def delete_unsynced(machine: Machine) -> None:
    """DeleteRecords of records that were never synced: the recovery point on the disk must not claim them."""
    machine.append(2)
    for _ in range(2):
        machine.checkpoint()
        machine.write([1, 1])
        machine.delete_records()
        machine.manager.upkeep.checkpoint_starts()
        machine.checkpoint()
    machine.manager.upkeep.checkpoint_starts()
    machine.offload.drain()
    log = machine.log()
    starts = read_offsets(Disk(), str(machine.root / LOG_STARTS))
    assert starts.get((log.topic, log.partition), log.segments[0].base_offset) == log.log_start_offset


def delete_topic(machine: Machine) -> None:
    """A partition goes, and comes again under the same name."""
    machine.append(5)
    machine.checkpoint()
    machine.delete()
    machine.create()
    machine.append(5)
    machine.checkpoint()


def checkpoint(machine: Machine) -> None:
    """Two partitions, many checkpoints."""
    if not any(model.partition == 1 for model in machine.models):
        machine.create(partition=1)
    for _ in range(3):
        machine.append(3)
        machine.append(5, partition=1)
        machine.checkpoint()


def compacted(machine: Machine, partition: int = COMPACT) -> None:
    """A compacted partition with several closed segments."""
    if not any(model.partition == partition and not model.deleted for model in machine.models):
        machine.create(partition)
    machine.append(6, partition)


def compact(machine: Machine) -> None:
    """Rounds of the cleaner, each swap of which replaces several segments; what was clean is cleaned again."""
    for _ in range(2):
        compacted(machine)
        machine.clean(COMPACT)
        machine.retention()  # `.deleted` files and tombstones go
    machine.checkpoint()


def compact_beside(machine: Machine) -> None:
    """While a round is under way the log grows and rolls, loses its end, its start, and ends cleanly."""
    compacted(machine, COMPACT_DELETE)
    machine.clean(COMPACT_DELETE, jobs=2)
    machine.append(6, COMPACT_DELETE)
    machine.clean(COMPACT_DELETE, jobs=1)
    machine.truncate(partition=COMPACT_DELETE)
    machine.append(6, COMPACT_DELETE)
    machine.clean(COMPACT_DELETE, jobs=3)
    machine.delete_records(COMPACT_DELETE)
    machine.append(6, COMPACT_DELETE)
    machine.clean(COMPACT_DELETE, jobs=machine.rng.randint(1, 6))
    machine.restart()
    machine.clean(COMPACT_DELETE)


def compact_and_delete(machine: Machine) -> None:
    """A partition goes at some step of a round, and comes again under the same name."""
    compacted(machine)
    machine.clean(COMPACT)
    machine.append(8, COMPACT)
    machine.clean(COMPACT, jobs=machine.rng.randint(1, 6))
    machine.delete(COMPACT)
    compacted(machine)
    machine.clean(COMPACT)


def shutdown(machine: Machine) -> None:
    """Clean ends and the starts after them."""
    for _ in range(2):
        machine.append(5)
        machine.restart()


WORKS: list[Work] = [
    roll,
    truncate,
    delete_records,
    delete_unsynced,
    delete_topic,
    checkpoint,
    compact,
    compact_beside,
    compact_and_delete,
    replicate_and_truncate,
    replicate_and_restart,
    shutdown,
]


def begin(root: Path, seed: int) -> Machine:
    shutil.rmtree(root, ignore_errors=True)
    machine = Machine(root, random.Random(seed))
    machine.boot()
    machine.create()
    machine.append(2)
    return machine


def finish(machine: Machine) -> None:
    """The machine goes on after the judge: more records, a clean end, all in order."""
    if not any(model.partition == 0 for model in machine.models):
        machine.create()
    machine.append(3)
    machine.restart()
    machine.judge(power_cut=False)
    machine.manager.unlock()


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("work", WORKS)
def test_a_crash_at_every_step(ram: Path, seed: int, work: Work, power_cut: bool, crash_steps: range) -> None:
    crash_at_every_step(
        lambda step: begin(ram / "data", seed + step), work, finish, power_cut=power_cut, steps=crash_steps
    )


@pytest.mark.parametrize("work", [each for each in WORKS if each is not shutdown])
def test_a_crash_at_every_step_of_the_start(ram: Path, seed: int, work: Work, crash_steps: range) -> None:
    """The power fails in the work, and again at each step of the recovery after it."""
    for step in crash_steps:
        machine = begin(ram / "data", seed + step)
        stop_at = machine.disk.steps + 10 + machine.rng.randrange(40)  # no work has fewer steps
        assert not machine.ends(work, power_cut=True, stop_at=stop_at, starts_until=[step])
        finish(machine)
        if machine.stops == 1:
            return
    raise AssertionError("the start does not end")


def open_files(root: Path) -> list[str]:
    """The files below `root` that this process has open, without those that only garbage refers to."""
    gc.collect()
    return [link for link in open_descriptors().values() if link.startswith(str(root))]


def do_all(machine: Machine, works: list[Work]) -> None:
    for work in works:
        work(machine)


def live(root: Path, seed: int) -> None:
    """Any work, stopped anywhere, starts that are stopped, too, and on it goes."""
    machine = begin(root, seed)
    rng = machine.rng
    for _ in range(3):
        machine.ends(
            partial(do_all, works=rng.choices(WORKS, k=3)),
            power_cut=rng.random() < 0.7,
            stop_at=machine.disk.steps + rng.randrange(250),
            starts_until=[rng.randrange(25) for _ in range(rng.randrange(3))],
        )
        if not any(model.partition == 0 for model in machine.models):
            machine.create()
    finish(machine)


def test_runs_with_many_crashes(ram: Path, seed: int, crash_seeds: int) -> None:
    """And no life leaves a file open."""
    for number in range(crash_seeds):
        try:
            live(ram / "data", seed * 1_000_003 + number)
        except BaseException:
            print(f"life {number}")
            raise
    assert open_files(ram) == []
