"""Stored configs that cannot be read: nothing of their topics is deleted, and every broker starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalite.clock import Outcome
from kafkalite.coordination import znodes
from kafkalite.coordination.tree import Create, Set
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkalite.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkalite.server.configs.config_resources import TOPIC
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_broker import SimulatedBroker
from kafkalite.testing.simulated_cluster import SimulatedCluster
from kafkalite.testing.virtual_loop import pass_time, run_virtually, virtual_wall_ms
from tests.kit.server import batch, fetch_request, fetched, produce_request
from tests.story.cluster.test_three_brokers import Client, led, run

DAY_MS = 86_400_000
CHECK_S = 400.0  # longer than log.retention.check.interval.ms
CONFIGS = znodes.topic_config_path("keep")
UNREADABLE = {
    "unknown key about deletion": znodes.encode_configs({"retention.ms": "-1", "retention.m": "1"}),
    "typing error": znodes.encode_configs({"retenton.ms": "-1"}),
    "wrong value": znodes.encode_configs({"retention.ms": "for ever"}),
    "wrong policy": znodes.encode_configs({"cleanup.policy": "kompact", "retention.ms": "1"}),
    "lags that contradict each other": znodes.encode_configs(
        {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4", "retention.ms": "1"}
    ),
    "no JSON": b"garbage",
    "values that are no texts": b'{"version":1,"config":{"retention.ms":1}}',
}


def write(cluster: SimulatedCluster, path: str, data: bytes) -> None:
    """Write a node as an administrator of the coordination service does, with a notification."""
    tree = cluster.zookeeper.tree
    node = Create(path, data) if tree.find(path) is None else Set(path, data)
    change = znodes.encode_config_change(path.removeprefix("/config/"))
    notice = Create(znodes.CONFIG_CHANGE_PREFIX, change, sequence=True)
    tree.multi([node, notice], tree.open_session(), cluster.zookeeper.clock.wall_ms())
    cluster.zookeeper.fire()


def old_batch() -> bytes:
    """A batch with a record of 30 days ago."""
    return batch(b"old", timestamp=virtual_wall_ms() - 30 * DAY_MS)


async def expired(client: Client, leader: int) -> bool:
    """Whether the first record of the topic is deleted."""
    response = await client.call(leader, fetch_request("keep", (0, 0)), 12)
    return fetched(response)["keep", 0].error_code == KafkaErrorCode.OFFSET_OUT_OF_RANGE


async def described(client: Client, broker_id: int, topic: str) -> Any:
    """The configs of a topic, as the response has them."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=topic, configuration_keys=None
    )
    response = await client.call(broker_id, DescribeConfigsRequest(resources=[resource]), 4)
    return response.results[0]


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_topic_whose_configs_cannot_be_read_keeps_its_records(
    data: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """While the brokers run, and after a start of each."""

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.create(await client.controller(1, 2, 3), "keep", 1)
        write(cluster, CONFIGS, znodes.encode_configs({"retention.ms": "-1"}))
        leader = (await led(client, 1, "keep", 1))[0]
        await client.call(leader, produce_request("keep", (0, old_batch())), 9)
        write(cluster, CONFIGS, data)
        await pass_time(CHECK_S)
        assert await client.values(leader, "keep", 0) == [b"old"]
        await cluster.brokers[leader].stop()
        await cluster.start(leader)
        await led(client, leader, "keep", 1)
        await pass_time(CHECK_S)
        assert await client.values(leader, "keep", 0) == [b"old"]
        write(cluster, CONFIGS, znodes.encode_configs({"retention.ms": "1000"}))
        await pass_time(CHECK_S)
        assert await expired(client, leader), "now its retention can be read"

    run(tmp_path, scenario)
    assert "nothing is deleted or compacted" in caplog.text


def test_configs_without_effect_of_other_versions_change_nothing_and_are_kept(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.create(await client.controller(1, 2, 3), "keep", 1)
        leader = (await led(client, 1, "keep", 1))[0]
        texts = {"message.downconversion.enable": "true", "max.message.bytes": "many", "future.key": "x"}
        write(cluster, CONFIGS, znodes.encode_configs(texts))
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        config = resource.AlterableConfig(name="retention.ms", config_operation=0, value="1000")
        request = resource(resource_type=TOPIC, resource_name="keep", configs=[config])
        altered = await client.call(1, IncrementalAlterConfigsRequest(resources=[request], validate_only=False), 1)
        assert altered.responses[0].error_code == 0
        data, _ = cluster.zookeeper.tree.get(CONFIGS)
        assert znodes.decode_configs("", data) == {**texts, "retention.ms": "1000"}
        found = {each.name: (each.value, each.is_sensitive) for each in (await described(client, 2, "keep")).configs}
        assert found["message.downconversion.enable"] == ("true", False)
        assert found["max.message.bytes"] == ("many", False), "as it is in the tree"
        assert found["future.key"] == (None, True), "an unknown value may be a secret"
        await client.call(leader, produce_request("keep", (0, old_batch())), 9)
        await pass_time(CHECK_S)
        assert await expired(client, leader), "none of them decides about deletion"
        write(cluster, CONFIGS, b"garbage")
        assert (await described(client, 2, "keep")).error_code == KafkaErrorCode.INVALID_CONFIG

    run(tmp_path, scenario)


@pytest.mark.parametrize("data", [b"garbage", znodes.encode_configs({"log.retention.ms": "never"})])
@pytest.mark.parametrize("broker_id", [None, 1], ids=["all brokers", "one"])
def test_unreadable_configs_of_brokers_end_no_start_and_keep_records(
    broker_id: int | None, data: bytes, tmp_path: Path
) -> None:
    """Of topics that have no value of their own."""

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        controller = await client.controller(1, 2, 3)
        for topic in ("keep", "own"):
            await client.create(controller, topic, 3)
            for partition, leader in (await led(client, 1, topic, 3)).items():
                await client.call(leader, produce_request(topic, (partition, batch(b"new"))), 9)
        write(cluster, znodes.broker_config_path(broker_id), data)
        write(cluster, znodes.group_config_path("g"), data)
        cluster.kill(1)
        await cluster.start(1)
        await led(client, 1, "keep", 3)
        for hosted in cluster.brokers[1].running.replicas:
            assert "retention.ms" in hosted.config.unreadable
        for hosted in cluster.brokers[2].running.replicas:
            assert ("retention.ms" in hosted.config.unreadable) == (broker_id is None)

    run(tmp_path, scenario)


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_broker_that_is_alone_keeps_the_records_and_starts(data: bytes, tmp_path: Path) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        broker = SimulatedBroker(str(tmp_path), network, settings={"broker.id": 1}, host="broker1", port=9092)
        async with broker:
            client = Client(network)
            await client.create(1, "keep", 1)
            await client.call(1, produce_request("keep", (0, batch(b"new"))), 9)
            session = broker.running.store._session
            paths = (znodes.broker_config_path(None), znodes.broker_config_path(1), znodes.group_config_path("g"))
            outcomes: list[Outcome] = []
            session.set(CONFIGS, data, outcomes.append)
            for path in paths:
                session.create(path, data, outcomes.append)
            await pass_time(1.0)
            assert len(outcomes) == 4 and not any(each.error for each in outcomes)
        async with broker:
            client = Client(network)
            (hosted,) = broker.running.replicas
            assert hosted.config.unreadable, "nothing of it is deleted"
            assert await client.values(1, "keep", 0) == [b"new"]

    run_virtually(main)
