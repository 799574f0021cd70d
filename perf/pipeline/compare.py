"""Runs the rows: the sides take turns, in rotating order, on one broker."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from perf.backing import back_free_memory
from perf.brokers.base import Broker, Running
from perf.limits import OURS
from perf.pipeline import offsets, restart, topics
from perf.pipeline.drivers import Driver
from perf.pipeline.job import Job, Sample
from perf.pipeline.rows import THEIRS, Row, scaled

WRITING = ("sink", "stream_sink")
FILLED, FILLED_BYTES = 1.3, 256 << 20  # memory that a job fills: a factor of its values, and more
SETTINGS = {
    "log.segment.bytes": str(256 << 20),
    "log.segment.delete.delay.ms": "0",  # deleted topics of the sink would fill the memory file system
}


@dataclass(frozen=True)
class Plan:
    """What to run; `repetitions` without the warm-up; `percent` of the records; `work`: where all files go."""

    broker: Broker
    rows: Sequence[Row]
    repetitions: int
    percent: int
    work: Path | None = None


@dataclass
class Result:
    """The samples of one row: side -> one per repetition."""

    row: Row
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def medians(self, side: str) -> Sample:
        taken = self.samples[side]
        return {figure.key: median(sample[figure.key] for sample in taken) for figure in self.row.figures}


def compare(plan: Plan, progress: Callable[[str], None]) -> list[Result]:
    """Run the plan. Raises VerificationError, BrokerError or JvmError at the first failure."""
    with _session(plan) as session:
        return [session.run(row, progress) for row in plan.rows]


@contextmanager
def _session(plan: Plan) -> Iterator["Session"]:
    directory = Path(tempfile.mkdtemp(prefix="kafkalite-pipeline-", dir=plan.work))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory)
        running = plan.broker.start(directory / "broker", SETTINGS)
        stack.callback(running.stop)
        yield Session(plan, running, directory, stack)


class Session:
    """A broker, and a driver of each side from the first row that needs it."""

    def __init__(self, plan: Plan, broker: Running, directory: Path, stack: ExitStack) -> None:
        self._plan = plan
        self._broker = broker
        self._directory = directory
        self._stack = stack
        self._drivers: dict[bool, Driver] = {}
        self._topics: dict[tuple[int, int], str] = {}

    def run(self, row: Row, progress: Callable[[str], None]) -> Result:
        """Run a row: the checks, a warm-up of each side, the repetitions."""
        result = Result(row)
        for side, job in (row.checks or {}).items():
            self._measure(side, scaled(job, self._plan.percent), "check")
        jobs = list(row.sized(self._plan.percent).items())
        repetitions = row.repetitions or self._plan.repetitions
        for number in range(repetitions + 1):
            first = number % len(jobs)
            for side, job in [*jobs[first:], *jobs[:first]]:
                sample = self._measure(side, job, str(number))
                if number:
                    result.samples.setdefault(side, []).append(sample)
                shown = ", ".join(f"{key} {value:,.4g}" for key, value in sample.items())
                progress(f"{row.name}: {number}/{repetitions}, {side}: {shown}")
        return result

    def _measure(self, side: str, job: Job, number: str) -> Sample:
        if job.work in WRITING:
            return self._written(job, f"{side}-{number}")
        job = replace(job, address=self._broker.address, topic=self._filled(job) if job.value_bytes else "")
        if job.work == "list_offsets":
            return offsets.measure(self._broker, job.topic, job.batches)
        if job.work == "restart":
            directory = Path(tempfile.mkdtemp(dir=self._directory))
            return restart.measure(job.address, job.topic, directory)
        return self._run(job)

    def _run(self, job: Job) -> Sample:
        """Run a job in its driver, with memory for what it writes."""
        driver = self._driver(job)
        back_free_memory(int(job.records * job.value_bytes * FILLED) + FILLED_BYTES, self._directory)
        return driver.run(job)

    def _written(self, job: Job, name: str) -> Sample:
        """Run a job that writes into a topic, verify the topic, and delete it."""
        topic = f"sink-{name}"
        topics.create(self._broker.address, topic)
        sample = self._run(replace(job, address=self._broker.address, topic=topic))
        topics.expect(self._broker.address, topic, job.records + job.markers)
        topics.delete(self._broker.address, topic)
        return sample

    def _driver(self, job: Job) -> Driver:
        connector = job.source == THEIRS
        if connector not in self._drivers:
            name = f"driver-{THEIRS if connector else OURS}"
            driver = Driver(self._directory / name, connector=connector)
            self._drivers[connector] = self._stack.enter_context(driver)
        return self._drivers[connector]

    def _filled(self, job: Job) -> str:
        """The topic with the records of a job; rows share it."""
        key = (job.value_bytes, job.records)
        if key not in self._topics:
            self._topics[key] = f"values-{job.value_bytes}-{job.records}"
            topics.fill(self._broker.address, self._topics[key], job.records, job.value_bytes)
        return self._topics[key]
