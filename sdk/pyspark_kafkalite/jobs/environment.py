"""Environment of this process and Spark's workers: Java, Python and packages. Needs neither PySpark nor a JVM."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from kafkalite._version import VERSION

JAVA_LEAST = 17
PROBE_TIMEOUT_S = 60
REQUIRED: Mapping[str, tuple[tuple[int, ...], tuple[int, ...] | None]] = {
    "pyspark": ((4, 2), None),
    "pyarrow": ((18,), (27,)),
    "pandas": ((2, 2), (3,)),
}
"""For each package the least version, and the first one that is not supported; as in the extra `spark`."""

INSTALL = "install the extra: pip install 'kafkalite[spark]'"

PROBE = """
def probe(_=None):
    import importlib.metadata
    import socket
    import sys
    found = {"host": socket.gethostname(), "executable": sys.executable, "python": "%d.%d" % sys.version_info[:2]}
    for name in ("pyspark", "pyarrow", "pandas"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    try:
        import pyspark_kafkalite
        import kafkalite_sdk.blocking
        import kafkalite._version
        found["kafkalite"] = kafkalite._version.VERSION
    except ImportError as error:
        found["kafkalite"], found["error"] = None, str(error)
    return [found]
"""
"""Runs in the workers, where kafkalite may be missing: so it is text and imports nothing of it."""


def java_problem(command: str | None) -> str | None:
    """Return what is wrong with Java; None = nothing.

    Arguments:
        command: its path, None = there is none.
    """
    if command is None:
        home = os.environ.get("JAVA_HOME")
        missing = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java in PATH"
        return f"{missing}; install Java {JAVA_LEAST}, or set JAVA_HOME"
    done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False, timeout=PROBE_TIMEOUT_S)
    found = re.search(r'version "(\d+)', done.stderr + done.stdout)
    if found is None:
        return f"{command} -version fails: {' '.join(done.stderr.split())[:200]}; install Java {JAVA_LEAST}"
    if int(found[1]) < JAVA_LEAST:
        return f"{command} is version {found[1]}, expected at least {JAVA_LEAST}; set JAVA_HOME to a newer one"
    return None


def package_problem(name: str, version: str | None) -> str | None:
    """Return what is wrong with a package; None = nothing.

    Arguments:
        name: one of `REQUIRED`.
        version: that is installed, None = it is missing.
    """
    least, beyond = REQUIRED[name]
    wanted = f"at least {_dotted(least)}" + (f" and below {_dotted(beyond)}" if beyond else "")
    if version is None:
        return f"{name} is not installed, expected {wanted}; {INSTALL}"
    found = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    if found < least or (beyond is not None and found >= beyond):
        return f"{name} is version {version}, expected {wanted}; {INSTALL}"
    return None


def worker_problem(found: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a worker; None = nothing.

    Arguments:
        found: what `PROBE` returned there.
    """
    where = f"the workers' Python {found['executable']} on {found['host']}"
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    step = "set PYSPARK_PYTHON to an interpreter with the same packages, or ship this environment with --archives"
    if found["python"] != here:
        return f"{where} is version {found['python']}, the driver's is {here}; {step}"
    if found["kafkalite"] is None:
        return f"{where} cannot import kafkalite: {found['error']}; {step}"
    if found["kafkalite"] != VERSION:
        return f"{where} has kafkalite {found['kafkalite']}, the driver has {VERSION}; {step}"
    problems = (package_problem(name, found[name]) for name in REQUIRED)
    return next((f"{where}: {problem}" for problem in problems if problem), None)


def local_worker(python: str) -> dict[str, Any]:
    """Run the probe in the interpreter of local workers.

    Arguments:
        python: path or name of the interpreter.

    Raises:
        OSError: it cannot be started. ValueError: it fails.
    """
    command = [python, "-c", f"{PROBE}\nimport json\nprint(json.dumps(probe()[0]))"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PROBE_TIMEOUT_S)
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise ValueError(f"{python} fails: {' '.join(done.stderr.split())[-200:]}") from None
    return found


def worker_python() -> str:
    """Return the interpreter of the workers: PYSPARK_PYTHON, else that of this process."""
    return os.environ.get("PYSPARK_PYTHON") or sys.executable


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
