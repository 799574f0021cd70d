"""The rounds: every broker runs, one is driven at a time, the order rotates, and each starts from a quiet disk.

For each load all brokers are started on fresh directories and warmed up once (Java compiles, pages come in); then come
the rounds. Loads that measure a process start theirs in every round. Brokers that are not driven are idle.
"""

import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from perf.backing import back_free_memory
from perf.brokers.base import Broker, Running
from perf.loads import Load, Sample, Trial

Progress = Callable[[str], None]


@dataclass
class LoadResult:
    """What one load found: per broker one sample per round, in the order of the rounds."""

    load: Load
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def medians(self, broker: str) -> Sample:
        """The median over the rounds of every figure; empty if this broker was not measured."""
        taken = self.samples.get(broker, [])
        return {figure.key: median(sample[figure.key] for sample in taken) for figure in self.load.figures if taken}


@dataclass(frozen=True)
class Plan:
    """What to run. idle_s: the pause after sync before each turn. work: where the brokers' files go."""

    brokers: Sequence[Broker]
    loads: Sequence[Load]
    rounds: int
    quick: bool
    work: Path | None = None

    @property
    def idle_s(self) -> float:
        return 0.2 if self.quick else 2.0


def compare(plan: Plan, progress: Progress) -> list[LoadResult]:
    """Run the plan. Raises VerificationError or BrokerError at the first thing that is not as it must be."""
    return [_run_load(plan, load, progress) for load in plan.loads]


def _run_load(plan: Plan, load: Load, progress: Progress) -> LoadResult:
    kinds = [broker for broker in plan.brokers if not load.brokers or broker.name in load.brokers]
    result = LoadResult(load, {broker.name: [] for broker in kinds})
    with _directory(plan) as directory, _started(kinds, load, directory) as running:
        for number in range(plan.rounds + 1):
            for kind in _rotated(kinds, number):
                trial = Trial(kind, directory / kind.name, number, plan.quick, running.get(kind.name))
                if number == 0:
                    load.prepare(trial)
                _pause(plan, load.fills_bytes * kind.replicas, directory)
                sample = load.run(trial)
                if number:
                    result.samples[kind.name].append(sample)
                progress(f"{load.name}: {_round(number, plan.rounds)}, {kind.name}: {_short(load, sample)}")
    return result


def _rotated(brokers: Sequence[Broker], number: int) -> list[Broker]:
    first = number % len(brokers)
    return [*brokers[first:], *brokers[:first]]


def _pause(plan: Plan, fills_bytes: int, directory: Path) -> None:
    """Nothing of the turn before may be written back during this one, which fills so many bytes of memory."""
    gc.collect()  # clients of the turn before hold connections and threads until they are collected
    os.sync()
    time.sleep(plan.idle_s)
    if fills_bytes and not plan.quick:
        back_free_memory(fills_bytes, directory)


@contextmanager
def _directory(plan: Plan) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="kafkalite-perf-", dir=plan.work))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


@contextmanager
def _started(kinds: Sequence[Broker], load: Load, directory: Path) -> Iterator[dict[str, Running]]:
    running: dict[str, Running] = {}
    try:
        for broker in kinds if not load.starts_broker else ():
            running[broker.name] = broker.start(directory / broker.name, load.settings)
        yield running
    except BaseException:
        for process in running.values():
            process.kill()
        raise
    for process in running.values():
        process.stop()


def _round(number: int, rounds: int) -> str:
    return f"round {number}/{rounds}" if number else "warm-up"


def _short(load: Load, sample: Sample) -> str:
    return ", ".join(f"{figure.title} {sample[figure.key]:,.4g} {figure.unit}".strip() for figure in load.figures)
