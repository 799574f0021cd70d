"""Runs a job: checks first, then Spark."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark_kafkalite.jobs import audit, replay
from pyspark_kafkalite.jobs.checks import check_before_run, check_executors
from pyspark_kafkalite.jobs.format_count import format_count
from pyspark_kafkalite.jobs.interruption import interruption, silence_java
from pyspark_kafkalite.jobs.run_options import RunOptions
from pyspark_kafkalite.jobs.session import create_session
from pyspark_kafkalite.jobs.settings.job_file import JobFile
from pyspark_kafkalite.jobs.settings.job_settings import AUDIT, REPLAY
from pyspark_kafkalite.jobs.settings.progress_settings import shown
from pyspark_kafkalite.jobs.tables import existing_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

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
        JobError: a check has failed; nothing was started. See `errors.explain_error` for other errors.
    """
    check_before_run(job, options)
    with interruption() as signals:
        spark = create_session(job)
        signals.install()
        try:
            check_executors(spark, job)
            return run_in(spark, job, options, report, lambda query: signals.wait(query, lambda: silence_java(spark)))
        finally:
            spark.stop()


def run_in(
    spark: "SparkSession",
    job: JobFile,
    options: RunOptions,
    report: Callable[[str], Any],
    wait: "Callable[[StreamingQuery], object]" = lambda query: query.awaitTermination(),
) -> int:
    """Run a job in a session, without the checks of `run_job`.

    Arguments:
        spark: the session.
        job: the job file.
        options: of the command line.
        report: called with each line for the user.
        wait: called with a running query; returns at its end.

    Returns the exit code.
    """
    if job.type == AUDIT:
        return audit.run(spark, job, report)
    if job.type == REPLAY:
        replay.run(spark, job, report)
        return 0
    # The module of a streaming job has the name of its type.
    start: Start = import_module(f"pyspark_kafkalite.jobs.{job.type}").start
    earlier = _commits_of(job)
    with shown(spark, job.progress, options, job.name, job.source_options().client, report) as wait_for_end:
        query = start(spark, job, options)
        try:
            wait(query)
        finally:
            query.stop()
            wait_for_end()
    report(_summary(job, query, earlier))
    return 0


def _commits_of(job: JobFile) -> int:
    """The number of commits of a table before the run; 0 = it does not exist."""
    table = None if job.table is None else existing_table(job.table)
    last = None if table is None else table.last_commit()
    return 0 if last is None else last.sequence + 1


def _summary(job: JobFile, query: "StreamingQuery", earlier: int) -> str:
    """What a run has added to its table.

    Arguments:
        job: of the run.
        query: of the run.
        earlier: number of commits before it.
    """
    table = None if job.table is None else existing_table(job.table)
    if table is None:
        return f"{job.type} {job.name}: all records are processed"
    mine = [each for each in table.commits() if each.query_id == query.id]
    new = [each for each in mine if each.sequence >= earlier]
    rows, all_rows = (sum(each.rows for commit in commits for each in commit.ranges) for commits in (new, mine))
    added = format_count(rows, "new record") + (f" in {format_count(len(new), 'commit')}" if new else "")
    files = format_count(len(table.files()), "file")
    whole = f"{format_count(all_rows, 'record')} in {format_count(len(mine), 'commit')}, {files}"
    return f"{job.type} {job.name}: {added}; {table.location}: {whole}"
