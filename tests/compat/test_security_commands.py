"""`kafkalite acl`, `quota`, `user` and `token` at the broker under test: ours, Apache Kafka 4.4 or 3.9.

Apache Kafka in KRaft mode applies a change after its response: what a command lists is waited for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafkalite.cli.main import main
from tests.kit.brokers import AGAINST, KINDS, wait_until
from tests.kit.ports import free_port

pytestmark = pytest.mark.xdist_group("security commands")
HOST = "127.0.0.1"
PASSWORD = "correct horse"
MODULE = "org.apache.kafka.common.security"
AUTHORIZERS = {"kafka-zookeeper": "kafka.security.authorizer.AclAuthorizer"}
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS = {
    "super.users": "User:ANONYMOUS;User:root",
    "authorizer.class.name": AUTHORIZERS.get(AGAINST, STANDARD),
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config": f"{MODULE}.plain.PlainLoginModule required "
    + " ".join(f'user_{name}="{PASSWORD}"' for name in ("alice", "bob", "root"))
    + ";",
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
    "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
    "delegation.token.secret.key": "the key of all brokers",
}
Rows = list[dict[str, Any]]


class Commands:
    """Runs commands at a broker.

    Arguments:
        plaintext: address of its listener without security, for a super user.
        sasl: address of its listener with SASL.
    """

    def __init__(self, plaintext: str, sasl: str) -> None:
        self._plaintext = plaintext
        self._sasl = sasl

    def run(self, *args: str, login: str = "", code: int = 0) -> Result:
        """Run a command: as the super user, or with the settings of a login."""
        settings = [f"-X{each}" for each in ("security.protocol=SASL_PLAINTEXT", *login.split(","))] if login else []
        address = self._sasl if login else self._plaintext
        done = CliRunner().invoke(main, [*args, "-b", address, *settings], prog_name="kafkalite")
        assert done.exit_code == code, (args, done.output, done.exception)
        return done

    def rows(self, *args: str, login: str = "", code: int = 0) -> Rows:
        """What a command prints with --json."""
        printed = self.run(*args, "--json", login=login, code=code).stdout
        return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]

    def until(self, is_expected: Callable[[Rows], object], *args: str, login: str = "") -> Rows:
        """Repeat a command until it prints what is expected; returns that."""
        found: list[Rows] = []

        def check() -> object:
            found.append(self.rows(*args, login=login))
            return is_expected(found[-1])

        wait_until(check, f"{args}", every=0.1)
        return found[-1]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    broker = KINDS[AGAINST](tmp_path_factory.mktemp("secured"), SETTINGS)
    sasl, controller = free_port(), free_port()
    listeners = f"PLAINTEXT://{HOST}:{broker.port},SASL://{HOST}:{sasl}"
    protocols = "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT"
    broker.settings |= {"advertised.listeners": listeners, "security.inter.broker.protocol": "PLAINTEXT"}
    if AGAINST == "kafka":
        listeners += f",CONTROLLER://{HOST}:{controller}"
        protocols += ",CONTROLLER:PLAINTEXT"
        broker.settings["controller.quorum.voters"] = f"1@{HOST}:{controller}"
    broker.settings |= {"listeners": listeners, "listener.security.protocol.map": protocols}
    try:
        broker.start()
        yield Commands(broker.address, f"{HOST}:{sasl}")
    finally:
        broker.close()


def plain(user: str) -> str:
    return f"sasl.mechanism=PLAIN,sasl.username={user},sasl.password={PASSWORD}"


def test_acls(commands: Commands) -> None:
    commands.run("acl", "add", "-u", "alice", "-o", "read", "-o", "write", "-t", "pay")
    commands.run("acl", "add", "-u", "User:*", "-o", "write", "-t", "pa", "--prefixed", "--deny", "--host", "10.0.0.7")
    commands.run("acl", "add", "-u", "alice", "-o", "describe", "--cluster")
    of_alice = commands.until(lambda rows: len(rows) == 3, "acl", "list", "-u", "alice")
    assert [(row["operation"], row["resource"], row["name"]) for row in of_alice] == [
        ("read", "topic", "pay"),
        ("write", "topic", "pay"),
        ("describe", "cluster", "kafka-cluster"),
    ]
    assert len(commands.rows("acl", "list", "-t", "pay")) == 2
    assert len(commands.rows("acl", "list", "-t", "pay", "--matching")) == 3
    checked = ("acl", "check", "-u", "alice", "-o", "write", "-t", "pay")
    assert commands.rows(*checked)[0]["result"] == "allowed"
    (denied,) = commands.rows(*checked, "--host", "10.0.0.7", code=1)
    assert denied["reason"] == "deny write for User:* from 10.0.0.7 on topic prefixed pa"
    refused = commands.run("acl", "list", login=plain("bob"), code=2).stderr
    assert "CLUSTER_AUTHORIZATION_FAILED" in refused and "acl add -u bob -o describe --cluster" in refused
    assert len(commands.rows("acl", "list", login=plain("alice"))) == 4
    removed = commands.rows("acl", "remove", "-t", "pay", "-o", "read", "--yes")
    assert [(row["principal"], row["operation"]) for row in removed] == [("User:alice", "read")]
    assert len(commands.rows("acl", "remove", "-u", "alice", "--yes")) == 2
    commands.rows("acl", "remove", "-t", "pa", "--yes")
    commands.until(lambda rows: not rows, "acl", "list")


def test_quotas(commands: Commands) -> None:
    commands.run("quota", "add", "-u", "alice", "producer_byte_rate=1048576", "request_percentage=12.5")
    commands.run("quota", "add", "-u", "alice", "--default-client-id", "consumer_byte_rate=7")
    commands.run("quota", "add", "--ip", "10.0.0.7", "connection_creation_rate=10")
    found = commands.until(lambda rows: len(rows) == 4, "quota", "list")
    assert found[0] == {"entity": {"ip": "10.0.0.7"}, "quota": "connection_creation_rate", "value": 10}
    assert [list(row.values()) for row in commands.rows("quota", "list", "-u", "alice")] == [
        [{"user": "alice"}, "producer_byte_rate", 1048576],
        [{"user": "alice"}, "request_percentage", 12.5],
        [{"user": "alice", "client-id": None}, "consumer_byte_rate", 7],
    ]
    wrong = commands.run("quota", "add", "-u", "alice", "connection_creation_rate=1", code=2)
    assert "connection_creation_rate" in wrong.stderr
    commands.run("quota", "remove", "-u", "alice", "producer_byte_rate")
    commands.run("quota", "remove", "--ip", "10.0.0.7")
    commands.run("quota", "remove", "-u", "alice", "--default-client-id")
    commands.until(lambda rows: [row["quota"] for row in rows] == ["request_percentage"], "quota", "list")
    commands.run("quota", "remove", "-u", "alice")
    commands.until(lambda rows: not rows, "quota", "list")


def test_users(commands: Commands, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("staple\n")
    commands.run("user", "add", "carol", "-m", "SCRAM-SHA-256", "-m", "SCRAM-SHA-512", "--password-file", str(password))
    listed = commands.until(lambda rows: len(rows) == 2, "user", "list", "carol")
    mechanisms = ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert listed == [{"user": "carol", "mechanism": each, "iterations": 8192} for each in mechanisms]
    login = "sasl.mechanism=SCRAM-SHA-512,sasl.username=carol,sasl.password=staple"
    assert commands.run("topic", "list", login=login).exit_code == 0
    assert commands.rows("user", "remove", "carol", "-m", "SCRAM-SHA-512", "--yes") == listed[1:]
    commands.until(lambda rows: rows == listed[:1], "user", "list", "carol")
    assert "rejected" in commands.run("topic", "list", login=login, code=2).stderr
    assert commands.rows("user", "remove", "carol", "--yes") == listed[:1]
    commands.until(lambda rows: not rows, "user", "list")


def test_tokens(commands: Commands) -> None:
    alice = plain("alice")
    (created,) = commands.rows("token", "create", "--renewer", "bob", "--lifetime", "1h", login=alice)
    token_id, hmac = created["token_id"], created["hmac"]
    (listed,) = commands.until(lambda rows: rows, "token", "list", login=alice)
    assert (listed["token_id"], listed["owner"], listed["renewers"]) == (token_id, "User:alice", ["User:bob"])
    assert commands.rows("token", "list", "--owner", "alice", "--hmac", login=plain("bob"))[0]["hmac"] == hmac
    login = f"sasl.mechanism=SCRAM-SHA-512,sasl.username={token_id},sasl.password={hmac},sasl.tokenauth=true"
    assert commands.run("topic", "list", login=login).exit_code == 0
    refused = commands.run("token", "create", login=login, code=2).stderr
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused
    renewed = commands.run("token", "renew", token_id, "--for", "9h", login=plain("bob")).stdout
    assert renewed == f"expires: {created['ends']}\n"
    assert commands.run("token", "expire", hmac, "--in", "30m", login=alice).stdout.startswith("expires: 20")
    assert commands.run("token", "expire", token_id, login=alice).stdout == "removed\n"
    commands.until(lambda rows: not rows, "token", "list", login=alice)
