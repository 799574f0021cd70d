"""Passwords as dynamic configs: encrypted in the tree, effective at once, in no answer and no log."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kafkalite.clock import await_outcome
from kafkalite.config.passwords.encoder import PasswordEncoder
from kafkalite.net.sasl.plain import PlainClient
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkalite.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkalite.server.broker import Broker
from tests.kit.certificates import Authority
from tests.kit.server import Client, connected
from tests.kit.tls_broker import HOST, key_store
from tests.story.server.test_sasl_login import ANSWER_S, FAILED, MODULE, PREFIX, Wire
from tests.story.server.test_tls_listeners import reloaded, subject

SECRET, OLD_SECRET, PASSWORD = "the secret of the encoder", "the former secret", "hunter2"
INVALID_REQUEST = 42
JAAS = f"{PREFIX}plain.sasl.jaas.config"
SETTINGS = {
    "listeners": f"PLAINTEXT://{HOST}:0,SASL_PLAINTEXT://{HOST}:0",
    "sasl.enabled.mechanisms": "PLAIN",
    JAAS: f'{MODULE} required user_alice="first";',
    "connection.failed.authentication.delay.ms": "0",
    "password.encoder.secret": SECRET,
}


async def alter(client: Client, **texts: str) -> int:
    """Set dynamic configs of the broker; names have `__` for dots."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        resource.AlterableConfig(name=name.replace("__", "."), config_operation=0, value=text)
        for name, text in texts.items()
    ]
    named = resource(resource_type=4, resource_name=str(client.broker.broker_id), configs=configs)
    answer = await client.call(IncrementalAlterConfigsRequest(resources=[named], validate_only=False))
    assert PASSWORD not in str(answer)
    return int(answer.responses[0].error_code)


async def stored(client: Client) -> dict[str, str]:
    """The texts in the node of the broker."""
    path = f"/config/brokers/{client.broker.broker_id}"
    outcome = await await_outcome(lambda then: client.broker.metadata.get(path, then))
    texts: dict[str, str] = json.loads(outcome.result()[0])["config"]
    return texts


async def logs_in(broker: Broker, password: str) -> bool:
    (port,) = (each.port for each in broker.addresses if each.listener == "SASL_PLAINTEXT")
    reader, writer = await asyncio.open_connection(HOST, port)
    answer = await Wire(reader, writer).log_in(PlainClient("alice", password))
    writer.close()
    assert answer.error_code in (0, FAILED)
    return bool(answer.error_code == 0)


def jaas(password: str) -> dict[str, Any]:
    return {JAAS.replace(".", "__"): f'{MODULE} required user_alice="{password}";'}


async def test_users_of_plain_are_changed_encrypted_and_never_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with Broker(str(tmp_path), SETTINGS) as broker, connected(broker) as client:
        assert await logs_in(broker, "first")
        assert await alter(client, **jaas(PASSWORD)) == 0
        assert await logs_in(broker, PASSWORD) and not await logs_in(broker, "first")
        texts = await stored(client)
        assert PASSWORD in PasswordEncoder(SECRET).decode(texts[JAAS]) and PASSWORD not in str(texts)
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=4, resource_name=str(broker.running.broker_id), configuration_keys=None
        )
        described = await client.call(DescribeConfigsRequest(resources=[resource], include_synonyms=True))
        named = {each.name: each for each in described.results[0].configs}
        assert (named[JAAS].value, named[JAAS].is_sensitive) == (None, True)
        shown = (str(described), repr(broker.running.config), caplog.text)
        assert not any(secret in text for text in shown for secret in (PASSWORD, SECRET, texts[JAAS]))
    async with Broker(str(tmp_path), SETTINGS) as broker:
        assert await logs_in(broker, PASSWORD)


async def test_passwords_are_refused_without_a_secret() -> None:
    settings = {name: text for name, text in SETTINGS.items() if name != "password.encoder.secret"}
    async with Broker(settings=settings) as broker, connected(broker) as client:
        assert await alter(client, **jaas(PASSWORD)) == INVALID_REQUEST
        assert await logs_in(broker, "first")


async def test_changed_secret_encrypts_the_stored_passwords_again(tmp_path: Path) -> None:
    former = {**SETTINGS, "password.encoder.secret": OLD_SECRET}
    async with Broker(str(tmp_path), former) as broker, connected(broker) as client:
        await alter(client, max__connections="77", **jaas(PASSWORD))
    both = {**SETTINGS, "password.encoder.old.secret": OLD_SECRET}
    async with Broker(str(tmp_path), both) as broker, connected(broker) as client:
        assert await logs_in(broker, PASSWORD)
        async with asyncio.timeout(ANSWER_S):
            while True:
                texts = await stored(client)
                try:
                    assert PASSWORD in PasswordEncoder(SECRET).decode(texts[JAAS])
                    break
                except ValueError:  # not yet
                    await asyncio.sleep(0)
        assert texts["max.connections"] == "77"
    async with Broker(str(tmp_path), SETTINGS) as broker:
        assert await logs_in(broker, PASSWORD)


async def test_key_of_a_listener_is_replaced_by_an_encrypted_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    first, second = authority.issue("first"), authority.issue("second", password=PASSWORD)
    settings = {
        "listeners": f"PLAINTEXT://{HOST}:0,SSL://{HOST}:0",
        "password.encoder.secret": SECRET,
        **key_store(first),
    }
    async with Broker(settings=settings) as broker, connected(broker) as client:
        (address,) = (f"{HOST}:{each.port}" for each in broker.addresses if each.listener == "SSL")
        assert await subject(address, authority) == "first"
        texts = {**key_store(second, "listener.name.ssl."), "listener.name.ssl.ssl.key.password": PASSWORD}
        assert await alter(client, **{name.replace(".", "__"): text for name, text in texts.items()}) == 0
        await reloaded(broker)
        assert await subject(address, authority) == "second"
        assert not any("PRIVATE" in text or PASSWORD in text for text in (await stored(client)).values())
