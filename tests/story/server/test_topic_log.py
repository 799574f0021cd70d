"""Tests that the log names the client that created or deleted a topic."""

import logging

import pytest

from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.server.requests.topic_log import NAMES_PER_LINE
from tests.kit.server import Client


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [each.getMessage() for each in caplog.records if each.levelno == logging.INFO]
    caplog.clear()
    return [line for line in found if " topics: " in line]


async def test_topic_creation_and_deletion_are_logged_with_the_client(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client.peer._core.client_id = "deploy\n"
    await client.create("a", "b", partitions=3)
    assert lines(caplog) == [
        "client 'deploy\\n' at 127.0.0.1 created topics: a (3 partitions), b (3 partitions)",
    ]
    await client.create("c", validate_only=True)
    await client.create("a")
    assert lines(caplog) == []
    await client.delete("a", "nowhere")
    assert lines(caplog) == ["client 'deploy\\n' at 127.0.0.1 deleted topics: a"]
    await client.delete("nowhere")
    assert lines(caplog) == []


async def test_auto_created_topic_is_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("auto", "no/name")]
    for _ in range(2):
        await client.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=True))
    assert lines(caplog) == [f"client {client.peer._core.client_id!r} at 127.0.0.1 created topics: auto (1 partition)"]


async def test_many_created_topics_are_logged_in_several_lines(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await client.create(*(f"t{number}" for number in range(NAMES_PER_LINE + 1)))
    first, second = lines(caplog)
    assert first.count(" (1 partition)") == NAMES_PER_LINE
    assert second.endswith(f"created topics: t{NAMES_PER_LINE} (1 partition)")
