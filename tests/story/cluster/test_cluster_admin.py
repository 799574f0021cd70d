"""Tests the requests of administrators about the cluster as a whole, in a cluster of three brokers."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from kafkalite.protocol.messages.elect_leaders import ElectLeadersRequest
from kafkalite.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kafkalite.protocol.messages.update_features import UpdateFeaturesRequest
from kafkalite.testing.simulated_cluster import SimulatedCluster
from tests.story.cluster.test_three_brokers import Client, led, run, until

PREFERRED, UNCLEAN = 0, 1
BROKER = 4


async def elections(client: Client, broker_id: int, kind: int, partitions: list[int] | None) -> tuple[int, Any]:
    """The error of an ElectLeaders request, and that of each partition of `orders`."""
    asked = ElectLeadersRequest.TopicPartitions(topic="orders", partitions=partitions or [])
    request = ElectLeadersRequest(election_type=kind, topic_partitions=None if partitions is None else [asked])
    response = await client.call(broker_id, request, 2)
    results = [each for topic in response.replica_election_results for each in topic.partition_result]
    return response.error_code, {each.partition_id: each.error_code for each in results}


def test_only_the_controller_elects_leaders_and_updates_features(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        controller = await client.controller(1, 2, 3)
        other = controller % 3 + 1
        await client.create(controller, "orders")
        refused, not_needed = KafkaErrorCode.NOT_CONTROLLER, KafkaErrorCode.ELECTION_NOT_NEEDED
        assert await elections(client, other, PREFERRED, [0]) == (refused, {0: refused})
        assert await elections(client, controller, PREFERRED, [0, 1]) == (0, {0: not_needed, 1: not_needed})
        update = UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=1)
        request = UpdateFeaturesRequest(feature_updates=[update])
        assert (await client.call(other, request, 2)).error_code == refused
        assert (await client.call(controller, request, 2)).error_code == KafkaErrorCode.INVALID_UPDATE_VERSION

    run(tmp_path, scenario)


def test_every_broker_learns_the_level_of_transactions(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        controller = await client.controller(1, 2, 3)
        key = UpdateFeaturesRequest.FeatureUpdateKey
        update = key(feature="transaction.version", max_version_level=1, upgrade_type=2)
        request = UpdateFeaturesRequest(feature_updates=[update])
        assert (await client.call(controller, request, 2)).error_code == 0

        async def lowered(broker_id: int) -> bool | None:
            asked = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
            response = await client.call(broker_id, asked, 4)
            levels = {each.name: each.max_version_level for each in response.finalized_features}
            return True if levels == {"transaction.version": 1} else None

        for broker_id in (1, 2, 3):
            await until(partial(lowered, broker_id))

    run(tmp_path, scenario)


def test_partitions_of_a_killed_broker_have_no_eligible_leader(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        controller = await client.controller(1, 2, 3)
        await client.create(controller, "orders")
        leaders = await led(client, controller, "orders", 6)
        dead = controller % 3 + 1
        lost = {index for index, leader in leaders.items() if leader == dead}
        cluster.kill(dead)

        async def unavailable() -> Any:
            _error, found = await elections(client, controller, PREFERRED, None)
            return found if found.keys() == lost else None

        assert set((await until(unavailable)).values()) == {KafkaErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        _error, found = await elections(client, controller, UNCLEAN, None)
        assert found == dict.fromkeys(lost, KafkaErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)

    run(tmp_path, scenario)


def test_all_brokers_are_listed_as_resources(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.controller(1, 2, 3)
        for broker_id in cluster.brokers:
            response = await client.call(broker_id, ListConfigResourcesRequest(resource_types=[BROKER]), 1)
            assert sorted(each.resource_name for each in response.config_resources) == ["1", "2", "3"]

    run(tmp_path, scenario)


def test_quotas_that_any_broker_writes_are_described_and_enforced_by_all(tmp_path: Path) -> None:
    entry, describe = AlterClientQuotasRequest.EntryData, DescribeClientQuotasRequest(components=[], strict=False)

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.controller(1, 2, 3)
        keys = ["producer_byte_rate", "consumer_byte_rate", "request_percentage"]
        alice = [entry.EntityData(entity_type="user", entity_name="alice")]
        requests = [
            AlterClientQuotasRequest(entries=[entry(entity=alice, ops=[entry.OpData(key=key, value=5.0)])])
            for key in keys
        ]
        calls = [client.call(at, request, 1) for at, request in zip(cluster.brokers, requests, strict=True)]
        responses = await asyncio.gather(*calls)
        assert [response.entries[0].error_code for response in responses] == [0, 0, 0]

        async def described(broker_id: int) -> Any:
            entries = (await client.call(broker_id, describe, 1)).entries
            return len(entries[0].values) == len(keys) or None

        async def enforced(broker_id: int) -> Any:
            quotas = cluster.brokers[broker_id].running.quotas.enforced
            limits = () if quotas is None else (quotas.producer, quotas.consumer, quotas.request)
            found = [limit.limit_of("alice", "app") for limit in limits]
            return found == [(("alice", ""), 5.0)] * len(keys) or None

        for broker_id in cluster.brokers:
            await until(partial(described, broker_id))
            await until(partial(enforced, broker_id))
        changes = [path for path, _ in cluster.zookeeper.tree.walk() if path.startswith("/config/changes/")]
        assert len(changes) == len(keys)

    run(tmp_path, scenario)
