"""The real command in processes of its own, against an embedded broker."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from kafkalite.testing.thread import BrokerThread
from tests.conftest import ENGINE, ENGINE_DIRECTORIES

COMMAND = (sys.executable, "-m", "kafkalite")
ENVIRON = {
    **{key: value for key, value in os.environ.items() if not key.startswith("KAFKALITE_")},
    "PYTHONPATH": str(ENGINE_DIRECTORIES[ENGINE]),
}
TIMEOUT_S = 120
# Members resolve patterns with a heartbeat.
SETTINGS = {
    "auto.create.topics.enable": "true",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
}

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def kafkalite(broker: BrokerThread) -> Run:
    """Runs the command against the broker: `kafkalite("topic", "list", code=0)`; fails on any other exit code."""

    def run(*args: str, code: int = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *args, "--bootstrap-server", broker.address]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=ENVIRON, timeout=TIMEOUT_S)
        assert done.returncode == code, f"{args} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done

    return run
