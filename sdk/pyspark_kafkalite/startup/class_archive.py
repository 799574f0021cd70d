"""An archive of the classes that a driver of Spark loads, with which the next drivers start faster.

It is an archive of Java's class data sharing (JEP 350). Java ignores one of another Java or of another class path. The
driver whose classes are archived is `class_driver`.
"""

import hashlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from pyspark_kafkalite.startup.java import java_command

DRIVER = "pyspark_kafkalite.startup.class_driver"
DRIVER_TIMEOUT_S = 600
NO_WARNINGS = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Java would write to standard output that an archive does not fit."""


def archive_path() -> Path:
    """Return where the archive for this Java and this Spark is, or would be written."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    java = os.path.realpath(java_command() or "java")
    key = hashlib.sha256(f"{java}\n{_spark_home()}".encode()).hexdigest()[:12]
    return Path(cache, "kafkalite", f"spark-classes-{key}.jsa")


def java_options(archive: Path) -> str:
    """Return the options of a JVM that uses an archive."""
    return f"{NO_WARNINGS} -Xshare:auto -XX:SharedArchiveFile={archive}"


def write_archive(archive: Path, options: str = "") -> None:
    """Run a driver and write the classes that it loads; it takes about a minute.

    Arguments:
        archive: file; it is replaced when the new one is complete.
        options: more options of the JVM.

    Raises:
        OSError: Spark does not start, or the directory cannot be written. TimeoutExpired: after 10 minutes.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial = archive.with_suffix(f".{os.getpid()}")
    environment = {
        **os.environ,
        "SPARK_SUBMIT_OPTS": f"{options} {NO_WARNINGS} -XX:ArchiveClassesAtExit={partial}",
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [sys.executable, "-m", DRIVER]
    done = subprocess.run(
        command, env=environment, check=False, capture_output=True, text=True, timeout=DRIVER_TIMEOUT_S
    )
    if done.returncode or not partial.exists():
        reason = (done.stderr.strip().splitlines() or ["Java has written no file"])[-1]
        raise ChildProcessError(f"no archive was written: {reason}; `kafkalite pipeline doctor` finds the cause")
    partial.replace(archive)


def _spark_home() -> str:
    """Return the directory of Spark: that of the variable, else that of PySpark."""
    found = find_spec("pyspark")
    installed = "" if found is None or found.origin is None else os.path.dirname(found.origin)
    return os.environ.get("SPARK_HOME") or installed
