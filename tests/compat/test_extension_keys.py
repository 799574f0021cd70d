"""A broker that serves keys from 10000: its own client is answered, and foreign ones do as without them.

AGAINST plays no part here: the broker runs in this process, with one row more than it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from copy import copy

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.extensions.heartbeat_plus import HeartbeatPlusRequest, HeartbeatPlusResponse
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.server.requests.call import Call
from kafkalite.server.running.alone_broker import AloneBroker
from kafkalite.testing.thread import BrokerThread
from tests.kit import jvm
from tests.kit.clients import PYTHON_CLIENTS, Record
from tests.kit.clients.java import JAVA_VERSIONS, JavaTools

KEY = HeartbeatPlusRequest.api_key
BEAT = HeartbeatPlusRequest(group_id="Zürich", consumer_id="me", generation_id=4, session_timeout_ms=6000)
RECORDS = [Record(b"one", b"k", (("h", b"1"),)), Record(b"two", None, (("h", b"2"),))]


def fast_heartbeat(_call: Call, request: HeartbeatPlusRequest) -> HeartbeatPlusResponse:
    assert request == BEAT
    return HeartbeatPlusResponse(error_code=KafkaErrorCode.REBALANCE_IN_PROGRESS, generation_id=5)


@pytest.fixture
def extended(monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerThread]:
    """A broker with a topic that answers HeartbeatPlus."""
    rows = {row.api_key: row for row in AloneBroker.rows}
    rows[KEY] = copy(rows[KEY].load())
    rows[KEY].handler = fast_heartbeat
    monkeypatch.setattr(AloneBroker, "rows", tuple(rows.values()))
    with BrokerThread() as running:
        running.create_topic("orders")
        yield running


def test_own_client_uses_extension_keys(extended: BrokerThread) -> None:
    async def speak() -> None:
        host, port = extended.address.split(":")
        async with ClientConnection(host, int(port)) as peer:
            assert await peer.call(BEAT) == HeartbeatPlusResponse(error_code=27, generation_id=5)
            asked = ApiVersionsRequest(client_software_name="test", client_software_version="1")
            for version in range(5):
                answer = await peer.call(asked, version_max=version)
                assert [each.max_version for each in answer.api_keys if each.api_key == KEY] == [0]

    asyncio.run(speak())


def test_python_clients_ignore_extension_keys(extended: BrokerThread) -> None:
    sent: list[Record] = []
    for client in PYTHON_CLIENTS:
        sent += client.write(extended.address, "orders", RECORDS)
        read = client.read(extended.address, "orders", len(sent))
        assert [record.content() for record in read] == [record.content() for record in sent], client.name


@pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka's tools: {jvm.java_missing()}")
@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_java_tools_ignore_extension_keys(extended: BrokerThread, version: str) -> None:
    java = JavaTools(version, extended.address)
    assert f"UNKNOWN({KEY}): 0" in java.run("broker-api-versions")
    java.write("orders", RECORDS)
    assert [record.value for record in java.read("orders", 2)] == [b"one", b"two"]
