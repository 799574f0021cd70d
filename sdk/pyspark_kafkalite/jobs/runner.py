"""Runs a job: checks first, then Spark."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any

from pyspark_kafkalite.jobs import audit, replay
from pyspark_kafkalite.jobs.checks import check_before_run, check_executors
from pyspark_kafkalite.jobs.job_file import JobFile
from pyspark_kafkalite.jobs.progress_settings import shown
from pyspark_kafkalite.jobs.run_options import RunOptions
from pyspark_kafkalite.jobs.session import create_session
from pyspark_kafkalite.jobs.settings import AUDIT, REPLAY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

TERMINATED = 143  # exit code that a shell reports for a process ended by SIGTERM

Start = Callable[["SparkSession", JobFile, RunOptions], "StreamingQuery"]


def run_job(job: JobFile, options: RunOptions, report: Callable[[str], Any]) -> int:
    """Run a job until it ends; with an interval as trigger, until it is stopped.

    Arguments:
        job: checked.
        options: of this run.
        report: is called with lines about the result.

    Returns:
        The exit code: 1 = an audit has found a problem, else 0.

    Raises:
        JobError: a check has failed; nothing was started. See `errors.explained` for other errors.
    """
    check_before_run(job, options)
    with _stopped_by_sigterm():
        spark = create_session(job)
        try:
            check_executors(spark, job)
            return run_in(spark, job, options, report)
        finally:
            spark.stop()


def run_in(spark: "SparkSession", job: JobFile, options: RunOptions, report: Callable[[str], Any]) -> int:
    """Run a job in a session; see `run_job`, without its checks."""
    if job.type == AUDIT:
        return audit.run(spark, job, report)
    if job.type == REPLAY:
        replay.run(spark, job, report)
        return 0
    # The module of a streaming job has the name of its type.
    start: Start = import_module(f"pyspark_kafkalite.jobs.{job.type}").start
    with shown(spark, job.progress, options, job.name, job.source_options().client, report) as wait_for_end:
        query = start(spark, job, options)
        try:
            query.awaitTermination()
        finally:
            query.stop()
            wait_for_end()
    report(_summary(job, query))
    return 0


def _summary(job: JobFile, query: "StreamingQuery") -> str:
    settings = job.table
    if settings is None or settings.format == "delta":
        return f"{job.type} {job.name}: all records are processed"
    from pyspark_kafkalite.tables.manifest import ManifestTable

    table = ManifestTable(settings.path, create=False)
    mine = [each for each in table.commits() if each.query_id == query.id]
    rows = sum(each.rows for commit in mine for each in commit.ranges)
    return (
        f"{job.type} {job.name}: {rows} records in {len(mine)} commits, {len(table.files())} files in {table.location}"
    )


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Exit at SIGTERM by an exception, so that Spark and its workers end."""

    def terminate(_number: int, _frame: FrameType | None) -> None:
        sys.exit(TERMINATED)

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
