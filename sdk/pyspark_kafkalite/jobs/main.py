"""The entry of a job for spark-submit; `kafkalite pipeline run` calls the same functions."""

import argparse
import sys
from collections.abc import Sequence

from pyspark_kafkalite.jobs.errors import explain_error
from pyspark_kafkalite.jobs.interruption import INTERRUPTED, interrupted_text
from pyspark_kafkalite.jobs.run_options import RunOptions
from pyspark_kafkalite.jobs.runner import run_job
from pyspark_kafkalite.jobs.settings.job_file import JobFile, read_job

EXIT_WRONG = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job of `--config`.

    Arguments:
        arguments: of the command; None = those of the process.

    Returns:
        The exit code: 1 = an audit has found a problem; 2 after an error and 130 after SIGINT, with a line on standard
        error.
    """
    parser = argparse.ArgumentParser(prog="kafkalite_job.py", description="Run a job of kafkalite in Spark.")
    parser.add_argument("--config", required=True, metavar="JOB.toml", help="the job file")
    parser.add_argument("--resume-from-table", action="store_true", help="continue the table with a new checkpoint")
    parser.add_argument(
        "--allow-gaps", action="store_true", help="record lost offsets and recreated topics, and continue"
    )
    parser.add_argument("--report", metavar="FILE", help="write an HTML page with charts")
    given = parser.parse_args(arguments)
    options = RunOptions(given.resume_from_table, given.allow_gaps, given.report)
    try:
        return _run(read_job(given.config), options)
    except Exception as error:
        line = explain_error(error)
        if line is None:
            raise
        print(f"kafkalite: {line}", file=sys.stderr)
        return EXIT_WRONG


def _run(job: JobFile, options: RunOptions) -> int:
    try:
        return run_job(job, options, print)
    except KeyboardInterrupt:
        print(interrupted_text(job), file=sys.stderr)
        return INTERRUPTED
