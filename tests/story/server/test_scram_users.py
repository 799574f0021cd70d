"""SCRAM users are created, described and deleted by requests, and stored as Apache Kafka 3.9 stores them."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from kafkalite.clock import await_outcome
from kafkalite.cluster.credentials.texts import decode_credential, encode_credential
from kafkalite.net.sasl.scram import make_credential
from kafkalite.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kafkalite.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kafkalite.server.running.running_broker import RunningBroker
from tests.kit.server import Client, running

SHA_256, SHA_512 = 1, 2
NONE, UNSUPPORTED, MISSING, DUPLICATE, UNACCEPTABLE = 0, 33, 91, 92, 93
SALT = b"salt of the test"
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
}
Request = AlterUserScramCredentialsRequest
# What kafka-configs of 3.9 stores for the password "secret" with this salt.
NODE = {
    "version": 1,
    "config": {"SCRAM-SHA-256": encode_credential(make_credential("SCRAM-SHA-256", "secret", SALT, 8192))},
}


def new(user: str, mechanism: int = SHA_256, iterations: int = 8192, **fields: Any) -> Request.ScramCredentialUpsertion:
    name = {SHA_256: "sha256", SHA_512: "sha512"}.get(mechanism, "sha256")
    salted = hashlib.pbkdf2_hmac(name, b"secret", SALT, max(1, iterations % 20_000))
    values = {"salt": SALT, "salted_password": salted, **fields}
    return Request.ScramCredentialUpsertion(name=user, mechanism=mechanism, iterations=iterations, **values)


def gone(user: str, mechanism: int = SHA_256) -> Request.ScramCredentialDeletion:
    return Request.ScramCredentialDeletion(name=user, mechanism=mechanism)


async def alter(client: Client, *changes: Any) -> dict[str, int]:
    deletions = [each for each in changes if isinstance(each, Request.ScramCredentialDeletion)]
    upsertions = [each for each in changes if isinstance(each, Request.ScramCredentialUpsertion)]
    answer = await client.call(Request(deletions=deletions, upsertions=upsertions))
    assert len({each.user for each in answer.results}) == len(answer.results)
    return {each.user: each.error_code for each in answer.results}


async def describe(client: Client, *names: str) -> dict[str, Any]:
    user = DescribeUserScramCredentialsRequest.UserName
    users = [user(name=name) for name in names] if names else None
    answer = await client.call(DescribeUserScramCredentialsRequest(users=users))
    assert answer.error_code == 0
    return {
        each.user: each.error_code or {info.mechanism: info.iterations for info in each.credential_infos}
        for each in answer.results
    }


async def node(broker: RunningBroker, name: str) -> Any:
    """The contents of a user's node, None without one."""
    outcome = await await_outcome(lambda then: broker.metadata.get(f"/config/users/{name}", then))
    return None if outcome.error is not None else json.loads(outcome.value[0])


async def test_users_are_created_described_and_deleted() -> None:
    async with running(settings=SETTINGS) as client:
        assert await alter(client, new("alice"), new("alice", SHA_512, 4096), new("b=,/ ü")) == {
            "alice": 0,
            "b=,/ ü": 0,
        }
        assert await describe(client) == {"alice": {SHA_256: 8192, SHA_512: 4096}, "b=,/ ü": {SHA_256: 8192}}
        assert await node(client.broker, "b%3D%2C%2F%20%C3%BC") == NODE
        assert await alter(client, gone("alice"), new("b=,/ ü", iterations=4096)) == {"alice": 0, "b=,/ ü": 0}
        assert await describe(client, "alice", "b=,/ ü") == {"alice": {SHA_512: 4096}, "b=,/ ü": {SHA_256: 4096}}
        assert await alter(client, gone("alice", SHA_512), gone("alice")) == {"alice": MISSING}
        assert await describe(client, "alice", "unknown") == {"alice": {SHA_512: 4096}, "unknown": MISSING}
        assert await alter(client, gone("alice", SHA_512)) == {"alice": 0}
        assert await node(client.broker, "alice") is None


