"""Kills processes of an ingest in given phases, in a given order. Each kill happens once and leaves a marker file.

A directory (`KAFKALITE_KILLS` of the environment, which Spark's processes inherit) has `plan.json`, a list of kills.
For kill N it has `N.json`, written by the process that is killed or that kills: its phase, its pid, and the files of
`_attempts`; and `N.seen`, the same files, found after that by another process.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType
from pyspark_kafkalite.ingest import worker
from pyspark_kafkalite.ingest.plans import PlanReader, PlanSource
from pyspark_kafkalite.ingest.query import Committer
from pyspark_kafkalite.ingest.worker import Job, Written
from pyspark_kafkalite.tables import parquet_writer as attempt
from pyspark_kafkalite.tables.disk import Disk, OpenFile
from pyspark_kafkalite.tables.locations import ATTEMPTS, COMMITS
from pyspark_kafkalite.tables.manifest import ManifestTable
from pyspark_kafkalite.task import batches

WORKER = (
    "worker before the file",
    "worker while it writes the file",
    "worker before the flush of the file",
    "worker before the flush of the directory",
    "worker after the file",
)
COMMIT = (
    "commit before its file",
    "commit before its link",
    "commit after its link",
    "commit between the links of two files",
    "commit before attempts are removed",
    "commit after its end",
)
PLANNER = ("planner before the end of a batch", "planner before the splits")

PROCESS, DRIVER, BROKER, EXECUTOR = "process", "driver", "broker", "executor"
"""What a kill ends. `process` is the Python worker or the planner; in a commit, the commit alone: its query fails."""

SECOND_DRIVER, SUSPENDED = "second driver", "suspended broker"
"""What does not end a process. A second driver starts and recovers the table, while the first one commits. A broker is
suspended until the query has failed, so for longer than all of its timeouts."""

ELSEWHERE = (BROKER, SECOND_DRIVER, SUSPENDED)
"""Targets that leave no attempt."""

RECOVER = "import sys; from pyspark_kafkalite.tables import ManifestTable; ManifestTable(sys.argv[1]).recover()"

WITHOUT_ATTEMPTS = (WORKER[0], *PLANNER)
"""Phases in which the attempt that is killed may have no file."""

TASK_ATTEMPTS = 4
"""How often Spark tries a task: `spark.task.maxFailures`, and `local[N,4]`."""


RECOVER_S = 60


class Kill(NamedTuple):
    """One kill: its phase and what it ends."""

    phase: str
    target: str = PROCESS


class KilledError(Exception):
    """A commit that ends in its phase; nothing that it does later has an effect."""


class Kills:
    """The kills of one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def of_this_process(cls) -> "Kills":
        return cls(Path(os.environ["KAFKALITE_KILLS"]))

    @property
    def plan(self) -> list[Kill]:
        return [Kill(*each) for each in json.loads((self.directory / "plan.json").read_text())]

    def done(self) -> int:
        """How many kills have happened."""
        return len(list(self.directory.glob("[0-9]*.json")))

    def may_fail(self, since: int) -> bool:
        """Whether a query may fail by the kills from that number on. Spark repeats the task of a killed worker."""
        kills = self.plan[since : self.done()]
        return len(kills) >= TASK_ATTEMPTS or any(each.phase not in WORKER or each.target != PROCESS for each in kills)

    def marker(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / f"{number:04}.json").read_text())
        return found

    def reached(self, phase: str, table: Path | None = None) -> None:
        """Kill, if the next kill is in this phase."""
        number, plan = self.done(), self.plan
        if number >= len(plan) or plan[number].phase != phase:
            return
        attempts: list[str] = []
        if table is not None and plan[number].target not in ELSEWHERE:
            attempts = sorted(os.listdir(table / ATTEMPTS))
        text = json.dumps({"phase": phase, "pid": os.getpid(), "attempts": attempts})
        written = self.directory / f"{os.getpid()}.written"
        written.write_text(text)
        try:
            os.link(written, self.directory / f"{number:04}.json")
        except FileExistsError:
            return  # another task was first
        finally:
            written.unlink()
        self._kill(plan[number], table)

    def signal_broker(self, number: int) -> None:
        """Send a signal to the broker."""
        os.kill(int((self.directory / "broker.pid").read_text()), number)

    def _kill(self, kill: Kill, table: Path | None) -> None:
        if kill.target in (BROKER, SUSPENDED):
            self.signal_broker(signal.SIGKILL if kill.target == BROKER else signal.SIGSTOP)
            return
        if kill.target == SECOND_DRIVER:
            subprocess.run([sys.executable, "-c", RECOVER, str(table)], check=True, timeout=RECOVER_S)
            return
        if kill.target == PROCESS and kill.phase in COMMIT:
            raise KilledError(kill.phase)
        if kill.target == EXECUTOR:
            os.kill(parent(os.getppid()), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def find_orphans(self, table: Path) -> None:
        """Record that the attempts of former kills still exist; raises AssertionError if one does not."""
        for number in range(self.done()):
            seen = self.directory / f"{number:04}.seen"
            if not seen.exists():
                wanted = self.marker(number)["attempts"]
                missing = set(wanted) - set(os.listdir(table / ATTEMPTS))
                assert not missing, f"kill {number}: {missing} do not exist"
                seen.write_text(json.dumps(wanted))


def parent(pid: int) -> int:
    """Return the parent of a process."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat[stat.rindex(")") + 2 :].split()[1])


class WorkerDisk(Disk):
    """The disk of a worker."""

    def flush_file(self, file: OpenFile, path: Path) -> None:
        Kills.of_this_process().reached(WORKER[2], path.parent.parent)
        super().flush_file(file, path)

    def flush_directory(self, path: Path) -> None:
        Kills.of_this_process().reached(WORKER[3], path.parent)
        super().flush_directory(path)


def write_splits(job: Job, plans: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """As `worker.write_splits`, with kills."""
    kills, table = Kills.of_this_process(), Path(job.batch.directory).parent
    kills.reached(WORKER[0], table)

    def killed(*arguments: Any) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches(*arguments):
            yield batch
            kills.reached(WORKER[1], table)

    worker.batches, attempt.Disk = killed, WorkerDisk  # in a process of Spark
    for written in worker.write_splits(job, plans):
        kills.reached(WORKER[4], table)
        yield written


class CommitDisk(Disk):
    """The disk of commits. After a kill it does nothing any more: its process would have ended."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._linked = 0
        self._dead = False

    def write(self, path: Path, content: bytes) -> None:
        if path.suffix == ".json":
            self._reached(COMMIT[0])
        self._alive()
        super().write(path, content)

    def link(self, source: Path, target: Path) -> None:
        committing = target.parent.name == COMMITS
        if committing:
            self._linked = 0
            self._reached(COMMIT[1])
        elif target.suffix == ".parquet" and source.exists():  # a published file has no attempt any more
            self._linked += 1
            if self._linked == 2:
                self._reached(COMMIT[3])
        self._alive()
        super().link(source, target)
        if committing:
            self._reached(COMMIT[2])

    def remove(self, path: Path) -> None:
        if path.suffix == ".parquet" and self._linked:
            self._reached(COMMIT[4])
        self._alive()
        super().remove(path)

    def flush_directory(self, path: Path) -> None:
        self._alive()
        super().flush_directory(path)

    def _alive(self) -> None:
        if self._dead:
            raise KilledError("the commit was killed before")

    def _reached(self, phase: str) -> None:
        self._alive()
        try:
            Kills.of_this_process().reached(phase, self._table)
        except KilledError:
            self._dead = True
            raise


class KilledTable(ManifestTable):
    """A table whose commits are killed. Before a commit and a recovery it looks for what former kills have left."""

    def __init__(self, location: Path) -> None:
        self._path = location
        super().__init__(location, disk=CommitDisk(location))

    def recover(self) -> Any:
        Kills.of_this_process().find_orphans(self._path)
        return super().recover()

    def commit(self, batch: Any) -> Any:
        Kills.of_this_process().find_orphans(self._path)
        return super().commit(batch)


class KilledCommitter(Committer):
    """A committer that is killed when its table has committed."""

    def commit(self, query_id: str, batch_id: int, written: list[Written]) -> None:
        super().commit(query_id, batch_id, written)
        Kills.of_this_process().reached(COMMIT[5], Path(self._table.location))


class KilledPlanner(PlanReader):
    """A planner that is killed."""

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        Kills.of_this_process().reached(PLANNER[0])
        return super().latestOffset(start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        Kills.of_this_process().reached(PLANNER[1])
        return super().partitions(start, end)


class KilledPlanSource(PlanSource):
    """The source of plan rows with a planner that is killed."""

    def streamReader(self, schema: StructType) -> PlanReader:
        reader = super().streamReader(schema)
        reader.__class__ = KilledPlanner
        return reader
