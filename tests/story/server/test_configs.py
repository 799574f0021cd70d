"""Tests dynamic configs: described with sources, effective at once, kept over a restart."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.alter_configs import AlterConfigsRequest
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkalite.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.kit.server import Client, Wire, batch, idempotent, running
from tests.story.server.test_restart import producers

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC_CONFIG, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = range(1, 6)


async def describe(
    client: Client, kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = True
) -> dict[str, Any]:
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=synonyms, include_documentation=True)
    (found,) = (await client.call(request, version)).results
    assert found.error_code == 0, found
    return {entry.name: entry for entry in found.configs}


def change(kind: int, name: str, *operations: tuple[str, int, str | None], validate_only: bool = False) -> Any:
    entry = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        entry.AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in operations
    ]
    resource = entry(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


async def alter(
    client: Client, kind: int, name: str, *operations: tuple[str, int, str | None], validate_only: bool = False
) -> tuple[int, str]:
    request = change(kind, name, *operations, validate_only=validate_only)
    (found,) = (await client.call(request)).responses
    return found.error_code, found.error_message


@pytest.mark.parametrize("version", range(1, 5))
async def test_describe_topic_configs_with_sources(client: Client, version: int) -> None:
    await client.create("t", retention_ms="5")
    found = await describe(client, TOPIC, "t", version=version)
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("5", TOPIC_CONFIG)
    assert (found["retention.bytes"].value, found["retention.bytes"].config_source) == ("-1", DEFAULT)
    assert [(s.name, s.value, s.source) for s in found["retention.ms"].synonyms][:1] == [
        ("retention.ms", "5", TOPIC_CONFIG)
    ]
    assert bool(found["retention.ms"].documentation) == (version >= 3)
    assert not (await describe(client, TOPIC, "t", version=version, synonyms=False))["retention.ms"].synonyms


async def test_incremental_alter_sets_deletes_and_appends(client: Client) -> None:
    await client.create("t", cleanup_policy="delete")

    async def policy() -> str:
        return str((await describe(client, TOPIC, "t", "cleanup.policy"))["cleanup.policy"].value)

    assert await alter(client, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == (0, None)
    assert sorted((await policy()).split(",")) == ["compact", "delete"]
    assert (await alter(client, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")))[0] == 0
    assert await policy() == "compact"
    assert (await alter(client, TOPIC, "t", ("cleanup.policy", DELETE, None)))[0] == 0
    assert await policy() == "delete"
    assert (await describe(client, TOPIC, "t", "cleanup.policy"))["cleanup.policy"].config_source == DEFAULT


async def test_topic_config_change_takes_effect_at_once(client: Client) -> None:
    await client.create("t")
    await client.produce("t", batch(b"x" * 500))
    await alter(client, TOPIC, "t", ("max.message.bytes", SET, "100"))
    assert (await client.produce("t", batch(b"x" * 500))).error_code == KafkaErrorCode.MESSAGE_TOO_LARGE
    await alter(client, TOPIC, "t", ("max.message.bytes", DELETE, None))
    assert (await client.produce("t", batch(b"x" * 500))).error_code == 0
    await alter(client, BROKER, "", ("message.max.bytes", SET, "100"))
    assert (await client.produce("t", batch(b"x" * 500))).error_code == KafkaErrorCode.MESSAGE_TOO_LARGE


async def test_concurrent_config_changes_are_all_applied(client: Client, wire: Wire) -> None:
    await client.create("t")
    keys = ("retention.ms", "retention.bytes", "segment.ms", "max.message.bytes")
    wire.send(*[(change(TOPIC, "t", (key, SET, "77")), 1) for key in keys])
    for _ in keys:
        assert (await wire.answer()).responses[0].error_code == 0
    assert client.broker.image.topics["t"].configs == dict.fromkeys(keys, "77")
    wire.send(*[(change(BROKER, "1", (key, SET, "78")), 1) for key in ("log.retention.ms", "log.retention.bytes")])
    for _ in range(2):
        assert (await wire.answer()).responses[0].error_code == 0
    assert client.broker.config.dynamic == {"log.retention.ms": "78", "log.retention.bytes": "78"}


async def test_invalid_config_changes_are_rejected(client: Client) -> None:
    await client.create("t")
    for validate_only in (True, False):
        error, text = await alter(client, TOPIC, "t", ("nope", SET, "1"), validate_only=validate_only)
        assert error == KafkaErrorCode.INVALID_CONFIG and "nope" in text
        error, text = await alter(client, TOPIC, "t", ("retention.ms", SET, "soon"), validate_only=validate_only)
        assert error == KafkaErrorCode.INVALID_CONFIG and "retention.ms" in text
        error, text = await alter(client, BROKER, "1", ("log.dirs", SET, "elsewhere"), validate_only=validate_only)
        assert error == KafkaErrorCode.INVALID_REQUEST
        assert text.startswith("Cannot update these configs dynamically: log.dirs; it is read at the start")
    assert (await alter(client, TOPIC, "nowhere", ("retention.ms", SET, "1")))[0] == 3
    assert (await alter(client, BROKER, "7", ("log.retention.ms", SET, "1")))[0] == KafkaErrorCode.INVALID_REQUEST
    assert (await alter(client, GROUP, "g", ("x", SET, "1")))[0] == KafkaErrorCode.INVALID_CONFIG
    assert (await alter(client, 16, "g", ("x", SET, "1")))[0] == KafkaErrorCode.INVALID_REQUEST
    assert client.broker.image.topics["t"].configs == {}


@pytest.mark.parametrize("incremental", [False, True])
async def test_duplicate_config_resource_is_rejected(client: Client, incremental: bool) -> None:
    await client.create("t", "u")
    message = IncrementalAlterConfigsRequest if incremental else AlterConfigsRequest
    entry = message.AlterConfigsResource
    resources = [
        entry(
            resource_type=TOPIC,
            resource_name=name,
            configs=[entry.AlterableConfig(name="retention.ms", value=value)],
        )
        for name, value in (("t", "1"), ("u", "2"), ("t", "3"))
    ]
    found = (await client.call(message(resources=resources))).responses
    twice = KafkaErrorCode.INVALID_REQUEST
    assert [(each.resource_name, each.error_code) for each in found] == [("t", twice), ("u", 0), ("t", twice)]
    assert client.broker.image.topics["t"].configs == {}
    assert client.broker.image.topics["u"].configs == {"retention.ms": "2"}


@pytest.mark.parametrize("values", [("1", "2"), (None,)])
async def test_alter_configs_rejects_null_and_duplicate_configs(client: Client, values: tuple[str | None, ...]) -> None:
    await client.create("t", retention_bytes="5")
    entry = AlterConfigsRequest.AlterConfigsResource
    configs = [entry.AlterableConfig(name="retention.ms", value=value) for value in values]
    for kind, name in ((TOPIC, "t"), (BROKER, "1")):
        resources = [entry(resource_type=kind, resource_name=name, configs=configs)]
        (found,) = (await client.call(AlterConfigsRequest(resources=resources))).responses
        assert found.error_code == KafkaErrorCode.INVALID_REQUEST
    assert client.broker.image.topics["t"].configs == {"retention.bytes": "5"}


async def test_validate_only_changes_no_config(client: Client) -> None:
    await client.create("t")
    assert await alter(client, TOPIC, "t", ("retention.ms", SET, "1"), validate_only=True) == (0, None)
    assert await alter(client, BROKER, "1", ("log.retention.ms", SET, "1"), validate_only=True) == (0, None)
    assert client.broker.image.topics["t"].configs == {} and client.broker.config.dynamic == {}


async def test_broker_config_is_set_and_deleted(client: Client) -> None:
    await client.create("t")
    assert await alter(client, BROKER, "1", ("log.retention.ms", SET, "60000")) == (0, None)
    found = (await describe(client, BROKER, "1", "log.retention.ms"))["log.retention.ms"]
    assert (found.value, found.config_source) == ("60000", DYNAMIC_BROKER)
    assert (found.synonyms[0].name, found.synonyms[0].source) == ("log.retention.ms", DYNAMIC_BROKER)
    assert (await describe(client, TOPIC, "t", "retention.ms"))["retention.ms"].value == "60000"
    assert await alter(client, BROKER, "", ("log.retention.ms", SET, "70000")) == (0, None)
    assert (await describe(client, BROKER, "1"))["log.retention.ms"].value == "60000"
    assert set(await describe(client, BROKER, "")) == {"log.retention.ms"}
    assert await alter(client, BROKER, "1", ("log.retention.ms", DELETE, None)) == (0, None)
    assert (await describe(client, BROKER, "1"))["log.retention.ms"].config_source == DYNAMIC_DEFAULT
    assert (await describe(client, TOPIC, "t", "retention.ms"))["retention.ms"].value == "70000"


@pytest.mark.parametrize("version", range(3))
async def test_alter_configs_replaces_all_configs(client: Client, version: int) -> None:
    await client.create("t", retention_ms="1", retention_bytes="2")
    entry = AlterConfigsRequest.AlterConfigsResource
    configs = [entry.AlterableConfig(name="segment.ms", value="3")]
    resources = [entry(resource_type=TOPIC, resource_name="t", configs=configs)]
    (found,) = (await client.call(AlterConfigsRequest(resources=resources), version)).responses
    assert found.error_code == 0
    assert client.broker.image.topics["t"].configs == {"segment.ms": "3"}


async def test_configs_survive_a_restart(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as client:
        await client.create("t", retention_ms="5")
        await alter(client, TOPIC, "t", ("max.message.bytes", SET, "100"))
        await alter(client, BROKER, "1", ("log.retention.bytes", SET, "7"))
        await alter(client, BROKER, "", ("log.segment.bytes", SET, "2000000"))
    async with running(str(tmp_path)) as client:
        found = await describe(client, TOPIC, "t")
        assert [found[key].value for key in ("retention.ms", "max.message.bytes", "retention.bytes")] == [
            "5",
            "100",
            "7",
        ]
        assert (await client.produce("t", batch(b"x" * 500))).error_code == KafkaErrorCode.MESSAGE_TOO_LARGE
        assert (await describe(client, BROKER, "1"))["log.retention.bytes"].config_source == DYNAMIC_BROKER
        assert found["segment.bytes"].value == "2000000"


async def test_producer_id_expiration_change_takes_effect_at_once(tmp_path: Path) -> None:
    settings = {"producer.id.expiration.check.interval.ms": "20"}
    async with running(str(tmp_path / "data"), settings) as client:
        await client.create("t")
        await client.produce("t", idempotent(b"a", sequence=0))
        assert (await alter(client, BROKER, "", ("producer.id.expiration.ms", SET, "0")))[0] != 0
        assert len(await producers(client, "t")) == 1
        assert (await alter(client, BROKER, "", ("producer.id.expiration.ms", SET, "1")))[0] == 0
        async with asyncio.timeout(60):
            while await producers(client, "t"):
                pass  # each turn is a request that is answered
