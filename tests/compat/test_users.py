"""`kafkalite user` against Apache Kafka: its brokers accept the users that it adds."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from kafkalite_sdk import Admin

from kafkalite.cli.main import main
from kafkalite.errors import AuthenticationError
from tests.kit import jvm
from tests.kit.secure_kafka import SecureKafka

pytestmark = [
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}"),
    pytest.mark.xdist_group("secure kafka"),
]
USER, PASSWORD = "carol", "staple"
APPLIED_S = 30.0


async def log_in(address: str, mechanism: str) -> None:
    """Log in, and describe the cluster. Raises AuthenticationError."""
    login = {"sasl_mechanism": mechanism, "sasl_username": USER, "sasl_password": PASSWORD}
    async with Admin(address, security_protocol="SASL_PLAINTEXT", **login) as admin:
        await admin.cluster.describe()


async def until_accepted(address: str, mechanism: str) -> None:
    """Log in once the broker has applied the new user, which is after its response."""
    async with asyncio.timeout(APPLIED_S):
        while True:
            try:
                return await log_in(address, mechanism)
            except AuthenticationError:
                continue


def test_users_of_apache_kafka_are_added_listed_and_removed(secured_kafka: SecureKafka, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")

    def call(*args: str) -> list[dict[str, object]]:
        done = CliRunner().invoke(main, ["user", *args, "-b", secured_kafka.plaintext], prog_name="kafkalite")
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    call("add", USER, "-m", "SCRAM-SHA-256", "-m", "SCRAM-SHA-512", "--password-file", str(password))
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        asyncio.run(until_accepted(secured_kafka.sasl_plaintext, mechanism))
    kept = {"user": USER, "mechanism": "SCRAM-SHA-256", "iterations": 8192}
    gone = {**kept, "mechanism": "SCRAM-SHA-512"}
    assert call("list", USER, "--json") == [kept, gone]
    assert call("remove", USER, "-m", "SCRAM-SHA-512", "--yes", "--json") == [gone]
    assert call("list", USER, "--json") == [kept]
    assert call("remove", USER, "--yes", "--json") == [kept]
