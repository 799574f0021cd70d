"""Tests the requests of administrators about the cluster as a whole, at a broker that is alone."""

from pathlib import Path
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kafkalite.protocol.messages.elect_leaders import ElectLeadersRequest
from kafkalite.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kafkalite.protocol.messages.update_features import UpdateFeaturesRequest
from tests.kit.server import Client, batch, running
from tests.story.server.test_configs import GROUP, SET, alter

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
PREFERRED, UNCLEAN = 0, 1
UPGRADE, DOWNGRADE = 1, 2

NOT_NEEDED = KafkaErrorCode.ELECTION_NOT_NEEDED
UNKNOWN = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ListConfigResources.


async def listed(client: Client, *types: int) -> set[tuple[int, str]]:
    response = await client.call(ListConfigResourcesRequest(resource_types=list(types)))
    assert response.error_code == 0
    return {(each.resource_type, each.resource_name) for each in response.config_resources}


async def test_resources_of_the_requested_types_are_listed(client: Client) -> None:
    await client.create("orders", "payments")
    assert await alter(client, GROUP, "billing", ("consumer.session.timeout.ms", SET, "50000")) == (0, None)
    own = str(client.broker.broker_id)
    topics = {(TOPIC, "orders"), (TOPIC, "payments")}
    assert await listed(client) == {*topics, (BROKER, own), (BROKER_LOGGER, own), (GROUP, "billing")}
    assert await listed(client, TOPIC, TOPIC) == topics
    assert await listed(client, GROUP, BROKER) == {(GROUP, "billing"), (BROKER, own)}
    assert await listed(client, CLIENT_METRICS, BROKER_LOGGER) == {(BROKER_LOGGER, own)}


async def test_the_first_version_lists_client_metrics_only(client: Client) -> None:
    await client.create("orders")
    response = await client.call(ListConfigResourcesRequest(resource_types=[]), 0)
    assert (response.error_code, list(response.config_resources)) == (0, [])


async def test_an_unknown_resource_type_is_rejected(client: Client) -> None:
    response = await client.call(ListConfigResourcesRequest(resource_types=[TOPIC, 3]))
    assert (response.error_code, list(response.config_resources)) == (KafkaErrorCode.UNSUPPORTED_VERSION, [])


# ElectLeaders.


