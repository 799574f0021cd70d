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
from pyspark_kafkalite.tables.model import NO_COMMIT, Commit, QueryTotal, Table

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
    earlier = _last_commit(job)
    with shown(spark, job.progress, options, job.name, job.source_options().client, report) as wait_for_end:
        query = start(spark, job, options)
        try:
            wait(query)
        finally:
            query.stop()
            wait_for_end()
    report(_summary(job, query, earlier))
    return 0


def _last_commit(job: JobFile) -> Commit | None:
    """The last commit of the table of a job; None = it is empty, or does not exist."""
    table = None if job.table is None else existing_table(job.table)
    return None if table is None else table.last_commit()


def _summary(job: JobFile, query: "StreamingQuery", earlier: Commit | None) -> str:
    """What a run has added to its table.

    Arguments:
        job: of the run.
        query: of the run.
        earlier: the last commit before it.
    """
    table = None if job.table is None else existing_table(job.table)
    if table is None:
        return f"{job.type} {job.name}: all records are processed"
    total, complete = _total(table, query.id, table.last_commit())
    before, _ = _total(table, query.id, earlier)
    commits = total.commits - before.commits
    added = format_count(total.rows - before.rows, "new record")
    added += f" in {format_count(commits, 'commit')}" if commits else ""
    files = format_count(len(table.files()), "file")
    whole = f"{format_count(total.rows, 'record')} in {format_count(total.commits, 'commit')}, {files}"
    return f"{job.type} {job.name}: {added}; {table.location}: {'' if complete else 'at least '}{whole}"


def _total(table: Table, query_id: str, last: Commit | None) -> tuple[QueryTotal, bool]:
    """What a query has added up to a commit, and whether this is all; some commits may be missing only of an earlier
    version, which has not counted.
    """
    if last is None or last.query_id != query_id:
        return QueryTotal(0, 0), True
    if last.total is not None:
        return last.total, True
    commits = [each for each in table.commits() if each.sequence <= last.sequence]
    mine = [each for each in commits if each.query_id == query_id]
    rows = sum(each.rows for commit in mine for each in commit.ranges)
    return QueryTotal(rows, len(mine)), commits[0].sequence == NO_COMMIT + 1