async def test_changed_users_are_in_the_audit_log_without_credentials(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafkalite.authorizer")
    async with running(settings=SETTINGS) as client:
        await alter(client, new("alice"), new("alice", SHA_512))
        await alter(client, gone("alice"), gone("bob"))
    lines = [each.getMessage() for each in caplog.records if each.name == "kafkalite.authorizer"]
    assert [line.partition(" has changed ")[2] for line in lines] == [
        "user alice: SCRAM-SHA-256 set, SCRAM-SHA-512 set",
        "user alice: SCRAM-SHA-256 deleted",
    ]
    assert all(line.startswith("Principal = User:ANONYMOUS from host = ") for line in lines)


async def test_credentials_survive_a_restart(tmp_path: Path) -> None:
    async with running(str(tmp_path), SETTINGS) as client:
        await alter(client, new("alice"))
    async with running(str(tmp_path), SETTINGS) as client:
        credentials = client.broker.credentials
        assert credentials is not None
        found = credentials.find("SCRAM-SHA-256", "alice")
        assert found == make_credential("SCRAM-SHA-256", "secret", SALT, 8192)
        assert credentials.find("SCRAM-SHA-512", "alice") is None


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([new("")], UNACCEPTABLE),
        ([gone("")], UNACCEPTABLE),
        ([new("alice", 0)], UNSUPPORTED),
        ([gone("alice", 3)], UNSUPPORTED),
        ([new("alice", iterations=4095)], UNACCEPTABLE),
        ([new("alice", iterations=16_385)], UNACCEPTABLE),
        ([new("alice", iterations=-1)], UNACCEPTABLE),
        ([new("alice", salt=b"")], UNACCEPTABLE),
        ([new("alice", salted_password=b"short")], UNACCEPTABLE),
        ([new("a" * 1001)], UNACCEPTABLE),
        ([new(".")], UNACCEPTABLE),
        ([new("alice"), new("alice")], DUPLICATE),
        ([gone("alice"), new("alice")], DUPLICATE),
        ([gone("alice")], MISSING),
        ([new("alice", SHA_512), gone("alice")], MISSING),
        ([new("alice", SHA_512), new("alice", iterations=1)], UNACCEPTABLE),
    ],
)
async def test_invalid_changes_are_rejected_and_nothing_is_stored(changes: list[Any], code: int) -> None:
    async with running(settings=SETTINGS) as client:
        user = changes[0].name
        assert await alter(client, *changes, new("other")) == {user: code, "other": 0}
        assert await describe(client) == {"other": {SHA_256: 8192}}
        assert client.broker.credentials is not None and client.broker.credentials.users() == {"other"}


async def test_user_named_twice_is_a_duplicate() -> None:
    async with running(settings=SETTINGS) as client:
        await alter(client, new("alice"))
        assert await describe(client, "alice", "alice") == {"alice": DUPLICATE}


async def test_names_that_no_node_can_have_are_no_users(caplog: pytest.LogCaptureFixture) -> None:
    async with running(settings=SETTINGS) as client:
        assert await describe(client, ".", "..", "<default>") == dict.fromkeys((".", "..", "<default>"), MISSING)
    assert "cannot be read" not in caplog.text


async def test_quotas_of_a_user_are_kept() -> None:
    async with running(settings=SETTINGS) as client:
        path = "/config/users/alice"
        data = json.dumps({"version": 1, "config": {"producer_byte_rate": "10"}}).encode()
        await await_outcome(lambda then: client.broker.metadata.create(path, data, then))
        await alter(client, new("alice"))
        await alter(client, gone("alice"))
        assert await node(client.broker, "alice") == {"version": 1, "config": {"producer_byte_rate": "10"}}


async def test_broker_without_scram_stores_users_for_others() -> None:
    async with running() as client:
        assert client.broker.credentials is None
        assert await alter(client, new("alice")) == {"alice": 0}
        assert await describe(client) == {"alice": {SHA_256: 8192}}


async def test_credential_that_cannot_be_read_is_no_credential(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    async with running(str(tmp_path), SETTINGS) as client:
        for name, data in (
            ("a", b"{"),
            ("b", b'{"version":1,"config":{"SCRAM-SHA-256":"salt=x,iterations=topsecret"}}'),
        ):
            await await_outcome(
                lambda then, n=name, d=data: client.broker.metadata.create(f"/config/users/{n}", d, then)
            )
    async with running(str(tmp_path), SETTINGS) as client:
        assert client.broker.credentials is not None and client.broker.credentials.users() == set()
        assert await describe(client, "a", "b") == {"a": MISSING, "b": MISSING}
    assert re.search("user 'a' cannot be read", caplog.text) and re.search("user 'b' cannot log in", caplog.text)
    assert "topsecret" not in caplog.text


def test_texts_are_kafkas() -> None:
    """The order and the names of ScramCredentialUtils.credentialToString."""
    credential = make_credential("SCRAM-SHA-512", "secret")
    text = encode_credential(credential)
    assert re.fullmatch(r"salt=[\w+/=]+,stored_key=[\w+/=]+,server_key=[\w+/=]+,iterations=4096", text)
    assert decode_credential(text) == credential
    for wrong in ("", "salt=eA==", f"{text},x=y", text.replace("4096", "many"), text.replace("salt=", "salt=!")):
        with pytest.raises(ValueError, match="credential"):
            decode_credential(wrong)
