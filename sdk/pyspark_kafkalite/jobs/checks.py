"""The checks of `doctor`, which every run of a job makes before it starts Spark.

Each check finds one cause of a failure: Java, packages, the workers' Python, the cluster, its topics and the login, the
table, the checkpoint, a topic that was created again, the space on disks.
"""

import importlib.metadata
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.errors import KafkaError
from pyspark_kafkalite.clients import close_clients
from pyspark_kafkalite.cluster import Cluster
from pyspark_kafkalite.errors import OptionError
from pyspark_kafkalite.jobs import checkpoint, environment
from pyspark_kafkalite.jobs.errors import JobError
from pyspark_kafkalite.jobs.run_options import RunOptions
from pyspark_kafkalite.jobs.session import is_local, master, master_problem
from pyspark_kafkalite.jobs.settings.job_file import JobFile
from pyspark_kafkalite.jobs.settings.job_settings import AUDIT, LAKE, REPLAY
from pyspark_kafkalite.jobs.tables import existing_table
from pyspark_kafkalite.losses import find_recreated, recreated_text
from pyspark_kafkalite.startup.cds_archive import existing_archive
from pyspark_kafkalite.startup.java import java_command
from pyspark_kafkalite.stream_offsets import StreamOffset
from pyspark_kafkalite.tables.errors import TableError
from pyspark_kafkalite.tables.manifest import ManifestTable
from pyspark_kafkalite.tables.partitions import check_layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE_TIME = (AUDIT, REPLAY)
"""Types of jobs without a checkpoint."""

LEAST_FREE_BYTES = 64 << 20
OTHER_DIRECTORIES = "choose another table and another checkpoint"
RECREATED_STEP = (
    "to copy the new topic from its start behind the rows of the former one, run with an empty checkpoint directory, "
    f"--resume-from-table and --allow-gaps; else {OTHER_DIRECTORIES}"
)

ARCHIVE_STEP = "none; `kafkalite pipeline cds-archive` writes it, and Spark starts faster"


class Finding(NamedTuple):
    """The result of a check.

    Attributes:
        check: its name.
        detail: what was found.
        problem: what is wrong and what to do; None = nothing.
    """

    check: str
    detail: str
    problem: str | None = None

    @property
    def text(self) -> str:
        """The problem, else what was found."""
        return self.detail if self.problem is None else self.problem


def check_before_run(job: JobFile, options: RunOptions) -> None:
    """Raise JobError for the first problem that would fail a job."""
    for each in findings(job, options):
        if each.problem is not None:
            raise JobError(each.problem)


def findings(job: JobFile | None, options: RunOptions) -> Iterator[Finding]:
    """Yield the result of each check; those of a job only if there is one. No JVM is started."""
    yield _java()
    for name in environment.REQUIRED:
        version = _version(name)
        yield Finding(name, version or "missing", environment.package_problem(name, version))
    if master_problem(master(job)) is not None:
        yield Finding("master", master(job), master_problem(master(job)))
        return
    if is_local(master(job)):
        yield _local_workers()
        yield _cds_archive()
    else:
        yield _driver_python()
    if job is None:
        return
    topics = _checked("topics", lambda: _topics(job), (KafkaError, OptionError)) if job.source else None
    if topics is not None:
        yield topics
    if job.table is not None:
        yield _checked("table", lambda: _table(job), (TableError, ImportError, OSError))
    if job.type in ONE_TIME:
        return
    of_checkpoint = _checked(
        "checkpoint", lambda: _checkpoint(job, options), (JobError, TableError, ImportError, OSError)
    )
    yield of_checkpoint
    if topics is not None and topics.problem is None and of_checkpoint.problem is None:
        yield _checked("topic ids", lambda: _topic_ids(job, options), (JobError, KafkaError, OptionError, TableError))
    for directory in _directories(job):
        yield disk_finding(directory)


def check_executors(spark: "SparkSession", job: JobFile) -> None:
    """Raise JobError if the environment of an executor differs; those of a local master were checked before."""
    if not is_local(master(job)):
        for each in executor_findings_in(spark):
            if each.problem is not None:
                raise JobError(each.problem)


def executor_findings(job: JobFile) -> list[Finding]:
    """Start Spark and return the environment of each Python of its executors."""
    from pyspark_kafkalite.jobs.session import create_session

    spark = create_session(job)
    try:
        return executor_findings_in(spark)
    finally:
        spark.stop()


def executor_findings_in(spark: "SparkSession") -> list[Finding]:
    """Return the environment of each Python of the executors of a session."""
    names: dict[str, object] = {"__name__": "__main__"}  # a function of `__main__` is shipped as code
    exec(environment.PROBE, names)
    context = spark.sparkContext
    count = max(context.defaultParallelism, 2)
    found = context.parallelize(range(count), count).mapPartitions(names["probe"]).collect()
    distinct = {(each["host"], each["executable"]): each for each in found}
    return [
        Finding("executor", f"{host} {python}", environment.worker_problem(distinct[host, python]))
        for host, python in sorted(distinct)
    ]


