"""Runs the tests of another project on a broker of its own.

    python -m tests.suites aiokafka|faststream|concurrent|amgi|taskiq|arroyo CHECKOUT [ARGUMENTS OF PYTEST ...]
    python -m tests.suites librdkafka|franz-go|librdkafka-security CHECKOUT [TESTS ...]

CHECKOUT: a clone of the project, as its source distribution has no tests. Projects on aiokafka get
`kafkalite_sdk.compat.aiokafka` in its place; CLIENT=aiokafka runs frameworks with aiokafka itself. AGAINST chooses the
broker, see `tests.kit.brokers`; librdkafka and franz-go have three brokers, also with `kafkalite-secured`, and
librdkafka-security three with the listeners of its tests. The exit code is that of pytest.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.brokers import AGAINST, Broker, KafkaliteCluster, broker_under_test
from tests.kit.secured.logins import is_wanted
from tests.suites import librdkafka_security
from tests.suites.compiled import COMPILED
from tests.suites.frameworks import FRAMEWORKS, ON_AIOKAFKA
from tests.suites.listeners import broker_with_listeners

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {"num.partitions": "2"}
THREE_BROKERS = {"num.partitions": "4", "auto.create.topics.enable": "true", "transaction.state.log.min.isr": "2"}
AIOKAFKA_FILES = (
    "test_producer.py",
    "test_transactional_producer.py",
    "test_transactional_consumer.py",
    "test_consumer.py",
    "test_pep492.py",
    "test_admin.py",
    "test_partitioner.py",
)
HAS_LISTENERS = AGAINST == "kafkalite"  # those for aiokafka's tests of TLS and SASL
OURS = ["kafkalite_sdk.compat.aiokafka", "pytest"]


def aiokafka(checkout: Path, directory: Path) -> list[str]:
    """Copy the tests under another name than that of this package; return the arguments of pytest."""
    shutil.copytree(checkout / "tests", directory / "aiokafka_suite")
    (directory / "aiokafka_suite" / "conftest.py").unlink()
    plugins, files = ["-p", "tests.suites.aiokafka_plugin"], list(AIOKAFKA_FILES)
    if HAS_LISTENERS:
        plugins, files = [*plugins, "-p", "tests.suites.aiokafka_security"], [*files, "test_sasl.py"]
    return [*plugins, "-o", "markers=ssl: needs TLS", *(f"aiokafka_suite/{name}" for name in files)]


@contextmanager
def broker_of(suite: str, directory: Path) -> Iterator[tuple[Broker, dict[str, str]]]:
    """A running broker, and more variables of the process of the tests."""
    if suite == "aiokafka" and HAS_LISTENERS:
        with broker_with_listeners(directory, SETTINGS) as found:
            yield found
        return
    with broker_under_test(directory, SETTINGS if suite == "aiokafka" else {}) as broker:
        yield broker, {}


def command(suite: str, checkout: Path, directory: Path, address: str) -> list[str]:
    """Prepare the directory; return the module that is run, and the arguments of pytest."""
    if suite == "aiokafka":
        return ["pytest", *aiokafka(checkout, directory)]
    ours = suite in ON_AIOKAFKA and os.environ.get("CLIENT") != "aiokafka"
    return [*(OURS if ours else ["pytest"]), *FRAMEWORKS[suite](checkout, directory, address)]


def run_compiled(suite: str, checkout: Path, tests: tuple[str, ...]) -> int:
    """Run tests of a client that is compiled. Returns 0 if all have passed."""
    against = "kafkalite-secured-cluster" if is_wanted() else "kafkalite-cluster"
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "suite"
        directory.mkdir()
        if suite == "librdkafka-security":
            settings = librdkafka_security.SETTINGS
            with broker_with_listeners(Path(name) / "broker", settings, KafkaliteCluster) as (_, variables):
                return librdkafka_security.run(checkout, directory, variables, tests)
        with broker_under_test(Path(name) / "broker", THREE_BROKERS, against) as broker:
            return COMPILED[suite](checkout, directory, broker.address, tests)


def main(suite: str, checkout: str, *arguments: str) -> int:
    """Run a suite. Returns the exit code of pytest."""
    if suite in (*COMPILED, "librdkafka-security"):
        return run_compiled(suite, Path(checkout).resolve(), arguments)
    with tempfile.TemporaryDirectory() as name, broker_of(suite, Path(name) / "broker") as (broker, variables):
        directory = Path(name) / "suite"
        directory.mkdir()
        line = [sys.executable, "-m", *command(suite, Path(checkout).resolve(), directory, broker.address)]
        line += ["-p", "no:cacheprovider", "--rootdir", str(directory), *arguments]
        environment = {
            **os.environ,
            **variables,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "sdk")]),
            "KAFKALITE_SUITE_ADDRESS": broker.address,
            "DEFAULT_BROKERS": broker.address,
            "TEST_KAFKA_URL": broker.address,
            "KAFKA_BOOTSTRAP_SERVERS": broker.address,
        }
        return subprocess.run(line, cwd=directory, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
