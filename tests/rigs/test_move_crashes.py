"""The process or the power ends before every single step of the disk while logs are moved between log directories.

Whatever is found at the next start is what the model allows, in exactly one directory, and the move ends after it.
"""

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kafkalite.storage.log_move import log_move
from kafkalite.storage.log_move.complete_mark import MARK
from tests.rigs.machine import COMPACTED, crash_at_every_step
from tests.rigs.moving import MovingMachine

pytestmark = pytest.mark.torture
Work = Callable[[MovingMachine], None]
COMPACT, COMPACT_DELETE = COMPACTED


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of some hundred bytes, so that a move has many."""
    monkeypatch.setattr(log_move, "PIECE_BYTES", 500)
    monkeypatch.setattr(log_move, "REST_BYTES", 300)


def one_move(machine: MovingMachine) -> None:
    """A move of few records."""
    machine.append(3)
    machine.move()
    machine.copy()
    machine.append(1)


def quiet(machine: MovingMachine) -> None:
    """A move of several segments, then another one."""
    machine.append(10)
    for _ in range(2):
        machine.move()
        machine.copy()
        machine.append(2)


def appends(machine: MovingMachine) -> None:
    """The log grows and rolls while it is copied; some of it is on the disk."""
    machine.append(6)
    machine.move()
    for _ in range(6):
        machine.copy(1)
        machine.append(1)
        machine.checkpoint()
    machine.copy()
    machine.append(3)
    machine.checkpoint()


def deleted_records(machine: MovingMachine) -> None:
    """DeleteRecords and retention, before a piece is copied and after it."""
    machine.append(12)
    machine.move()
    for jobs in (1, 2, 1):
        machine.copy(jobs)
        machine.delete_records()
        machine.append(3)
    machine.copy()
    machine.delete_records()
    machine.checkpoint()


def truncated(machine: MovingMachine) -> None:
    """The log loses its end, which was copied, and gets other records."""
    machine.append(12)
    machine.move()
    machine.copy(4)
    machine.truncate(5)
    machine.append(4)
    machine.copy(2)
    machine.truncate(2)
    machine.append(2)
    machine.copy()
    machine.append(2)


def cancelled(machine: MovingMachine) -> None:
    """The move is cancelled and begun again, to another directory."""
    machine.append(8)
    machine.move()
    machine.copy(2)
    log = machine.log()
    assert machine.manager.mover.cancel((log.topic, log.partition))
    machine.append(2)
    source = machine.paths.index(log.root)
    machine.begin_move(log, machine.paths[source - 1])
    machine.copy(1)
    machine.append(1)
    machine.copy()
    machine.append(2)


def deleted(machine: MovingMachine) -> None:
    """The partition goes while it is copied, and comes again under the same name."""
    machine.append(8)
    machine.move()
    machine.copy(machine.rng.randint(1, 4))
    machine.delete()
    machine.create()
    machine.append(3)
    machine.move()
    machine.copy()
    machine.checkpoint()


def compacted(machine: MovingMachine) -> None:
    """The cleaner replaces segments that were copied, and the clean part moves with the log."""
    if not any(model.partition == COMPACT and not model.deleted for model in machine.models):
        machine.create(COMPACT)
    machine.append(8, COMPACT)
    machine.move(COMPACT)
    machine.copy(2)
    machine.clean(COMPACT, jobs=machine.rng.randint(1, 6))
    machine.append(4, COMPACT)
    machine.copy(1)
    machine.cleaning.drain()  # a job that is done
    machine.clean(COMPACT)
    machine.copy()
    machine.append(6, COMPACT)
    machine.clean(COMPACT)
    machine.checkpoint()


def two_at_once(machine: MovingMachine) -> None:
    """Two partitions move to one directory, one after the other, and one of them back."""
    if not any(model.partition == 1 for model in machine.models):
        machine.create(partition=1)
    machine.append(5)
    machine.append(5, partition=1)
    machine.move()
    machine.move(partition=1)
    machine.copy(3)
    machine.append(1, partition=1)
    machine.copy()
    machine.move(partition=1)
    machine.append(2)
    machine.copy()


def restarts(machine: MovingMachine) -> None:
    """A clean end at some moment of the copy, after which the move begins again."""
    machine.append(8)
    machine.move()
    machine.copy(machine.rng.randint(0, 5))
    machine.restart()
    machine.append(2)
    machine.copy(1)
    machine.restart()
    machine.copy()
    machine.append(2)
    machine.restart()


WORKS: list[Work] = [
    one_move,
    quiet,
    appends,
    deleted_records,
    truncated,
    cancelled,
    deleted,
    compacted,
    two_at_once,
    restarts,
]


def begin(root: Path, seed: int) -> MovingMachine:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    machine = MovingMachine(root, random.Random(seed))
    machine.boot()
    machine.create()
    machine.append(2)
    return machine


def finish(machine: MovingMachine) -> None:
    """The machine goes on after the judge: the move ends, more records, a clean end, all in order."""
    if not any(model.partition == 0 for model in machine.models):
        machine.create()
    machine.append(3)
    machine.finish_moves()
    machine.append(3)
    machine.restart()
    machine.judge(power_cut=False)
    machine.manager.unlock()


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("work", WORKS)
def test_a_crash_at_every_step_of_a_move(ram: Path, seed: int, work: Work, power_cut: bool, crash_steps: range) -> None:
    crash_at_every_step(
        lambda step: begin(ram / "data", seed + step), work, finish, power_cut=power_cut, steps=crash_steps
    )


def steps_of_the_swap(root: Path, seed: int) -> range:
    """The steps of the disk in `one_move` from the mark of the copy on."""
    machine = begin(root, seed)
    first, marked = machine.disk.steps, []

    def note(_operation: str, path: str) -> None:
        if MARK in path:
            marked.append(machine.disk.steps)

    machine.disk.hook = note
    assert machine.ends(one_move, power_cut=True, stop_at=None)
    machine.manager.unlock()
    return range(marked[0] - first - 1, marked[-1] - first + 3)


def test_a_crash_at_every_step_of_the_start_after_a_swap(ram: Path, seed: int, crash_steps: range) -> None:
    """The power fails at each step of a swap, and again at each step of the start after it."""
    for stop in steps_of_the_swap(ram / "data", seed):
        for step in crash_steps:
            machine = begin(ram / "data", seed)
            stopped = machine.disk.steps + stop
            assert not machine.ends(one_move, power_cut=True, stop_at=stopped, starts_until=[step])
            stops = machine.stops
            finish(machine)
            if stops == 1:
                break


def do_all(machine: MovingMachine, works: list[Work]) -> None:
    for work in works:
        work(machine)


def test_runs_with_moves_and_many_crashes(ram: Path, seed: int, crash_seeds: int) -> None:
    for number in range(crash_seeds):
        machine = begin(ram / "data", seed * 1_000_003 + number)
        rng = machine.rng
        try:
            for _ in range(3):
                machine.ends(
                    partial(do_all, works=rng.choices(WORKS, k=3)),
                    power_cut=rng.random() < 0.7,
                    stop_at=machine.disk.steps + rng.randrange(400),
                    starts_until=[rng.randrange(25) for _ in range(rng.randrange(3))],
                )
                if not any(model.partition == 0 for model in machine.models):
                    machine.create()
            finish(machine)
        except BaseException:
            print(f"run {number}")
            raise
