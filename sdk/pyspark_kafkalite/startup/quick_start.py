"""Sets the environment variables with which the driver and the workers of this machine start faster."""

import os
import sys
from pathlib import Path

from pyspark_kafkalite.startup.class_archive import archive_path, java_options

SCRIPT = Path(__file__).with_name("worker_python.sh")
WORKER_PYTHON, INTERPRETER = "PYSPARK_PYTHON", "KAFKALITE_WORKER_PYTHON"
JVM_OPTIONS = "SPARK_SUBMIT_OPTS"


def quick_start() -> None:
    """Prepare this process for a session with a local master, before the session is created.

        quick_start()
        spark = SparkSession.builder.master("local[*]").getOrCreate()

    Workers start without compiling PySpark again. The JVM uses the archive of `kafkalite pipeline class-archive`, if
    there is one. A variable PYSPARK_PYTHON that is set already is kept, and so are options in SPARK_SUBMIT_OPTS.
    """
    _use_script()
    archive = archive_path()
    if not archive.exists():
        return
    given, options = os.environ.get(JVM_OPTIONS, ""), java_options(archive)
    if options not in given:
        os.environ[JVM_OPTIONS] = f"{options} {given}".strip()  # the last one of an option applies


def _use_script() -> None:
    """Use the script as interpreter, unless Spark is another installation than this process imports."""
    if "SPARK_HOME" in os.environ or not os.access(SCRIPT, os.X_OK):
        os.environ.setdefault(WORKER_PYTHON, sys.executable)
    elif WORKER_PYTHON not in os.environ:
        os.environ |= {WORKER_PYTHON: str(SCRIPT), INTERPRETER: sys.executable}
