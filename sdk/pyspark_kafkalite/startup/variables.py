"""The environment variables with which the driver and the workers of this machine start faster."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from pyspark_kafkalite.startup.cds_archive import existing_archive, java_options

SCRIPT = Path(__file__).with_name("worker_python.sh")
PYSPARK_PYTHON, KAFKALITE_WORKER_PYTHON = "PYSPARK_PYTHON", "KAFKALITE_WORKER_PYTHON"
SPARK_SUBMIT_OPTS = "SPARK_SUBMIT_OPTS"


def configure_fast_start() -> None:
    """Set the variables of this process for a session with a local master, before the session is created.

        configure_fast_start()
        spark = SparkSession.builder.master("local[*]").getOrCreate()

    Workers run the script instead of the interpreter, and so do not compile PySpark again, if PYSPARK_PYTHON is not
    set and Spark is the PySpark that is installed for this interpreter. The JVM uses the archive of `kafkalite pipeline
    cds-archive`, if there is one; options in SPARK_SUBMIT_OPTS are kept.
    """
    if not os.environ.get(PYSPARK_PYTHON):
        _use_script()
    archive = existing_archive()
    options, others = "" if archive is None else java_options(archive), os.environ.get(SPARK_SUBMIT_OPTS, "")
    if options not in others:
        os.environ[SPARK_SUBMIT_OPTS] = f"{options} {others}".strip()  # the last one of an option applies


def configure_cluster() -> None:
    """Set PYSPARK_PYTHON for a session whose workers are on other machines, unless an interpreter is set."""
    if os.environ.get(PYSPARK_PYTHON) in (None, "", str(SCRIPT)):
        os.environ[PYSPARK_PYTHON] = sys.executable


def _use_script() -> None:
    if os.access(SCRIPT, os.X_OK) and _spark_is_installed():
        os.environ |= {PYSPARK_PYTHON: str(SCRIPT), KAFKALITE_WORKER_PYTHON: sys.executable}
    else:
        os.environ[PYSPARK_PYTHON] = sys.executable


def _spark_is_installed() -> bool:
    """Return whether the JVM will be that of this interpreter's PySpark, and its modules are not in zip files."""
    origins = [spec.origin for name in ("pyspark", "py4j") if (spec := find_spec(name)) is not None and spec.origin]
    if len(origins) < 2 or not all(map(os.path.isfile, origins)):
        return False
    installed = os.path.dirname(os.path.realpath(origins[0]))
    return os.path.realpath(os.environ.get("SPARK_HOME", installed)) == installed
