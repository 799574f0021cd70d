"""Apache Kafka's tools for quotas, client metrics, elections and features, in one Java process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kafkalite._speedups.codec import encode_request
from kafkalite.net.client import ClientConnection
from tests.compat.conftest import MakeTopic
from tests.kit import jvm
from tests.kit.brokers import AGAINST, wait_until
from tests.kit.clients.java_members import JavaProcess
from tests.kit.server import batch, produce_request

ONLY_4 = pytest.mark.skipif(AGAINST == "kafka-zookeeper", reason="Apache Kafka with ZooKeeper has none")
USER_CLIENT = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-name", "app")


@pytest.fixture(scope="module")
def tools(address: str) -> Iterator[JavaProcess]:
    if (reason := jvm.java_missing()) is not None:
        pytest.skip(f"Apache Kafka's tools: {reason}")
    with JavaProcess(jvm.CURRENT, address) as process:
        yield process


def test_quotas(tools: JavaProcess) -> None:
    """kafka-configs for users, client ids, both and addresses; the defaults of a type; values that are rejected."""

    def described(*entity: str) -> str:
        return tools.tool("configs", "--describe", *entity)

    def alter(*args: str) -> str:
        return tools.tool("configs", "--alter", *args)

    limits = "producer_byte_rate=1024,request_percentage=12.5"
    assert "Completed updating config for user alice" in alter(*USER_CLIENT, "--add-config", limits)
    users, clients = ("--entity-type", "users"), ("--entity-type", "clients")
    address = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
    assert "Completed" in alter(*users, "--entity-default", "--add-config", "consumer_byte_rate=7")
    assert "Completed" in alter(*clients, "--entity-name", "a b/ü", "--add-config", "controller_mutation_rate=3.5")
    assert "Completed" in alter(*address, "--add-config", "connection_creation_rate=3")
    of_both = "Quota configs for user-principal 'alice', client-id 'app' are"
    wait_until(lambda: of_both in described(*USER_CLIENT), "the quotas of a user and a client id")
    assert "producer_byte_rate=1024.0" in (shown := described(*USER_CLIENT)) and "request_percentage=12.5" in shown
    expected = "Quota configs for the default user-principal are consumer_byte_rate=7.0"
    wait_until(lambda: expected in described(*users), "the default of users")
    expected = "Quota configs for client-id 'a b/ü' are controller_mutation_rate=3.5"
    wait_until(lambda: expected in described(*clients), "the quotas of a client id")
    expected = "Quota configs for ip '10.0.0.1' are connection_creation_rate=3.0"
    wait_until(lambda: expected in described(*address), "the quotas of an address")
    assert "InvalidRequestException" in alter(*USER_CLIENT, "--add-config", "producer_byte_rate=1.5")
    removed = "producer_byte_rate,request_percentage"
    assert "Completed" in alter(*USER_CLIENT, "--delete-config", removed)
    assert "Completed" in alter(*users, "--entity-default", "--delete-config", "consumer_byte_rate")
    assert "Completed" in alter(*clients, "--entity-name", "a b/ü", "--delete-config", "controller_mutation_rate")
    assert "Completed" in alter(*address, "--delete-config", "connection_creation_rate")
    for entity in (users, clients, ("--entity-type", "ips"), (*users, *clients)):
        wait_until(lambda entity=entity: "Quota configs" not in described(*entity), "no quotas")  # type: ignore[misc]


def test_quota_of_kafka_configs_throttles_a_producer(tools: JavaProcess, new_topic: MakeTopic, address: str) -> None:
    """The first Produce exceeds the quota of all windows; its response has the throttle time of Kafka's formula."""
    topic, client = new_topic(), ("--entity-type", "clients", "--entity-name", "throttled")
    assert "Completed" in tools.tool("configs", "--alter", *client, "--add-config", "producer_byte_rate=100")
    request = produce_request(topic, (0, batch(bytes(2000))), acks=1)
    size = len(encode_request(request, 9, 1, "throttled"))

    async def throttle_time_ms() -> int:
        host, port = address.split(":")
        async with ClientConnection(host, int(port), client_id="throttled") as connection:
            response = await connection.call(request, version_max=9)
        return int(response.throttle_time_ms)

    wait_until(lambda: asyncio.run(throttle_time_ms()) >= (size - 1000) * 10, "the throttle time of the quota")
    assert "Completed" in tools.tool("configs", "--alter", *client, "--delete-config", "producer_byte_rate")


@ONLY_4
def test_client_metrics(tools: JavaProcess) -> None:
    """kafka-client-metrics and kafka-configs find none."""
    assert "exit 0" in tools.tool("client-metrics", "--list")
    assert "Exception" not in tools.tool("configs", "--describe", "--entity-type", "client-metrics")


def test_leader_elections(tools: JavaProcess, new_topic: MakeTopic) -> None:
    """kafka-leader-election: nothing is to be elected, one partition does not exist."""
    topic = new_topic(partitions=2)
    assert tools.tool("leader-election", "--election-type", "preferred", "--all-topic-partitions").strip() == "exit 0"
    one = ("--topic", topic, "--partition", "1")
    for kind in ("preferred", "unclean"):
        shown = tools.tool("leader-election", "--election-type", kind, *one)
        assert f"Valid replica already elected for partitions {topic}-1" in shown
    shown = tools.tool("leader-election", "--election-type", "preferred", "--topic", "missing", "--partition", "1")
    assert "UnknownTopicOrPartitionException" in shown and "exit 1" in shown


@ONLY_4
def test_features(tools: JavaProcess) -> None:
    """kafka-features: the finalized features, and a level that is not supported."""
    assert ("group.version" in tools.tool("features", "describe")) == (AGAINST == "kafka")
    shown = tools.tool("features", "upgrade", "--feature", "group.version=99")
    assert "Invalid update version 99 for feature group.version" in shown and "exit 1" in shown
