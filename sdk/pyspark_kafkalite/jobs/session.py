"""Creates the Spark session of a job."""

import os
import re
from typing import TYPE_CHECKING

from pyspark_kafkalite.jobs.settings.job_file import JobFile
from pyspark_kafkalite.startup.variables import configure_cluster, configure_fast_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "master"
_COUNT = r"(?:\d+|\*)"
_MASTER = re.compile(
    rf"local|local\[{_COUNT}(?:,\s*\d+)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|spark://.+|k8s://.+|yarn"
)
"""SparkMasterRegex of SparkContext.scala, and the names of cluster managers."""
DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",  # an error of the job is one line; a file may set WARN
}


def master(job: JobFile | None) -> str:
    """Return the master: of the file, of spark-submit, else this machine."""
    given = None if job is None else job.spark.get(MASTER)
    return given or submitted_master() or "local[*]"


def submitted_master() -> str | None:
    """Return the master that spark-submit has set in this process; None = this process started by itself."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    from pyspark import SparkConf

    found: str | None = SparkConf().get("spark.master", None)
    return found


def is_local(address: str) -> bool:
    """Return whether the workers of a master run on this machine, with its environment."""
    return address.startswith("local[") or address == "local"


def master_problem(address: str) -> str | None:
    """Return what is wrong with the address of a master and what to do; None = Spark knows its form."""
    if _MASTER.fullmatch(address):
        return None
    return f"[spark] master is {address!r}, expected local[N], local[*], spark://HOST:PORT, yarn or k8s://HOST:PORT"


def configure_start(job: JobFile) -> None:
    """Set the environment variables with which the session of a job starts; PYSPARK_PYTHON is kept if it is set."""
    if is_local(master(job)) and submitted_master() is None:
        configure_fast_start()
    else:
        configure_cluster()


def create_session(job: JobFile) -> "SparkSession":
    """Create the session, or return the one that runs. Workers use this interpreter unless PYSPARK_PYTHON is set."""
    from pyspark.sql import SparkSession

    configure_start(job)
    builder = SparkSession.builder.appName(f"kafkalite {job.type} {job.name}")
    if MASTER in job.spark or submitted_master() is None:
        builder = builder.master(master(job))
    for name, value in {**DEFAULTS, **job.spark}.items():
        if name != MASTER:
            builder = builder.config(name, value)
    return builder.getOrCreate()
