"""Tests the levels of the broker's loggers: described, changed at run time, and what DEBUG shows (KIP-412)."""

import asyncio
import logging
import socket
from collections.abc import Iterator

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.alter_configs import AlterConfigsRequest
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from tests.kit.server import Client
from tests.story.server.test_configs import APPEND, BROKER, DELETE, SET, SUBTRACT, alter, describe

LOGGERS = 8
DYNAMIC_BROKER_LOGGER = 6
INVALID_REQUEST, INVALID_CONFIG = KafkaErrorCode.INVALID_REQUEST, KafkaErrorCode.INVALID_CONFIG
REQUESTS = "kafkalite.requests"


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """Restore the levels of the process."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("kafkalite")]
    before = {name: logging.getLogger(name).level for name in names}
    logging.getLogger("kafkalite").setLevel(logging.INFO)
    yield
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("kafkalite")]:
        logging.getLogger(name).setLevel(before.get(name, logging.NOTSET))


@pytest.fixture
def own(client: Client) -> str:
    return str(client.broker.broker_id)


async def level(client: Client, own: str, name: str) -> str:
    return str((await describe(client, LOGGERS, own, name))[name].value)


async def test_levels_are_described_as_those_of_kafka(client: Client, own: str) -> None:
    found = await describe(client, LOGGERS, own)
    assert {"root", "kafkalite.server", REQUESTS, "kafkalite.storage"} <= set(found)
    assert not any(name.split(".")[0] not in ("root", "kafkalite") for name in found), "no logger of the application"
    assert {each.value for each in found.values()} == {"INFO"}
    entry = found["kafkalite.server"]
    assert (entry.config_source, entry.read_only, entry.is_sensitive, entry.config_type) == (
        DYNAMIC_BROKER_LOGGER,
        False,
        False,
        0,
    )
    assert entry.synonyms == []
    assert set(await describe(client, LOGGERS, own, "root", "kafkalite.absent")) == {"root"}


async def test_level_is_that_of_the_nearest_logger_above(client: Client, own: str) -> None:
    assert await alter(client, LOGGERS, own, ("kafkalite.storage", SET, "ERROR")) == (0, None)
    assert await level(client, own, "kafkalite.storage.manager") == "ERROR"
    assert await level(client, own, "kafkalite.server") == "INFO"
    assert await alter(client, LOGGERS, own, ("root", SET, "TRACE")) == (0, None)
    assert await level(client, own, "kafkalite.server") == "TRACE"
    assert await alter(client, LOGGERS, own, ("kafkalite.storage", DELETE, None)) == (0, None)
    assert await level(client, own, "kafkalite.storage.manager") == "TRACE"
    for text in ("DEBUG", "INFO", "WARN", "ERROR", "FATAL"):
        assert await alter(client, LOGGERS, own, ("root", SET, text)) == (0, None)
        assert await level(client, own, "root") == text


@pytest.mark.parametrize(
    ("operations", "error", "message"),
    [
        ([("kafkalite.absent", SET, "INFO")], INVALID_CONFIG, "Logger kafkalite.absent does not exist!"),
        ([("kafkalite.absent", DELETE, None)], INVALID_CONFIG, "Logger kafkalite.absent does not exist!"),
        ([("asyncio", SET, "DEBUG")], INVALID_CONFIG, "Logger asyncio does not exist!"),
        (
            [("root", SET, "debug")],
            INVALID_CONFIG,
            "Cannot set the log level of root to debug as it is not a supported log level. "
            "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
        ([("root", DELETE, None)], INVALID_REQUEST, "Removing the log level of the root logger is not allowed"),
        ([("root", APPEND, "INFO")], INVALID_REQUEST, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ([("root", SUBTRACT, "INFO")], INVALID_REQUEST, "SUBTRACT operation is not allowed for the BROKER_LOGGER"),
        ([("root", 9, "INFO")], INVALID_REQUEST, "Unknown operation type 9 is not allowed for the BROKER_LOGGER"),
        ([("root", SET, None)], INVALID_REQUEST, "Null value not supported for : root"),
        ([("root", SET, "INFO"), ("root", SET, "WARN")], INVALID_REQUEST, "Error due to duplicate config keys"),
    ],
)
async def test_invalid_change_changes_nothing(
    client: Client, own: str, operations: list[tuple[str, int, str | None]], error: int, message: str
) -> None:
    code, text = await alter(client, LOGGERS, own, ("kafkalite.server", SET, "ERROR"), *operations)
    assert (code, text[: len(message)]) == (error, message)
    assert await level(client, own, "kafkalite.server") == "INFO"


@pytest.mark.parametrize(
    ("name", "altered", "described"),
    [
        (
            "7",
            "Unexpected node id. Expected {own}, but received 7",
            "Unexpected broker id, expected {own} but received 7",
        ),
        ("one", "Node id must be an integer, but it is: one", "Broker id must be an integer, but it is: one"),
        ("", "Node id must be an integer, but it is: ", "Broker id must not be empty"),
    ],
)
async def test_loggers_of_another_broker_are_rejected(
    client: Client, own: str, name: str, altered: str, described: str
) -> None:
    assert await alter(client, LOGGERS, name, ("root", SET, "INFO")) == (INVALID_REQUEST, altered.format(own=own))
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=LOGGERS, resource_name=name, configuration_keys=None
    )
    (result,) = (await client.call(DescribeConfigsRequest(resources=[asked]), 4)).results
    assert (result.error_code, result.error_message) == (INVALID_REQUEST, described.format(own=own))


async def test_validation_changes_nothing_and_alter_configs_is_rejected(client: Client, own: str) -> None:
    assert await alter(client, LOGGERS, own, ("root", SET, "ERROR"), validate_only=True) == (0, None)
    assert await level(client, own, "root") == "INFO"
    resource = AlterConfigsRequest.AlterConfigsResource
    asked = resource(
        resource_type=LOGGERS, resource_name=own, configs=[resource.AlterableConfig(name="root", value="ERROR")]
    )
    (result,) = (await client.call(AlterConfigsRequest(resources=[asked], validate_only=False))).responses
    assert result.error_code == INVALID_REQUEST and "IncrementalAlterConfigs" in result.error_message


async def test_requests_are_logged_while_the_level_is_debug(
    client: Client, own: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def metadata() -> list[str]:
        caplog.clear()
        await client.call(MetadataRequest(topics=[]))
        return [each.getMessage() for each in caplog.records if each.name == REQUESTS]

    assert await metadata() == []
    assert await alter(client, LOGGERS, own, (REQUESTS, SET, "DEBUG")) == (0, None)
    (line,) = await metadata()
    assert "127.0.0.1:" in line and " Metadata v" in line and "correlation id" in line and " bytes" in line
    assert await alter(client, LOGGERS, own, (REQUESTS, DELETE, None)) == (0, None)
    assert await metadata() == []


GARBAGE = (
    (b"GET / HTTP/1.1\r\n\r\n", "this looks like HTTP or text"),
    (b"\x16\x03\x01\x02\x00\x01\x00", "this is a TLS handshake on a plaintext port"),
    (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes is outside"),
    (b"\xff\xff\xff\xff", "a frame of -1 bytes is outside"),
    (b"\x00\x00\x00\x08\x03\xe7\x00\x00\x00\x00\x00\x01", "request header does not parse"),
    (b"\x00\x00\x00\x0a\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff", "request key 999 is not served"),
)


async def rejected(host: str, port: int, data: bytes = b"") -> str:
    """Open a connection that the broker closes; returns the address of the client."""
    reader, writer = await asyncio.open_connection(host, port, family=socket.AF_INET)
    address = "{}:{}".format(*writer.get_extra_info("sockname"))
    writer.write(data)
    assert await reader.read() == b""
    writer.close()
    return address


async def test_rejected_connections_are_logged_with_address_and_reason(
    client: Client, own: str, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = client.broker.addresses[0]
    assert await alter(client, LOGGERS, own, ("root", SET, "DEBUG")) == (0, None)
    sent = [(await rejected(endpoint.host, endpoint.port, data), reason) for data, reason in GARBAGE]
    assert await alter(client, BROKER, own, ("max.connections.per.ip", SET, "1")) == (0, None)
    sent += [(await rejected(endpoint.host, endpoint.port), "it has 1 connections") for _ in range(2)]
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.DEBUG]
    for address, reason in sent:
        (ended,) = [line for line in lines if line.startswith((f"{address} disconnected: ", f"{address} refused: "))]
        assert reason in ended
