"""Delegation tokens at a broker: created over authenticated connections, used for logins, ended by their expiry."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Principal
from kafkalite.net.sasl.plain import PlainClient
from kafkalite.net.sasl.scram import ScramClient
from kafkalite.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkalite.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kafkalite.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafkalite.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kafkalite.server.broker import Broker
from kafkalite.server.handlers.create_delegation_token import NAMES_CHARACTERS_MAX, RENEWERS_MAX
from kafkalite.state.authorizer.acls import Acl, AclOperation, AclResourceType, PermissionType, ResourcePattern
from tests.story.server.test_acls import STANDARD
from tests.story.server.test_sasl_login import ANSWER_S, METADATA, MODULE, PREFIX, Wire, dialled, only_connections

SECRET_KEY = "the key of all brokers"
NAMES = ("alice", "bob", "carol")
USERS = " ".join(f'user_{name}="secret"' for name in NAMES)
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{PREFIX}plain.sasl.jaas.config": f"{MODULE} required {USERS};",
    "connection.failed.authentication.delay.ms": "0",
    "delegation.token.secret.key": SECRET_KEY,
    "delegation.token.max.lifetime.ms": "600000",
    "delegation.token.expiry.time.ms": "60000",
}
NOT_ALLOWED, DISABLED, NOT_FOUND, MISMATCH, EXPIRED, UNAUTHORIZED, WRONG_TYPE = (
    KafkaErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    KafkaErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    KafkaErrorCode.DELEGATION_TOKEN_NOT_FOUND,
    KafkaErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
    KafkaErrorCode.DELEGATION_TOKEN_EXPIRED,
    KafkaErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    KafkaErrorCode.INVALID_PRINCIPAL_TYPE,
)


@asynccontextmanager
async def logged_in(broker: Broker, user: str) -> AsyncIterator[Wire]:
    async with dialled(broker) as client:
        assert (await client.log_in(PlainClient(user, "secret"))).error_code == 0
        yield client


@asynccontextmanager
async def users(broker: Broker) -> AsyncIterator[tuple[Wire, Wire, Wire]]:
    async with AsyncExitStack() as stack:
        alice, bob, carol = [await stack.enter_async_context(logged_in(broker, name)) for name in NAMES]
        yield alice, bob, carol


def creation(
    *renewers: str, lifetime_ms: int = -1, owner: str | None = None, kind: str = "User"
) -> CreateDelegationTokenRequest:
    named = [CreateDelegationTokenRequest.CreatableRenewers(principal_type=kind, principal_name=n) for n in renewers]
    return CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
        renewers=named,
        max_lifetime_ms=lifetime_ms,
    )


async def create(client: Wire, *renewers: str, **fields: Any) -> Any:
    token = await client.call(creation(*renewers, **fields), 3)
    assert token.error_code == 0, token
    return token


async def renew(client: Wire, token: Any, period_ms: int = -1) -> tuple[int, int]:
    found = await client.call(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms), 2)
    return found.error_code, found.expiry_timestamp_ms


async def expire(client: Wire, token: Any, period_ms: int = -1) -> tuple[int, int]:
    found = await client.call(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms), 2)
    return found.error_code, found.expiry_timestamp_ms


async def describe(client: Wire, *owners: str, version: int = 3) -> set[str]:
    owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
    named = [owner(principal_type="User", principal_name=each) for each in owners]
    found = await client.call(DescribeDelegationTokenRequest(owners=named or None), version)
    assert found.error_code == 0
    return {each.token_id for each in found.tokens}


def with_token(token: Any, mechanism: str = "SCRAM-SHA-256") -> ScramClient:
    return ScramClient(mechanism, token.token_id, b64encode(token.hmac).decode(), is_token=True)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_token_logs_in_as_its_owner_until_it_expires(mechanism: str) -> None:
    async with Broker(settings=SETTINGS) as broker, logged_in(broker, "alice") as alice, dialled(broker) as client:
        token = await create(alice, lifetime_ms=1_500)
        assert (token.principal_name, token.token_requester_principal_name) == ("alice", "alice")
        assert token.expiry_timestamp_ms == token.max_timestamp_ms == token.issue_timestamp_ms + 1_500
        answer = await client.log_in(with_token(token, mechanism))
        assert answer.error_code == 0 and 0 < answer.session_lifetime_ms <= 1_500
        assert Principal("User", "alice") in [each.principal for each in only_connections(broker)]
        async with asyncio.timeout(ANSWER_S):
            while not await client.closes(client.call(*METADATA)):
                await asyncio.sleep(0)
        async with dialled(broker) as again:
            assert (await again.log_in(with_token(token))).error_code == KafkaErrorCode.SASL_AUTHENTICATION_FAILED
        assert await renew(alice, token) == (EXPIRED, -1)


async def test_renewal_and_removal() -> None:
    async with Broker(settings=SETTINGS) as broker:
        async with users(broker) as (alice, bob, carol):
            token = await create(alice, "bob")
            assert token.expiry_timestamp_ms == token.issue_timestamp_ms + 60_000
            error, expiry_ms = await renew(bob, token, 120_000)
            assert error == 0 and expiry_ms >= token.issue_timestamp_ms + 120_000
            assert await renew(alice, token, 10**12) == (0, token.max_timestamp_ms)
            assert await renew(carol, token) == await expire(carol, token) == (MISMATCH, -1)
            assert (await expire(alice, token, 30_000))[0] == 0
            assert (await expire(bob, token))[0] == 0
            assert await renew(alice, token) == await expire(alice, token) == (NOT_FOUND, -1)
        async with dialled(broker) as client:
            assert (await client.log_in(with_token(token))).error_code == KafkaErrorCode.SASL_AUTHENTICATION_FAILED


async def test_token_administers_no_tokens() -> None:
    """CVE-like: a token that creates or renews tokens would never expire."""
    async with Broker(settings=SETTINGS) as broker, logged_in(broker, "alice") as alice, dialled(broker) as client:
        token = await create(alice)
        await client.log_in(with_token(token))
        await assert_refused(client, token, NOT_ALLOWED)
        assert (await client.log_in(PlainClient("alice", "secret"))).error_code == (
            KafkaErrorCode.SASL_AUTHENTICATION_FAILED
        )  # another mechanism


async def assert_refused(client: Any, token: Any, error: int) -> None:
    assert (await client.call(creation(), 3)).error_code == error
    assert await renew(client, token) == await expire(client, token) == (error, -1)
    assert (await client.call(DescribeDelegationTokenRequest(owners=None), 3)).error_code == error


async def test_tokens_need_an_authenticated_connection() -> None:
    async with Broker(settings=SETTINGS) as broker, logged_in(broker, "alice") as alice:
        token = await create(alice)
        (plaintext,) = (each for each in broker.addresses if each.listener == "PLAINTEXT")
        reader, writer = await asyncio.open_connection("127.0.0.1", plaintext.port)
        await assert_refused(Wire(reader, writer), token, NOT_ALLOWED)
        writer.close()


@pytest.mark.parametrize("secret_key", [None, ""])
async def test_tokens_are_disabled_without_a_secret_key(secret_key: str | None) -> None:
    settings = {name: value for name, value in SETTINGS.items() if not name.startswith("delegation")}
    if secret_key is not None:
        settings["delegation.token.secret.key"] = secret_key
    async with Broker(settings=settings) as broker, logged_in(broker, "alice") as alice:
        await assert_refused(alice, type("Token", (), {"hmac": b"1"}), DISABLED)


async def test_former_name_of_the_secret_key() -> None:
    settings = {**SETTINGS, "delegation.token.master.key": SECRET_KEY}
    del settings["delegation.token.secret.key"]
    async with Broker(settings=settings) as broker, logged_in(broker, "alice") as alice:
        assert (await create(alice)).hmac


async def test_renewers_are_users() -> None:
    async with Broker(settings=SETTINGS) as broker, logged_in(broker, "alice") as alice:
        assert (await alice.call(creation("bob", kind="Group"), 3)).error_code == WRONG_TYPE
        assert await describe(alice) == set()


async def test_large_tokens_are_refused_before_they_are_encoded() -> None:
    async with Broker(settings=SETTINGS) as broker, logged_in(broker, "alice") as alice:
        quarter = "b" * (NAMES_CHARACTERS_MAX // 4)
        for large in (
            creation(*(["bob"] * (RENEWERS_MAX + 1))),
            creation(*([quarter] * 4), "b"),
            creation(*([quarter] * 3), owner=quarter),  # with the type of the owner
        ):
            assert (await alice.call(large, 3)).error_code == KafkaErrorCode.INVALID_REQUEST
        assert await describe(alice, *(["bob"] * 10_000)) == set()
        await create(alice, *map(str, range(RENEWERS_MAX)))
        assert len(await describe(alice, *map(str, range(10_000)))) == 1


def allow(broker: Broker, user: str, operation: AclOperation, resource_type: AclResourceType, name: str) -> None:
    assert broker.running.authorizer is not None and broker.running.authorizer.acls is not None
    acl = Acl(f"User:{user}", "*", operation, PermissionType.ALLOW)
    broker.running.authorizer.acls.authorizer.replace(ResourcePattern(resource_type, name), [acl])


async def test_tokens_of_others_need_rights() -> None:
    settings = {**SETTINGS, "authorizer.class.name": STANDARD}
    create_tokens, describe_tokens = AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS
    async with Broker(settings=settings) as broker, users(broker) as (alice, bob, carol):
        own = await create(alice, "bob")
        assert (await carol.call(creation(owner="alice"), 3)).error_code == UNAUTHORIZED
        allow(broker, "carol", create_tokens, AclResourceType.USER, "User:alice")
        other = await create(carol, owner="alice")
        assert (other.principal_name, other.token_requester_principal_name) == ("alice", "carol")
        assert await describe(alice) == {own.token_id, other.token_id}
        assert await describe(bob) == await describe(alice, "bob", version=1) == {own.token_id}
        assert await describe(carol) == await describe(alice, "carol") == set()  # a requester is no owner
        assert await renew(carol, other) == (MISMATCH, -1)
        allow(broker, "carol", AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, own.token_id)
        assert await describe(carol) == {own.token_id}
        allow(broker, "carol", describe_tokens, AclResourceType.USER, "User:alice")
        assert await describe(carol, "alice") == {own.token_id, other.token_id}
        empty = await carol.call(DescribeDelegationTokenRequest(owners=[]), 3)
        assert (empty.error_code, empty.tokens) == (0, [])


async def test_tokens_survive_a_restart_and_expired_ones_are_removed(tmp_path: Path) -> None:
    settings = {**SETTINGS, "delegation.token.expiry.check.interval.ms": "100"}
    async with Broker(str(tmp_path), settings) as broker, logged_in(broker, "alice") as alice:
        token, short = await create(alice), await create(alice, lifetime_ms=300)
    async with Broker(str(tmp_path), settings) as broker, dialled(broker) as client:
        assert (await client.log_in(with_token(token))).error_code == 0
        assert broker.running.tokens is not None
        async with asyncio.timeout(ANSWER_S):
            while short.token_id in {each.token_id for each in broker.running.tokens.all()}:
                await asyncio.sleep(0)
        assert [each.token_id for each in broker.running.tokens.all()] == [token.token_id]


async def test_secret_key_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with Broker(settings=SETTINGS) as broker, dialled(broker) as one:
        await one.log_in(PlainClient("alice", "secret"))
        token = await create(one)
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=4, resource_name=str(broker.running.broker_id), configuration_keys=None
        )
        described = await one.call(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
        texts = [caplog.text, repr(broker.running.config), repr(broker.running.tokens), str(described)]
        assert "delegation.token.secret.key" in str(described) and token.token_id in caplog.text
        for secret in (SECRET_KEY, b64encode(token.hmac).decode(), repr(token.hmac)):
            assert not any(secret in text for text in texts)
