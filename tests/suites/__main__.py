"""Runs the tests of another project with `kafkalite_sdk.compat.aiokafka` in aiokafka's place, on a broker of its own.

    python -m tests.suites aiokafka|faststream CHECKOUT [ARGUMENTS OF PYTEST ...]

CHECKOUT: a clone of the project, as its source distribution has no tests. AGAINST chooses the broker, see
`tests.kit.brokers`. The exit code is that of pytest.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.kit.brokers import broker_under_test

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {"num.partitions": "2"}
AIOKAFKA_FILES = ("test_producer.py", "test_consumer.py", "test_pep492.py", "test_admin.py", "test_partitioner.py")


def aiokafka(checkout: Path, directory: Path) -> list[str]:
    """Copy the tests under another name than that of this package; return the arguments of pytest."""
    shutil.copytree(checkout / "tests", directory / "aiokafka_suite")
    (directory / "aiokafka_suite" / "conftest.py").unlink()
    files = [f"aiokafka_suite/{name}" for name in AIOKAFKA_FILES]
    return ["-p", "tests.suites.aiokafka_plugin", "-o", "markers=ssl: needs TLS", *files]


SUITES: dict[str, Callable[[Path, Path], list[str]]] = {"aiokafka": aiokafka}


def main(suite: str, checkout: str, *arguments: str) -> int:
    """Run a suite. Returns the exit code of pytest."""
    with tempfile.TemporaryDirectory() as name, broker_under_test(Path(name) / "broker", SETTINGS) as broker:
        directory = Path(name) / "suite"
        directory.mkdir()
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(directory)]
        command += [*SUITES[suite](Path(checkout).resolve(), directory), *arguments]
        path = os.pathsep.join([str(ROOT), str(ROOT / "sdk")])
        environment = {**os.environ, "KAFKALITE_SUITE_ADDRESS": broker.address, "PYTHONPATH": path}
        return subprocess.run(command, cwd=directory, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
