"""Jobs on topics and tables, described by one TOML file: `kafkalite pipeline run JOB.toml`, or spark-submit.

Importing the package does not import PySpark: files are read and checked, plans, verification and the doctor work
without a JVM.
"""

from pyspark_kafkalite.jobs.errors import JobError
from pyspark_kafkalite.jobs.settings.job_file import JobFile, read_job

__all__ = ["JobError", "JobFile", "read_job"]
