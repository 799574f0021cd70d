"""`kafkalite pipeline`: run and inspect jobs of Spark.

The modules of Spark are imported by the commands that need them; `doctor`, `plan`, `verify`, `compact` and `repair`
start no JVM.
"""

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import click
from pyspark_kafkalite import submit
from pyspark_kafkalite.jobs.errors import explain_error
from pyspark_kafkalite.jobs.run_options import RunOptions
from pyspark_kafkalite.jobs.settings.job_file import JobFile, read_job

from kafkalite.cli.client_options import json_option, print_rows
from kafkalite.cli.failure import fail

if TYPE_CHECKING:
    from pyspark_kafkalite.jobs.checks import Finding

EXIT_PROBLEM = 1
MIB = 1 << 20

P = ParamSpec("P")


def one_line(work: Callable[P, None]) -> Callable[P, None]:
    """Turn the errors of a job into one line and exit code 2."""

    @wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            work(*args, **kwargs)
        except (click.ClickException, click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as error:
            line = explain_error(error)
            if line is None:
                raise
            fail(line)

    return run


job_argument = click.argument("job_file", metavar="JOB.toml", type=click.Path(dir_okay=False))


@click.group("pipeline")
def command() -> None:
    """Copy, aggregate and verify topics with Spark; needs `pip install 'kafkalite[spark]'` and Java 17.

    \b
    A job is a file, for example lake.toml:
      [job]
      type = "lake"
      [source]
      kafka.bootstrap.servers = "localhost:9092"
      subscribe = "orders"
      startingOffsets = "earliest"
      [table]
      path = "orders"

    \b
    The same file runs on a cluster:
      spark-submit "$(kafkalite pipeline script)" --config lake.toml

    \b
    Examples:
      kafkalite pipeline doctor lake.toml    find what would fail: Java, packages, topics, table, disks
      kafkalite pipeline plan lake.toml      show what would be read, without a change
      kafkalite pipeline run lake.toml       run the job until the end of the log
      kafkalite pipeline verify lake.toml    compare the table with the topic
      kafkalite pipeline compact lake.toml   replace small files by larger ones
      kafkalite pipeline repair lake.toml    read records of lost files from the topic again
      kafkalite pipeline cds-archive         make Spark start faster on this machine
    """


@command.command("run")
@job_argument
@click.option("--resume-from-table", is_flag=True, help="Continue the table with a new checkpoint.")
@click.option("--allow-gaps", is_flag=True, help="Record lost offsets and topics created again, and continue.")
@click.option("--report", type=click.Path(dir_okay=False), metavar="FILE", help="Write an HTML page with charts.")
@click.option("--quiet", is_flag=True, help="Show no progress on standard error.")
@one_line
def run_command(job_file: str, resume_from_table: bool, allow_gaps: bool, report: str | None, quiet: bool) -> None:
    """Run a job.

    It ends at the end of the log, or with `trigger = "1 minute"` at Ctrl-C. Each run continues the last one.

    \b
    Examples:
      kafkalite pipeline run lake.toml                        copy what is in the log
      kafkalite pipeline run lake.toml --resume-from-table    continue after the checkpoint was deleted
      kafkalite pipeline run lake.toml --report lake.html     write a page with rows, lag and phases
    """
    from pyspark_kafkalite.jobs.interruption import INTERRUPTED, interrupted_text
    from pyspark_kafkalite.jobs.runner import run_job

    job = read_job(job_file)
    options = RunOptions(resume_from_table, allow_gaps, report, bar=not quiet)
    try:
        code = run_job(job, options, click.echo)
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            click.echo(err=True)  # below the bar and the ^C
        click.echo(interrupted_text(job), err=True)
        code = INTERRUPTED
    if code:
        raise click.exceptions.Exit(code)


@command.command("plan")
@job_argument
@json_option
@one_line
def plan_command(job_file: str, as_json: bool) -> None:
    """Show what a job would read, without a change.

    Partitions with their offsets and bytes, tasks and files of the next micro-batch. No JVM is started.

    \b
    Examples:
      kafkalite pipeline plan lake.toml
    """
    from pyspark_kafkalite.jobs.format_count import format_count
    from pyspark_kafkalite.jobs.plan import plan_job

    job = with_source(read_job(job_file))
    plan = plan_job(job)
    columns = ("TOPIC", "PARTITION", "START-OFFSET", "LOG-END-OFFSET", "OFFSETS", "BYTES", "TASKS")
    print_rows(
        columns, [(*each.name, *each[1:3], each.end - each.start, *each[3:]) for each in plan.partitions], as_json
    )
    for loss in plan.losses:
        click.echo(f"lost: {loss}", err=True)
    if not as_json:
        by_date = job.table is not None and job.table.partition == "date"
        files = "a file for each task and date" if by_date else format_count(len(plan.splits), "file")
        click.echo(
            f"{format_count(plan.offsets, 'offset')}, {plan.bytes / MIB:.1f} MiB of the log, "
            f"{format_count(plan.batches, 'micro-batch', 'micro-batches')}; "
            f"the next one has {format_count(len(plan.splits), 'task')} and {files}"
        )


def with_source(job: JobFile) -> JobFile:
    """Return a job that reads topics; ends the command for another one."""
    if not job.source:
        fail(f"{job.path}: a job of type {job.type} reads no topic")
    return job


@command.command("verify")
@job_argument
@click.option("--full", is_flag=True, help="Read all offsets from the broker, also where nothing is missing.")
@json_option
@one_line
def verify_command(job_file: str, full: bool, as_json: bool) -> None:
    """Compare a table with its topics.

    Offsets must be contiguous, each record once in the files. Where records are missing, the offsets of the topic are
    read. Exit code 1: the table has a problem, which is named.

    \b
    Examples:
      kafkalite pipeline verify lake.toml
      kafkalite pipeline verify lake.toml --full    compare each offset with the topic
    """
    from pyspark_kafkalite.jobs.format_count import format_count
    from pyspark_kafkalite.jobs.verify import verify_job

    found = verify_job(with_source(read_job(job_file)), full=full)
    columns = ("TOPIC", "PARTITION", "START-OFFSET", "END-OFFSET", "ROWS", "LOST", "LOG-END-OFFSET", "LAG")
    rows = [(*each.name, each.start, each.end, each.rows, each.missing, each.log_end, each.lag) for each in found[0]]
    print_rows(columns, rows, as_json)
    for problem in found.problems:
        click.echo(f"problem: {problem}", err=True)
    if found.problems:
        raise click.exceptions.Exit(EXIT_PROBLEM)
    if not as_json:
        click.echo(f"{format_count(sum(each.rows for each in found.partitions), 'row')}, each offset once")


@command.command("compact")
@job_argument
@click.option("--target-mib", default=256, show_default=True, type=click.IntRange(1), help="Size of a file.")
@click.option(
    "--retention-hours",
    default=24.0,
    show_default=True,
    type=click.FloatRange(0),
    help="How long replaced files are kept, for readers that have begun before.",
)
@one_line
def compact_command(job_file: str, target_mib: int, retention_hours: float) -> None:
    """Replace the small files of a table by larger ones.

    It is one commit that keeps the offsets; the job may run meanwhile. No JVM is started.

    \b
    Examples:
      kafkalite pipeline compact lake.toml
      kafkalite pipeline compact lake.toml --target-mib 128 --retention-hours 1
    """
    from pyspark_kafkalite.jobs.compact import compact_job
    from pyspark_kafkalite.jobs.format_count import format_count

    found = compact_job(read_job(job_file), target_mib * MIB, retention_hours * 3600)
    sizes = f"{found.bytes_before / MIB:.1f} MiB, now {found.bytes_after / MIB:.1f} MiB"
    removed = format_count(found.removed, "old file")
    click.echo(f"{format_count(found.replaced, 'file')} replaced by {found.written}: {sizes}; {removed} deleted")


@command.command("repair")
@job_argument
@one_line
def repair_command(job_file: str) -> None:
    """Read the records of lost files from the topic again.

    For a table whose files were deleted. The offsets of lost files are known; the command reads them from the topic and
    replaces the files, as one commit that keeps the offsets. Stop the job first. If the topic does not have the records
    any more, or was created again, nothing is changed. No JVM is started.

    \b
    Examples:
      kafkalite pipeline repair lake.toml
      kafkalite pipeline verify lake.toml --full    compare each offset with the topic afterwards
    """
    from pyspark_kafkalite.jobs.format_count import format_count
    from pyspark_kafkalite.jobs.repair import repair_job

    found = repair_job(read_job(job_file))
    for each in found.lost:
        click.echo(f"lost: {each}")
    for topic, partition, start, end in found.spans:
        click.echo(f"read again: {topic}-{partition} offsets {start} to {end - 1}")
    replaced = f"{format_count(len(found.lost), 'lost file')} replaced, {format_count(found.rows, 'row')}"
    click.echo(replaced if found.lost else "no file is lost")


@command.command("doctor")
@click.argument("job_file", metavar="[JOB.toml]", required=False, type=click.Path(dir_okay=False))
@click.option("--executors", is_flag=True, help="Start Spark and check the Python of its executors, too.")
@one_line
def doctor_command(job_file: str | None, executors: bool) -> None:
    """Find what would fail a job.

    Checks Java, packages, the workers' Python; with a job file its topics, login, table, checkpoint and disks, and
    whether a topic was deleted and created again since checkpoint and table have its offsets. Exit code 1: there is a
    problem. Each one is a line with what to do.

    \b
    Examples:
      kafkalite pipeline doctor
      kafkalite pipeline doctor lake.toml --executors    check the Python of a cluster's executors, too
    """
    from pyspark_kafkalite.jobs.checks import executor_findings, findings

    job = None if job_file is None else read_job(job_file)
    if executors and job is None:
        fail("--executors needs a job file, which names the master")
    failed = [print_finding(each) for each in findings(job, RunOptions())]
    if executors and job is not None and not any(failed):
        failed = [print_finding(each) for each in executor_findings(job)]
    if any(failed):
        raise click.exceptions.Exit(EXIT_PROBLEM)


def print_finding(finding: "Finding") -> bool:
    """Print the result of a check; returns whether it is a problem."""
    click.echo(f"{'ok     ' if finding.problem is None else 'PROBLEM'}  {finding.check}: {finding.text}")
    return finding.problem is not None


@command.command("cds-archive")
@one_line
def cds_archive_command() -> None:
    """Write an archive with which Spark starts faster.

    It contains Spark's classes in the form of Java's class data sharing (CDS), and each `run` on this machine uses it.
    The command starts Spark for about a minute. The archive needs about 170 MB in ~/.cache/kafkalite, or in
    XDG_CACHE_HOME. Write it again after an update of Java or PySpark. To stop using it, delete the file that the
    command prints.

    \b
    Examples:
      kafkalite pipeline cds-archive
    """
    from pyspark_kafkalite.startup.cds_archive import archive_path, write_archive

    archive = archive_path()
    click.echo("Spark starts and loads its classes; this takes about a minute", err=True)
    write_archive(archive)
    click.echo(f"{archive}: {archive.stat().st_size / MIB:.0f} MiB")


@command.command("script")
def script_command() -> None:
    """Print the path of the script for spark-submit.

    \b
    Examples:
      kafkalite pipeline script
    """
    click.echo(str(Path(submit.__file__).with_name("kafkalite_job.py")))