def disk_finding(directory: str, free: Callable[[str], int] = lambda path: shutil.disk_usage(path).free) -> Finding:
    """Check the space on the disk of a directory, which may not exist yet.

    Arguments:
        directory: where the job writes.
        free: returns the free bytes of an existing path.
    """
    path = Path(directory).absolute()
    while not path.exists():
        path = path.parent
    left = free(str(path))
    detail = f"{directory}: {left >> 20} MiB are free"
    few = f"{detail}, expected at least {LEAST_FREE_BYTES >> 20}; free space, or choose another directory"
    return Finding("disk", detail, few if left < LEAST_FREE_BYTES else None)


def _java() -> Finding:
    command = java_command()
    return Finding("java", command or "missing", environment.java_problem(command))


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _local_workers() -> Finding:
    python = environment.worker_python()
    try:
        found = environment.local_worker(python)
    except (OSError, ValueError) as error:
        text = f"PYSPARK_PYTHON is {python}, which does not work: {error}; set it to an interpreter with kafkalite"
        return Finding("workers", python, text)
    return Finding("workers", python, environment.worker_problem(found))


def _driver_python() -> Finding:
    """Check the interpreter of a cluster's workers on this machine, where the driver plans with it."""
    python = environment.worker_python()
    step = "install the same environment on this machine"
    if not os.path.isabs(python):
        step = "unpack the archive of --archives here, too: mkdir env && tar -xzf env.tar.gz -C env"
    missing = f"PYSPARK_PYTHON is {python}, which does not exist where the driver runs and plans with it; {step}"
    return Finding("driver python", python, None if shutil.which(python) else missing)


def _cds_archive() -> Finding:
    archive = existing_archive()
    return Finding("CDS archive", ARCHIVE_STEP if archive is None else str(archive))


def _checked(name: str, check: Callable[[], str], errors: tuple[type[Exception], ...]) -> Finding:
    try:
        return Finding(name, check())
    except errors as error:
        return Finding(name, "failed", " ".join(str(error).split()))


def _topics(job: JobFile) -> str:
    try:
        found = Cluster(replace(job.source_options(), retries=0)).partitions()
    finally:
        close_clients()
    if not found.partitions:
        raise OptionError("subscribePattern", "no topic matches it; `kafkalite topic list` lists the topics")
    topics = sorted({each.topic for each in found.partitions})
    return f"{', '.join(topics)}: {len(found.partitions)} partitions"


def _topic_ids(job: JobFile, options: RunOptions) -> str:
    """Compare the ids of the topics with those of the offsets in table and checkpoint."""
    source = job.source_options()
    try:
        found = Cluster(replace(source, retries=0)).partitions().topic_ids
    finally:
        close_clients()
    of_checkpoint = checkpoint.last_offset(job.checkpoint)
    of_table = _end_of_table(job)
    read = _recreated_texts(f"checkpoint {job.checkpoint}", of_checkpoint, found)
    copied = [] if job.table is None else _recreated_texts(f"table {job.table.path}", of_table, found)
    texts = "; ".join([*read, *copied])
    if (read and source.fail_on_data_loss) or (copied and not (job.type == LAKE and options.allow_gaps)):
        raise JobError(f"{texts}; {RECREATED_STEP if job.type == LAKE else OTHER_DIRECTORIES}")
    return texts or "those of the topics when they were read"


def _end_of_table(job: JobFile) -> StreamOffset:
    """Where the table of a job ends, with the ids of its topics."""
    table = None if job.table is None else existing_table(job.table)
    last = None if table is None else table.last_commit()
    return StreamOffset({}) if last is None else StreamOffset(last.ends, last.topic_ids)


def _recreated_texts(origin: str, known: StreamOffset, found: Mapping[str, str]) -> list[str]:
    """Name the topics that were created again since offsets were stored."""
    topics = find_recreated(known.topic_ids, found)
    return [f"{origin}: {recreated_text(each, known.offsets)}" for each in topics]


def _table(job: JobFile) -> str:
    settings = job.required_table
    table = existing_table(settings)
    if table is None:
        return f"{settings.path}: it will be created"
    if job.type == LAKE and isinstance(table, ManifestTable):
        check_layout(table.location, list(table.state().files.values())[:1], settings.partition)
    last = table.last_commit()
    return f"{table.location}: {'empty' if last is None else f'{last.sequence + 1} commits'}"


def _checkpoint(job: JobFile, options: RunOptions) -> str:
    found = checkpoint.query_id(job.checkpoint)
    table = None if job.table is None else existing_table(job.table)
    last = None if table is None else table.last_commit()
    if table is not None and last is not None:
        resume = {"resume": options.resume_from_table, "resumable": job.window is None}
        checkpoint.check_owner(job.checkpoint, table.location, last.query_id, **resume)
    if job.source:
        checkpoint.check_topics(job.checkpoint, job.source_options())
    return f"{job.checkpoint}: {'it will be created' if found is None else f'query {found}'}"


def _directories(job: JobFile) -> list[str]:
    local = job.spark.get("spark.local.dir") or os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    written = [job.checkpoint, *([job.table.path] if job.table is not None else []), *local.split(",")]
    return [each for each in dict.fromkeys(written) if "://" not in each]
