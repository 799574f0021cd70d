"""An archive of the classes that a driver of Spark loads, with which the next drivers start faster.

It is an archive of Java's class data sharing (CDS, JEP 350). Java ignores one of another Java or of another class path.
The driver whose classes are archived is `training_run`.
"""

import hashlib
import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from pyspark_kafkalite.startup.java import java_command

TRAINING_RUN = "pyspark_kafkalite.startup.training_run"
TIMEOUT_S = 600
NO_WARNINGS = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Java would write to standard output that an archive does not fit."""

_PLAIN = re.compile(r"[\w@%+,./~-]+")  # options of a JVM are separated at spaces, its archives at colons


def archive_path() -> Path:
    """Return where the archive for this Java and this PySpark is, or would be written.

    Raises:
        OSError: the directory cannot be used. RuntimeError: there is no home directory.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    directory = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    key = hashlib.sha256("\n".join([*_java(), *_spark()]).encode()).hexdigest()[:12]
    path = directory / "kafkalite" / f"spark-{key}.jsa"
    if not _PLAIN.fullmatch(str(path)):
        raise OSError(f"{directory}: Java cannot use an archive at this path; set XDG_CACHE_HOME to one without spaces")
    return path


def existing_archive() -> Path | None:
    """Return the archive; None = there is none that can be read, and sessions start without it."""
    try:
        path = archive_path()
    except (OSError, RuntimeError):
        return None
    return path if os.access(path, os.R_OK) else None


def java_options(archive: Path) -> str:
    """Return the options of a JVM that uses an archive."""
    return f"{NO_WARNINGS} -Xshare:auto -XX:SharedArchiveFile={archive}"


def write_archive(archive: Path, options: str | None = None) -> None:
    """Run a driver and write the classes that it loads; it takes about a minute.

    Arguments:
        archive: file; it is replaced when the new one is complete.
        options: more options of the JVM; None = those of SPARK_SUBMIT_OPTS.

    Raises:
        OSError: no archive was written, or not within 10 minutes.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
        partial = Path(directory, archive.name)
        others = os.environ.get("SPARK_SUBMIT_OPTS", "") if options is None else options
        variables = {"SPARK_SUBMIT_OPTS": f"{others} -XX:ArchiveClassesAtExit={partial}"}
        output = _run({**os.environ, **variables, "PYSPARK_PYTHON": sys.executable})
        if not partial.exists():
            raise OSError(f"Java has written no archive: {output}")
        partial.replace(archive)


def _run(environment: dict[str, str]) -> str:
    """Run the driver and return the line of its output that is a reason. Raises OSError: it has failed."""
    command = [sys.executable, "-m", TRAINING_RUN]
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(
        command, env=environment, stdout=pipe, stderr=both, text=True, errors="replace", start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise OSError(f"Spark has not ended within {TIMEOUT_S} s; run it again with less load") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # the JVM, too, which would write later
    lines = output.strip().splitlines() or ["no output"]
    if process.returncode:
        raise OSError(f"Spark has failed: {lines[-1]}")
    return next((line for line in lines if "non-empty directory" in line or "[cds" in line), lines[-1])


def _java() -> list[str]:
    """Return what changes with Java: path, size and time of its modules."""
    command = os.path.realpath(java_command() or "java")
    modules = Path(command).parents[1] / "lib/modules"
    if not modules.exists():
        return [command]
    found = modules.stat()
    return [command, str(found.st_size), str(found.st_mtime_ns)]


def _spark() -> list[str]:
    """Return what changes with Spark: its directory and the version of PySpark."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return []
    home = os.environ.get("SPARK_HOME") or os.path.dirname(found.origin)
    try:
        return [home, importlib.metadata.version("pyspark")]
    except importlib.metadata.PackageNotFoundError:  # of a directory in PYTHONPATH
        return [home]
