"""`kafkalite user` against a broker, and for the first user of a tree whose brokers do not run."""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kafkalite_sdk import Admin

from kafkalite.cli.main import main
from kafkalite.coordination.znodes.quotas import user_path
from kafkalite.server.broker import Broker
from kafkalite.testing.thread import BrokerThread
from kafkalite.testing.zookeeper_thread import ZooKeeperThread
from tests.story.server.test_scram_users import SETTINGS

PASSWORD = "correct horse"
Call = Callable[..., Result]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(settings=SETTINGS) as broker:
        yield broker


def call(*args: str, code: int = 0, stdin: str = f"{PASSWORD}\n") -> Result:
    """Run `kafkalite user` in this process: one of its own costs a second."""
    done = CliRunner().invoke(main, ["user", *args], input=stdin, prog_name="kafkalite")
    assert done.exit_code == code, f"{args} ended with {done.exit_code}:\n{done.output}"
    return done


def offline(*args: str, code: int = 0) -> str:
    """Add a user without a broker; returns the error output."""
    return call("add", *args, "--password-file", "-", code=code).stderr


async def log_in(address: str, user: str, mechanism: str = "SCRAM-SHA-512") -> None:
    """Log in over SASL_PLAINTEXT. Raises AuthenticationError."""
    login = {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": PASSWORD}
    async with Admin(address, security_protocol="SASL_PLAINTEXT", **login) as admin:
        await admin.cluster.describe()


@pytest.fixture
def kafkalite(broker: BrokerThread) -> Call:
    """Runs `kafkalite user` against the broker."""
    return lambda *args, **options: call(*args, "--bootstrap-server", broker.address, **options)


def test_password_cannot_be_asked_for_without_a_terminal(kafkalite: Call) -> None:
    refused = kafkalite("add", "alice", stdin="", code=2)
    step = "give --password-file FILE, or - for standard input"
    assert refused.stderr == f"kafkalite: the password of alice: there is no terminal to ask for it; {step}\n"


def test_users_are_added_listed_and_removed(kafkalite: Call, broker: BrokerThread, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\nanother line\n")
    added = kafkalite("add", "alice", "--password-file", str(file))
    assert added.stdout == "added: user alice with SCRAM-SHA-512\n"
    args = ("-m", "scram-sha-256", "-m", "SCRAM-SHA-512", "--iterations", "4096", "--password-file", "-")
    kafkalite("add", "bob", *args, stdin=f"{PASSWORD}\n")
    address = next(f"{each.host}:{each.port}" for each in broker.broker.addresses if each.listener != "PLAINTEXT")
    for user, mechanism in (("alice", "SCRAM-SHA-512"), ("bob", "SCRAM-SHA-256")):
        asyncio.run(log_in(address, user, mechanism))
    listed = [json.loads(line) for line in kafkalite("list", "--json").stdout.splitlines()]
    assert listed == [
        {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 8192},
        {"user": "bob", "mechanism": "SCRAM-SHA-256", "iterations": 4096},
        {"user": "bob", "mechanism": "SCRAM-SHA-512", "iterations": 4096},
    ]
    assert kafkalite("list", "bob").stdout.splitlines()[0].split() == ["USER", "MECHANISM", "ITERATIONS"]
    asked = kafkalite("remove", "bob", stdin="n\n", code=2)
    assert "Remove 2 credential(s) of user bob?" in asked.stdout
    removed = json.loads(kafkalite("remove", "bob", "-m", "SCRAM-SHA-256", "--yes", "--json").stdout)
    assert removed == {"user": "bob", "mechanism": "SCRAM-SHA-256", "iterations": 4096}
    kafkalite("remove", "bob", "-y")
    assert "user bob" in kafkalite("remove", "bob", "-y", code=2).stderr
    assert "RESOURCE_NOT_FOUND" in kafkalite("list", "bob", code=2).stderr


def test_wrong_use_ends_with_one_line(kafkalite: Call, tmp_path: Path) -> None:
    def error(*args: str, stdin: str = "x\n") -> str:
        stderr = kafkalite("add", *args, "--password-file", "-", stdin=stdin, code=2).stderr
        assert stderr.count("\n") == 1, stderr
        return stderr

    assert "the first line is no password" in error("alice", stdin="\n")
    assert "give one of" in error("alice", "--data", str(tmp_path), "--zookeeper", "localhost:1")
    assert "--zookeeper-config is for" in error("alice", "--data", str(tmp_path), "--zookeeper-config", "f")
    assert "UNACCEPTABLE_CREDENTIAL" in error("a" * 2000)
    assert "4096" in error("alice", "--iterations", "1")


def test_first_user_of_a_broker_alone_logs_in(tmp_path: Path) -> None:
    data = tmp_path / "data"
    offline("admin", "--data", str(data))

    async def start() -> None:
        async with Broker(str(data), SETTINGS) as broker:
            await log_in(f"127.0.0.1:{broker.addresses[1].port}", "admin")
            refused = await asyncio.to_thread(offline, "other", "--data", str(data), code=2)
            assert "another broker uses this log directory" in refused

    asyncio.run(start())
    offline("second", "--data", str(data))  # the journal of an earlier start
    os.rename(data / "kafkalite.journal", tmp_path / "kafkalite.journal")
    assert "belongs to a broker of a cluster" in offline("third", "--data", str(data), code=2)


def test_first_user_of_a_cluster_is_in_its_tree(tmp_path: Path) -> None:
    with ZooKeeperThread() as zookeeper:
        for user in ("broker", "b=,/ ü"):
            offline(user, "--zookeeper", f"{zookeeper.address}/kafka", "-m", "SCRAM-SHA-256")
        tree: Any = zookeeper.call(lambda server: server.tree)
        for user in ("broker", "b=,/ ü"):
            assert set(json.loads(tree.get(f"/kafka{user_path(user)}")[0])["config"]) == {"SCRAM-SHA-256"}
        notices = [tree.get(f"/kafka/config/changes/{each}")[0] for each in tree.children("/kafka/config/changes")[0]]
        assert b"users/broker" in notices[0] and len(notices) == 2
    shared = tmp_path / "shared"
    offline("broker", "--coordination", str(shared))
    assert (shared / "coordination.journal").read_bytes().count(b"SCRAM-SHA-512") >= 1
    assert offline("..", "--coordination", str(shared), code=2).count("\n") == 1
