"""Three whole brokers of one cluster in one process, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkalite.errors import KafkaConnectionError, KafkaErrorCode
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_cluster import SimulatedCluster
from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.kit.members import codes, commit, fetch, offsets_of
from tests.kit.server import batch, fetch_request, fetched, outcomes, produce_request, values_of

BROKERS = 3
WAIT_S = 20.0


class Client:
    """Connections to the brokers of a cluster."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network

    async def call(self, broker_id: int, request: Any, version: int) -> Any:
        async with ClientConnection(f"broker{broker_id}", 9092, timeout_s=60.0, dial=self.network.dial) as connection:
            return await connection.call(request, version_max=version)

    async def metadata(self, broker_id: int, *topics: str) -> MetadataResponse:
        """The metadata of topics as one broker has them."""
        names = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        found: MetadataResponse = await self.call(broker_id, request, 12)
        return found

    async def controller(self, *asked: int) -> int:
        """The controller, once all these brokers name the same one."""
        return await until(lambda: self._controller(asked))

    async def _controller(self, asked: tuple[int, ...]) -> int | None:
        found = {(await self.metadata(each)).controller_id for each in asked}
        (controller, *others) = found
        return None if others or controller not in asked else controller

    async def create(self, controller: int, name: str, partitions: int = 6, factor: int = 1) -> Any:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=factor, assignments=[], configs=[]
        )
        created = await self.call(controller, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        return created.topics[0]

    async def leaders(self, broker_id: int, name: str) -> dict[int, int]:
        """The leader of each partition, as one broker knows it."""
        (topic,) = (await self.metadata(broker_id, name)).topics
        return {part.partition_index: part.leader_id for part in topic.partitions}

    async def produce(self, leader: int, topic: str, partition: int, *values: bytes) -> int:
        """The error code of a produce request."""
        response = await self.call(leader, produce_request(topic, (partition, batch(*values))), 9)
        return outcomes(response)[0].error_code

    async def values(self, leader: int, topic: str, partition: int) -> list[bytes]:
        response = await self.call(leader, fetch_request(topic, (partition, 0)), 12)
        part = fetched(response)[topic, partition]
        assert part.error_code == 0
        return values_of(part.records)


async def until(look: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """The first result that is not None."""
    waited_s = 0.0
    while (found := await look()) is None:
        assert waited_s < WAIT_S, "it takes too long"
        waited_s += 0.05
        await pass_time(0.05)
    return found


Scenario = Callable[[SimulatedCluster, Client], Coroutine[Any, Any, Any]]


def run(directory: Path, scenario: Scenario, seed: int = 0, settings: dict[str, Any] | None = None) -> Any:
    async def main() -> Any:
        network = MemoryNetwork(Random(seed), delay_s=(0.0001, 0.002))
        async with SimulatedCluster(str(directory), network, BROKERS, seed=seed, settings=settings) as cluster:
            return await scenario(cluster, Client(network))

    return run_virtually(main)


async def led(client: Client, broker_id: int, topic: str, count: int) -> dict[int, int]:
    """The leaders, once a broker knows one for each partition."""

    async def look() -> dict[int, int] | None:
        leaders = await client.leaders(broker_id, topic)
        return leaders if len(leaders) == count and min(leaders.values()) > 0 else None

    found: dict[int, int] = await until(look)
    return found


def test_a_topic_is_spread_over_the_brokers_and_served_by_its_leaders(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        controller = await client.controller(1, 2, 3)
        assert (await client.create(controller, "orders")).error_code == 0
        leaders = await client.leaders(controller, "orders")
        assert set(leaders.values()) == {1, 2, 3}, "answered when every partition has a leader"
        for broker_id in cluster.brokers:
            assert await led(client, broker_id, "orders", 6) == leaders
            assert [each.node_id for each in (await client.metadata(broker_id)).brokers] == [1, 2, 3]
        for partition, leader in leaders.items():
            assert await client.produce(leader, "orders", partition, b"%d" % partition) == 0
            assert await client.values(leader, "orders", partition) == [b"%d" % partition]
            other = leader % 3 + 1
            error = await client.produce(other, "orders", partition, b"x")
            assert error == KafkaErrorCode.NOT_LEADER_OR_FOLLOWER

    run(tmp_path, scenario)


def test_other_brokers_and_higher_factors_are_refused(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        controller = await client.controller(1, 2, 3)
        refused = await client.create(controller % 3 + 1, "orders")
        assert refused.error_code == KafkaErrorCode.NOT_CONTROLLER
        refused = await client.create(controller, "orders", factor=4)
        assert refused.error_code == KafkaErrorCode.INVALID_REPLICATION_FACTOR
        assert "4 larger than available brokers: 3" in (refused.error_message or "")
        assert not (await client.create(controller, "orders", factor=3)).error_code

    run(tmp_path, scenario)


def test_a_deleted_topic_is_gone_everywhere(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        controller = await client.controller(1, 2, 3)
        await client.create(controller, "orders")
        await client.create(controller, "kept")
        deleted = await client.call(controller, DeleteTopicsRequest(topic_names=["orders"], timeout_ms=10_000), 5)
        assert deleted.responses[0].error_code == 0
        for broker_id in cluster.brokers:

            async def look(broker_id: int = broker_id) -> bool | None:
                topics = {
                    each.name: each.error_code for each in (await client.metadata(broker_id, "orders", "kept")).topics
                }
                return topics == {"orders": KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "kept": 0} or None

            await until(look)
        assert not any("/topics/orders" in path for path, _ in cluster.zookeeper.tree.walk())

    run(tmp_path, scenario)


@pytest.mark.parametrize("which", ["controller", "other"])
def test_a_killed_broker_returns_with_its_records(tmp_path: Path, which: str) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        controller = await client.controller(1, 2, 3)
        await client.create(controller, "orders")
        leaders = await client.leaders(controller, "orders")
        for partition, leader in leaders.items():
            assert await client.produce(leader, "orders", partition, b"before") == 0
        killed = controller if which == "controller" else controller % 3 + 1
        others = [each for each in cluster.brokers if each != killed]
        cluster.kill(killed)
        await client.controller(*others)
        await cluster.start(killed)
        await client.controller(1, 2, 3)
        for broker_id in cluster.brokers:
            assert await led(client, broker_id, "orders", 6) == leaders
        for partition, leader in leaders.items():

            async def served(partition: int = partition, leader: int = leader) -> bool | None:
                return await client.produce(leader, "orders", partition, b"after") == 0 or None

            await until(served)
            assert await client.values(leader, "orders", partition) == [b"before", b"after"]

    run(tmp_path, scenario)


@pytest.mark.parametrize("which", ["controller", "other"])
def test_a_broker_whose_session_expires_registers_again(tmp_path: Path, which: str) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        controller = await client.controller(1, 2, 3)
        await client.create(controller, "orders")
        leaders = await client.leaders(controller, "orders")
        expired = controller if which == "controller" else controller % 3 + 1
        cluster.expire(expired)
        await pass_time(1.0)
        await client.controller(1, 2, 3)
        for partition, leader in leaders.items():

            async def served(partition: int = partition, leader: int = leader) -> bool | None:
                return await client.produce(leader, "orders", partition, b"after") == 0 or None

            await until(served)

    run(tmp_path, scenario)


def test_a_broker_whose_session_expires_during_its_start_serves(tmp_path: Path) -> None:
    """At any step of the start, each some messages later than the one before."""

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        async def serves() -> bool | None:
            try:
                return len((await client.metadata(2)).brokers) == BROKERS or None
            except KafkaConnectionError:  # until it is registered again
                return None

        for step in range(25):
            cluster.kill(2)
            starting = asyncio.ensure_future(cluster.start(2))
            await pass_time(0.001 * step)
            cluster.expire(2)
            await starting
            await until(serves)

    run(tmp_path, scenario)


def test_groups_are_coordinated_by_the_leaders_of_their_partitions(tmp_path: Path) -> None:
    """Commits and reads go to the coordinator that any broker names; they survive its death."""

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        controller = await client.controller(1, 2, 3)
        await client.create(controller, "orders")
        groups = [f"g{number}" for number in range(8)]
        coordinators = {group: await coordinator(client, group, tuple(cluster.brokers)) for group in groups}
        assert len(set(coordinators.values())) > 1, "the groups are spread"
        for group, broker_id in coordinators.items():
            committed = await until(lambda group=group, at=broker_id: committing(client, at, group))
            assert committed == 0
        other = coordinators["g0"] % BROKERS + 1
        response = await client.call(other, commit("g0", "orders", {0: 5}), 8)
        assert codes(response) == [KafkaErrorCode.NOT_COORDINATOR]
        killed = coordinators["g0"]
        cluster.kill(killed)
        await client.controller(*(each for each in cluster.brokers if each != killed))
        await cluster.start(killed)
        for group in groups:
            found = await coordinator(client, group, (killed,))
            offsets = await until(lambda group=group, at=found: reading(client, at, group))
            assert offsets == {("orders", 0): 5}, group

    run(tmp_path, scenario, settings={"offsets.topic.num.partitions": 6})


async def coordinator(client: Client, group: str, asked: tuple[int, ...]) -> int:
    """The coordinator of a group, once all these brokers name the same one."""

    async def look() -> int | None:
        request = FindCoordinatorRequest(key=group, key_type=0)
        answers = [await client.call(each, request, 3) for each in asked]
        ids = {answer.node_id for answer in answers}
        return ids.pop() if len(ids) == 1 and not any(answer.error_code for answer in answers) else None

    found: int = await until(look)
    return found


async def committing(client: Client, broker_id: int, group: str) -> int | None:
    """0 once a commit is accepted."""
    (code,) = codes(await client.call(broker_id, commit(group, "orders", {0: 5}), 8))
    return None if code else 0


async def reading(client: Client, broker_id: int, group: str) -> Any:
    """The offsets of a group, once its coordinator has loaded them."""
    response = await client.call(broker_id, fetch(group), 8)
    return None if response.groups[0].error_code else offsets_of(response)


def test_topics_are_created_on_demand_by_any_broker(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        controller = await client.controller(1, 2, 3)
        asked = controller % BROKERS + 1
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True
        )
        (topic,) = (await client.call(asked, request, 12)).topics
        assert topic.error_code == KafkaErrorCode.LEADER_NOT_AVAILABLE
        leaders = await led(client, asked, "auto", 1)
        assert await client.produce(leaders[0], "auto", 0, b"x") == 0

    run(tmp_path, scenario)


def test_changed_configs_reach_every_leader(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        controller = await client.controller(1, 2, 3)
        await client.create(controller, "orders")
        alteration = IncrementalAlterConfigsRequest.AlterConfigsResource
        for broker_id, kind, name, key in (
            (1, 2, "orders", "max.message.bytes"),
            (2, 4, "", "message.max.bytes"),
        ):
            config = alteration.AlterableConfig(name=key, config_operation=0, value="77777")
            resource = alteration(resource_type=kind, resource_name=name, configs=[config])
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            assert (await client.call(broker_id, request, 1)).responses[0].error_code == 0
        await pass_time(1.0)
        for broker_id in cluster.brokers:
            assert await described(client, broker_id, "orders", "max.message.bytes") == "77777"
        for broker in cluster.brokers.values():
            assert broker.running.config.values["message.max.bytes"] == 77_777
            for topic in broker.running.replicas:
                assert topic.config.max_message_bytes == 77_777

    run(tmp_path, scenario)


async def described(client: Client, broker_id: int, topic: str, key: str) -> str | None:
    """The value of a topic's config as a broker describes it."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name=topic, configuration_keys=[key]
    )
    (result,) = (await client.call(broker_id, DescribeConfigsRequest(resources=[resource]), 4)).results
    assert result.error_code == 0
    value: str | None = result.configs[0].value
    return value


def test_partitions_are_added(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        controller = await client.controller(1, 2, 3)
        await client.create(controller, "orders", 2)
        more = CreatePartitionsRequest.CreatePartitionsTopic(name="orders", count=5, assignments=None)
        request = CreatePartitionsRequest(topics=[more], timeout_ms=10_000, validate_only=False)
        assert (await client.call(controller, request, 2)).results[0].error_code == 0
        for broker_id in cluster.brokers:
            leaders = await led(client, broker_id, "orders", 5)
        for partition, leader in leaders.items():
            assert await client.produce(leader, "orders", partition, b"x") == 0

    run(tmp_path, scenario)


def test_a_seed_repeats_its_run(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> list[object]:
        controller = await client.controller(1, 2, 3)
        created = await client.create(controller, "orders")
        cluster.kill(controller)
        other = await client.controller(*(each for each in cluster.brokers if each != controller))
        await cluster.start(controller)
        tree = [(path, node.data, node.czxid, node.mtime) for path, node in cluster.zookeeper.tree.walk()]
        return [controller, created.topic_id, other, tree]

    assert run(tmp_path / "first", scenario, seed=5) == run(tmp_path / "second", scenario, seed=5)
