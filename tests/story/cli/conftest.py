"""The real command in processes of its own, against an embedded broker."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from kafkalite.testing.thread import BrokerThread
from tests.conftest import ENGINE, ENGINE_DIRECTORIES
from tests.story.server.test_acls import STANDARD
from tests.story.server.test_delegation_tokens import SETTINGS as TOKEN_SETTINGS

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
As = Callable[..., subprocess.CompletedProcess[str]]


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


@pytest.fixture(scope="module")
def secured_broker() -> Iterator[BrokerThread]:
    """A broker with SASL, ACLs, delegation tokens and the super user alice."""
    settings = {**TOKEN_SETTINGS, "authorizer.class.name": STANDARD, "super.users": "User:alice"}
    with BrokerThread(settings=settings) as running:
        yield running


@pytest.fixture
def as_user(secured_broker: BrokerThread) -> As:
    """Runs the command as a user: `as_user("alice", "token", "list")`, or with more settings."""

    def run(user: str, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        login = user if "=" in user else f"sasl.mechanism=PLAIN sasl.username={user} sasl.password=secret"
        settings = [f"-X{each}" for each in ("security.protocol=SASL_PLAINTEXT", *login.split())]
        command = [*COMMAND, *args, "--bootstrap-server", secured_broker.address, *settings]
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRON, timeout=TIMEOUT_S)
        assert done.returncode == code, f"{args} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done

    return run
