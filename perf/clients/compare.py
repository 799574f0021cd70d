"""Runs the rows: every client once per repetition, in rotating order, beside one broker at a time."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from perf.brokers.base import Broker, Running
from perf.checks import Topics
from perf.clients.base import Client, Job, Sample
from perf.clients.rows import SLOWNESS, Row
from perf.errors import VerificationError

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 600.0
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.replication.factor": "1"}
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
"""Of all clients: pyarrow imports numpy, whose threads wait actively for tens of ms, on the core of the broker."""


@dataclass(frozen=True)
class Plan:
    """What to run; `repetitions` without the warm-up; `work`: where the brokers' files go."""

    brokers: Sequence[Broker]
    clients: Mapping[str, Client]
    rows: Sequence[Row]
    repetitions: int
    quick: bool
    work: Path | None = None


@dataclass
class RowResult:
    """The samples of one row: broker -> client -> one per repetition."""

    row: Row
    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict)

    def medians(self, broker: str, client: str) -> Sample:
        return self._each(broker, client, median)

    def best(self, broker: str, client: str) -> Sample:
        """The best value of each figure, which other load on the machine affects least."""
        better = {figure.key: max if figure.better == "higher" else min for figure in self.row.figures}
        taken = self.samples[broker][client]
        return {key: choose(sample[key] for sample in taken) for key, choose in better.items()}

    def _each(self, broker: str, client: str, choose: Callable[[list[float]], float]) -> Sample:
        taken = self.samples[broker][client]
        return {figure.key: choose([sample[figure.key] for sample in taken]) for figure in self.row.figures}


def compare(plan: Plan, progress: Callable[[str], None]) -> list[RowResult]:
    """Run the plan. Raises VerificationError or BrokerError at the first failure."""
    results = [RowResult(row, {broker.name: {} for broker in plan.brokers}) for row in plan.rows]
    for result in results:
        for broker in plan.brokers:
            with _started(plan, broker) as running:
                result.row.prepare(running, plan.quick)
                _run_row(plan, result, running, progress)
    return results


@contextmanager
def _started(plan: Plan, broker: Broker) -> Iterator[Running]:
    directory = Path(tempfile.mkdtemp(prefix="kafkalite-clients-", dir=plan.work))
    try:
        running = broker.start(directory / broker.name, SETTINGS)
        try:
            yield running
        except BaseException:
            running.kill()
            raise
        running.stop()
    finally:
        shutil.rmtree(directory)


def _run_row(plan: Plan, result: RowResult, broker: Running, progress: Callable[[str], None]) -> None:
    works = {job.work for job in result.row.jobs.values()}
    if not broker.tls_address and any(job.tls for job in result.row.jobs.values()):
        return
    names = [name for name in result.row.clients if name in plan.clients and all(map(plan.clients[name].can, works))]
    for number in range(plan.repetitions + 1 if names else 0):
        first = number % len(names)
        for name in [*names[first:], *names[:first]]:
            sample = _run_client(plan, result.row, broker, name, number)
            if number:
                result.samples[broker.name].setdefault(name, []).append(sample)
            shown = ", ".join(f"{key} {value:,.4g}" for key, value in sample.items())
            progress(f"{result.row.name}: {number}/{plan.repetitions}, {broker.name}, {name}: {shown}")


def _run_client(plan: Plan, row: Row, broker: Running, name: str, number: int) -> Sample:
    found: Sample = {}
    for label, job in row.sized(plan.quick).items():
        sized = job if plan.quick or job.work not in ("produce", "columns") else _slower(job, SLOWNESS.get(name, 1))
        topic = f"{row.topic(label)}-{name}-{number}" if row.creates else row.topic(label)
        address = broker.tls_address if job.tls else broker.address
        wanted = replace(sized, address=address, topic=topic, broker_pid=broker.pid, cafile=broker.cafile)
        sample = _in_process(name, wanted) if not row.creates else _on_new_topic(broker, name, wanted)
        found.update({f"{label}{label and '_'}{key}": value for key, value in sample.items()})
    return row.combine(found)


def _slower(job: Job, factor: int) -> Job:
    return replace(job, records=job.records // factor, warm_up=job.warm_up // factor)


def _on_new_topic(broker: Running, name: str, job: Job) -> Sample:
    topics = Topics(broker)
    topics.create(job.topic_names, job.partitions)
    sample = _in_process(name, job)
    topics.expect(job.topic, job.partitions, job.warm_up + job.records)
    topics.delete(job.topic_names)
    return sample


def _in_process(name: str, job: Job) -> Sample:
    command = [sys.executable, "-m", "perf.clients.worker", name, job.to_json()]
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=SECONDS_MAX)
    if done.returncode:
        raise VerificationError(f"{name}, {job.work}: {done.stderr[-2000:]}")
    sample: Sample = json.loads(done.stdout)
    return sample
