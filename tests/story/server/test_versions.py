"""Tests ApiVersions, and that the broker answers every key in its minimum and maximum version."""

import logging

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.server.requests.api import ROWS, Row
from tests.kit.server import Client, Hub, Wire

CLASSIC_GROUPS = {8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47}
CONSUMER_GROUPS = {68, 69}
OWN = set(range(10_000, 10_007))
ADMINISTRATION = {17, 19, 20, 21, 32, 33, 34, 35, 36, 37, 43, 44, 45, 46, 48, 49, 50, 51, 57, 60, 61, 74, 75}
TOKENS = {38, 39, 40, 41}
TRANSACTIONS = {24, 25, 26, 27, 28, 65, 66}
SERVED = (
    {0, 1, 2, 3, 18, 22, 23, 29, 30, 31}
    | TRANSACTIONS
    | ADMINISTRATION
    | TOKENS
    | CLASSIC_GROUPS
    | CONSUMER_GROUPS
    | OWN
)
ENDS = [(row.load(), version) for row in ROWS for version in sorted({row.version_min, row.version_max})]


def frame(key: int, version: int, body: bytes) -> bytes:
    """A request with its size, header version 1 without a client id."""
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1" + b"\xff\xff"
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


@pytest.mark.parametrize(("row", "version"), ENDS, ids=[f"{row.name}-v{version}" for row, version in ENDS])
async def test_every_api_key_is_answered_in_minimum_and_maximum_version(client: Client, row: Row, version: int) -> None:
    """The smallest request of each key is decoded, handled and answered in the same version."""
    request = row.request()
    if hasattr(request, "timeout_ms"):
        request.timeout_ms = 1000
    if row.name == "Produce":
        request.acks = 1
    answer = await client.call(request, version)
    assert type(answer) is row.response
    assert getattr(answer, "error_code", 0) != KafkaErrorCode.UNKNOWN_SERVER_ERROR


async def test_api_versions_returns_exactly_the_served_keys(client: Client) -> None:
    answer = await client.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
    announced = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert set(announced) == SERVED
    assert announced[0] == (0, 13)  # old librdkafka must see it from 0 (KAFKA-18659)
    assert all(announced[row.api_key] == (row.version_min, row.version_max) for row in ROWS if row.api_key)


@pytest.mark.parametrize("text", ["", "-a", "a.", "a b", "a_b", "ä", "a\n", "a" * 2000 + "!"])
async def test_malformed_client_software_name_or_version_is_rejected(wire: Wire, text: str) -> None:
    for name, version in ((text, "1"), ("client", text)):
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        wire.send((request, 3), (request, 4), (request, 2))
        old, new, unnamed = wire.answers()
        assert (old.error_code, old.api_keys) == (new.error_code, new.api_keys) == (KafkaErrorCode.INVALID_REQUEST, [])
        assert unnamed.error_code == 0, "version 2 names no software"


@pytest.mark.parametrize("text", ["a", "apache-kafka-java", "librdkafka", "2.8.0-1.el9", "1..2--3"])
async def test_valid_client_software_name_is_accepted(client: Client, text: str) -> None:
    answer = await client.call(ApiVersionsRequest(client_software_name=text, client_software_version=text))
    assert answer.error_code == 0 and len(answer.api_keys) == len(SERVED)


async def test_unknown_version_of_api_versions_is_answered_in_version_0(client: Client, wire: Wire, hub: Hub) -> None:
    inside = hub.connect()
    inside.send(frame(18, 99, b"\0whatever"))
    answer = inside.take_received()
    assert answer[4:8] == b"\0\0\0\1"
    assert answer[8:] == b"\0\x23" + b"\0\0\0\1" + b"\0\x12" + b"\0\0" + b"\0\4"
    assert not inside.connection.closed
    wire.send((ApiVersionsRequest(), 0))
    assert len(wire.answers()[0].api_keys) == len(SERVED)


@pytest.mark.parametrize(("key", "version"), [(9999, 0), (-1, 0), (3, 99), (1, 3), (4, 0)])
async def test_unserved_key_closes_the_connection_with_one_log_line(
    hub: Hub, key: int, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "kafkalite"):
        inside = hub.connect()
        inside.send(frame(key & 0xFFFF, version, b"\0" * 20))
    assert inside.connection.closed and inside.take_received() == b""
    assert [record.levelname for record in caplog.records if record.name == "kafkalite.server"] == ["WARNING"]


async def test_exception_in_a_handler_ends_only_its_request(
    client: Client, wire: Wire, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(client.broker), "nodes", lambda *_: 1 // 0)
    cluster = next(row for row in ROWS if row.name == "DescribeCluster")
    with caplog.at_level(logging.ERROR, "kafkalite.server"):
        for _ in range(2):
            wire.send((cluster.request(endpoint_type=1), 1))
    assert [answer.error_code for answer in wire.answers()] == [KafkaErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert len(caplog.records) == 1 and "ZeroDivisionError" in caplog.text