async def elect(client: Client, kind: int, *topics: tuple[str, list[int]], version: int = 2) -> dict[Any, int]:
    asked = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics]
    response = await client.call(ElectLeadersRequest(election_type=kind, topic_partitions=asked or None), version)
    assert response.error_code == 0
    return {
        (topic.topic, each.partition_id): each.error_code
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
async def test_no_election_is_needed_while_the_only_replica_leads(client: Client, kind: int) -> None:
    await client.create("orders", partitions=2)
    asked = ("orders", [1, 0, 1, 7, -1]), ("missing", [0]), ("orders", [0])
    assert await elect(client, kind, *asked) == {
        ("orders", 0): NOT_NEEDED,
        ("orders", 1): NOT_NEEDED,
        ("orders", 7): UNKNOWN,
        ("orders", -1): UNKNOWN,
        ("missing", 0): UNKNOWN,
    }
    assert await elect(client, kind) == {}, "a request for all partitions names those that need an election"


async def test_the_first_version_elects_preferred_leaders(client: Client) -> None:
    await client.create("orders")
    assert await elect(client, PREFERRED, ("orders", [0]), version=0) == {("orders", 0): NOT_NEEDED}


async def test_a_partition_without_its_files_has_no_eligible_leader(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as client:
        await client.create("orders", partitions=2)
        assert (await client.produce("orders", batch(b"x"), partition=1)).error_code == 0
    for path in (tmp_path / "orders-1").iterdir():
        path.unlink()
    (tmp_path / "orders-1").rmdir()
    async with running(str(tmp_path)) as client:
        unavailable = KafkaErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert await elect(client, PREFERRED) == {("orders", 1): unavailable}
        assert await elect(client, UNCLEAN) == {("orders", 1): KafkaErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


async def test_an_unknown_type_of_election_is_rejected(client: Client) -> None:
    response = await client.call(ElectLeadersRequest(election_type=2, topic_partitions=None))
    assert response.error_code == KafkaErrorCode.INVALID_REQUEST


# UpdateFeatures.


def updates(*levels: tuple[str, int], upgrade_type: int = 1) -> UpdateFeaturesRequest:
    key = UpdateFeaturesRequest.FeatureUpdateKey
    asked = [key(feature=name, max_version_level=level, upgrade_type=upgrade_type) for name, level in levels]
    return UpdateFeaturesRequest(feature_updates=asked)


@pytest.mark.parametrize("version", [0, 1])
async def test_every_level_of_a_feature_is_rejected_by_itself(client: Client, version: int) -> None:
    request = updates(("group.version", 1), ("other.version", 0), ("metadata.version", -2), ("", 1))
    response = await client.call(request, version)
    assert (response.error_code, response.error_message) == (0, None)
    assert {each.feature: each.error_code for each in response.results} == {
        "group.version": KafkaErrorCode.INVALID_UPDATE_VERSION,
        "other.version": 0,
        "metadata.version": KafkaErrorCode.INVALID_UPDATE_VERSION,
        "": KafkaErrorCode.INVALID_REQUEST,
    }


async def test_the_newest_version_rejects_all_features_with_the_first_one(client: Client) -> None:
    response = await client.call(updates(("other.version", 0), ("group.version", 1)))
    assert response.error_code == KafkaErrorCode.INVALID_UPDATE_VERSION
    assert "Invalid update version 1 for feature group.version" in response.error_message
    assert (await client.call(updates(("other.version", 0)))).error_code == 0
    response = await client.call(updates(("other.version", 0), upgrade_type=9))
    assert response.error_code == KafkaErrorCode.INVALID_UPDATE_VERSION


async def features(client: Client, version: int = 4) -> tuple[dict[str, tuple[int, int]], dict[str, int], int]:
    """The supported and the finalized features, and their epoch."""
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    response = await client.call(request, version)
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    return supported, finalized, response.finalized_features_epoch


async def test_the_level_of_transactions_is_2(client: Client) -> None:
    assert await features(client) == ({"transaction.version": (0, 2)}, {"transaction.version": 2}, 0)
    # KAFKA-17492: clients of version 3 reject a lowest level of 0.
    assert await features(client, 3) == ({}, {"transaction.version": 2}, 0)
    assert await features(client, 2) == ({}, {}, -1)


async def level_changes(client: Client, level: int, upgrade_type: int, version: int = 2) -> tuple[int, str | None]:
    response = await client.call(updates(("transaction.version", level), upgrade_type=upgrade_type), version)
    return response.error_code, response.error_message


async def test_the_level_of_transactions_is_changed(client: Client) -> None:
    error, text = await level_changes(client, 1, UPGRADE)
    assert error == KafkaErrorCode.INVALID_UPDATE_VERSION and text is not None and "Can't downgrade" in text
    assert await level_changes(client, 1, DOWNGRADE) == (0, None)
    assert (await features(client))[1:] == ({"transaction.version": 1}, 1)
    error, text = await level_changes(client, 3, UPGRADE)
    assert error == KafkaErrorCode.INVALID_UPDATE_VERSION and text is not None and "versions 0-2" in text
    error, text = await level_changes(client, 2, DOWNGRADE)
    assert error == KafkaErrorCode.INVALID_UPDATE_VERSION and text is not None and "newer version" in text
    assert await level_changes(client, 0, DOWNGRADE) == (0, None)
    assert (await features(client))[1:] == ({}, 2)
    assert await level_changes(client, 2, UPGRADE, 1) == (0, None)
    assert client.broker.features.transaction_version == 2


async def test_a_validated_level_is_not_stored(client: Client) -> None:
    request = updates(("transaction.version", 1), upgrade_type=DOWNGRADE)
    request.validate_only = True
    assert (await client.call(request)).error_code == 0
    assert (await features(client))[1:] == ({"transaction.version": 2}, 0)


async def test_the_level_of_transactions_survives_a_restart(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as client:
        assert await level_changes(client, 1, DOWNGRADE) == (0, None)
    async with running(str(tmp_path)) as client:
        assert (await features(client))[1:] == ({"transaction.version": 1}, 1)


# DescribeUserScramCredentials.


async def test_no_user_has_credentials(client: Client) -> None:
    response = await client.call(DescribeUserScramCredentialsRequest(users=None))
    assert (response.error_code, list(response.results)) == (0, [])
    users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in ("alice", "bob", "alice")]
    response = await client.call(DescribeUserScramCredentialsRequest(users=users))
    assert response.error_code == 0
    assert {each.user: each.error_code for each in response.results} == {
        "alice": KafkaErrorCode.DUPLICATE_RESOURCE,
        "bob": KafkaErrorCode.RESOURCE_NOT_FOUND,
    }


async def test_users_with_the_longest_names_are_answered(client: Client) -> None:
    name = "y" * 32767
    users = [DescribeUserScramCredentialsRequest.UserName(name=each) for each in (name, "z" + name[1:], name)]
    response = await client.call(DescribeUserScramCredentialsRequest(users=users))
    assert [(each.user, each.error_code) for each in response.results] == [
        (name, KafkaErrorCode.DUPLICATE_RESOURCE),
        ("z" + name[1:], KafkaErrorCode.RESOURCE_NOT_FOUND),
    ]
    assert all(len(each.error_message) < 1100 for each in response.results)
