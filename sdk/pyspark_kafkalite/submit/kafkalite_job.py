"""Runs a job in spark-submit: `spark-submit kafkalite_job.py --config JOB.toml`."""

import sys

from pyspark_kafkalite.jobs.main import main

if __name__ == "__main__":
    sys.exit(main())
