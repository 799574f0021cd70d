"""`kafkalite token` against a broker with SASL."""

from __future__ import annotations

import json
import subprocess
from base64 import b64decode
from collections.abc import Callable, Iterator

import pytest

from kafkalite.testing.thread import BrokerThread
from tests.story.cli.conftest import COMMAND, ENVIRON, TIMEOUT_S
from tests.story.server.test_acls import STANDARD
from tests.story.server.test_delegation_tokens import SETTINGS

As = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(settings={**SETTINGS, "authorizer.class.name": STANDARD, "super.users": "User:alice"}) as broker:
        yield broker


@pytest.fixture
def run(broker: BrokerThread) -> As:
    """Runs the command as a user: `run("alice", "token", "list")`, or with more settings."""

    def call(user: str, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        login = user if "=" in user else f"sasl.mechanism=PLAIN sasl.username={user} sasl.password=secret"
        settings = [f"-X{each}" for each in ("security.protocol=SASL_PLAINTEXT", *login.split())]
        command = [*COMMAND, *args, "--bootstrap-server", broker.address, *settings]
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRON, timeout=TIMEOUT_S)
        assert done.returncode == code, f"{args} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done

    return call


def test_tokens_are_created_listed_used_renewed_and_removed(run: As) -> None:
    created = json.loads(run("alice", "token", "create", "--renewer", "bob", "--lifetime", "1h", "--json").stdout)
    token_id, hmac = created["token_id"], created["hmac"]
    assert (created["owner"], created["renewers"]) == ("User:alice", ["User:bob"]) and len(b64decode(hmac)) == 64
    listed = run("alice", "token", "list").stdout
    assert token_id in listed and hmac not in listed and "User:bob" in listed
    assert hmac in run("bob", "token", "list", "--hmac", "--owner", "alice").stdout
    assert token_id not in run("carol", "token", "list").stdout
    login = f"sasl.mechanism=SCRAM-SHA-512 sasl.username={token_id} sasl.password={hmac} sasl.tokenauth=true"
    assert run(login, "topic", "list").returncode == 0
    refused = run(login, "token", "create", code=2).stderr
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused
    assert run("bob", "token", "renew", token_id, "--for", "9h").stdout == f"expires: {created['ends']}\n"
    assert run("alice", "token", "expire", hmac, "--in", "30m").stdout.startswith("expires: 20")
    assert "no token with this id" in run("carol", "token", "renew", token_id, code=2).stderr
    assert run("alice", "token", "expire", token_id).stdout == "removed\n"
    assert token_id not in run("alice", "token", "list").stdout
    assert "'9 weeks' is not a duration" in run("alice", "token", "create", "--lifetime", "9 weeks", code=2).stderr


def test_a_token_of_another_user_needs_a_right_that_the_error_names(run: As) -> None:
    refused = run("bob", "token", "create", "--owner", "carol", code=2).stderr
    assert "`kafkalite acl add -u USER -o create-tokens --user OWNER` grants it" in refused
    run("alice", "acl", "add", "-u", "bob", "-o", "create-tokens", "--user", "carol")
    created = json.loads(run("bob", "token", "create", "--owner", "carol", "--json").stdout)
    assert (created["owner"], created["requester"]) == ("User:carol", "User:bob")
