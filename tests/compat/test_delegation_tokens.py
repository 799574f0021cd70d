"""Delegation tokens against Apache Kafka: its tools and clients at our broker, our SDK at its broker."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from pathlib import Path

import pytest
from kafkalite_sdk import Admin

from kafkalite.testing.thread import BrokerThread
from tests.kit import jvm
from tests.kit.clients.java import JAVA_VERSIONS
from tests.kit.secure_kafka import PASSWORD, USER, secure_kafka
from tests.story.server.test_delegation_tokens import SETTINGS

pytestmark = [
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}"),
    pytest.mark.torture,
    pytest.mark.long_form,
]
TOKENS, TOPICS = "org.apache.kafka.tools.DelegationTokenCommand", "org.apache.kafka.tools.TopicCommand"
APPLIED_S = 30.0
LOGIN = "org.apache.kafka.common.security"


def client_file(path: Path, mechanism: str, module: str, username: str, password: str, more: str = "") -> Path:
    jaas = f'{LOGIN}.{module} required username="{username}" password="{password}"{more};'
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n")
    return path


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_tools_of_kafka_administer_tokens_and_log_in_with_them(version: str, tmp_path: Path) -> None:
    alice = client_file(tmp_path / "alice.properties", "PLAIN", "plain.PlainLoginModule", "alice", "secret")
    with BrokerThread(settings=SETTINGS) as broker:

        def run(tool: str, *args: str, client: Path = alice) -> str:
            whole = ["--bootstrap-server", broker.address, "--command-config", str(client), *args]
            done = jvm.run_tool(version, tool, whole)
            assert done.returncode == 0, f"{args}: {done.stdout}{done.stderr}"
            return done.stdout

        renewer = ("--renewer-principal", "User:bob")
        created = run(TOKENS, "--create", "--max-life-time-period", "-1", *renewer)
        token_id, hmac = next(line.split()[:2] for line in created.splitlines() if "User:alice" in line)
        assert token_id in run(TOKENS, "--describe", "--owner-principal", "User:alice")
        assert "Completed renew operation" in run(TOKENS, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
        scram, more = "scram.ScramLoginModule", ' tokenauth="true"'
        token = client_file(tmp_path / "token.properties", "SCRAM-SHA-512", scram, token_id, hmac, more)
        run(TOPICS, "--list", client=token)
        assert "Completed expire operation" in run(TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
        assert token_id not in run(TOKENS, "--describe")


async def test_sdk_administers_tokens_of_kafka_and_logs_in_with_them(tmp_path: Path) -> None:
    with secure_kafka(tmp_path, {"delegation.token.secret.key": "the key of all brokers"}) as kafka:
        login = {"security_protocol": "SASL_PLAINTEXT", "bootstrap_servers": kafka.sasl_plaintext}
        user = {"sasl_mechanism": "PLAIN", "sasl_username": USER, "sasl_password": PASSWORD}
        async with Admin(**login, **user) as admin:  # type: ignore[arg-type]
            token = await admin.tokens.create(renewers=["User:bob"], lifetime_ms=600_000)
            assert (token.owner, token.requester, token.renewers) == (f"User:{USER}", f"User:{USER}", ("User:bob",))
            async with asyncio.timeout(APPLIED_S):
                while not (described := await admin.tokens.describe()):  # brokers learn it from the controller
                    await asyncio.sleep(0)
            assert described == (token,)
            credentials = {
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_username": token.token_id,
                "sasl_password": b64encode(token.hmac).decode(),
                "sasl_tokenauth": True,
            }
            async with Admin(**login, **credentials) as other:  # type: ignore[arg-type]
                await other.topics.list()
            assert await admin.tokens.renew(token.hmac) == token.max_ms
            assert await admin.tokens.expire(token.hmac) > 0
