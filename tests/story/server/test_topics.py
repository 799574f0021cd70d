"""Tests topics: created, described, extended, truncated and deleted by request."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkalite.cluster.metadata import image
from kafkalite.cluster.metadata.image import ClusterImage
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.delete_records import DeleteRecordsRequest
from kafkalite.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkalite.protocol.messages.describe_cluster import DescribeClusterRequest
from kafkalite.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.kit.server import Client, batch, running

Wanted = MetadataRequest.MetadataRequestTopic


async def metadata(client: Client, *names: str, version: int = 13, create: bool = False) -> MetadataResponse:
    topics = [Wanted(name=name) for name in names]
    answer: MetadataResponse = await client.call(
        MetadataRequest(topics=topics, allow_auto_topic_creation=create), version
    )
    return answer


async def grow(client: Client, name: str, count: int, *, validate_only: bool = False, version: int = 3) -> object:
    topics = [CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=validate_only)
    return (await client.call(request, version)).results[0]


async def delete_records(client: Client, topic: str, partition: int, offset: int) -> tuple[int, int]:
    asked = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition(partition_index=partition, offset=offset)
    topics = [DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[asked])]
    answer = await client.call(DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    found = answer.topics[0].partitions[0]
    return found.error_code, found.low_watermark


# Creating.


@pytest.mark.parametrize("version", range(2, 8))
async def test_create_topics_in_every_version(client: Client, version: int) -> None:
    asked = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=3, replication_factor=1)
    (found,) = (await client.call(CreateTopicsRequest(topics=[asked]), version)).topics
    assert (found.name, found.error_code, found.error_message) == ("t", 0, None)
    if version >= 5:
        assert (found.num_partitions, found.replication_factor) == (3, 1)
        assert {entry.name: entry.value for entry in found.configs}["retention.ms"] == "604800000"
    assert found.topic_id == (client.topic_id("t") if version >= 7 else bytes(16))


async def test_invalid_topics_are_not_created(client: Client) -> None:
    await client.create("a.b")

    async def refused(name: str, **how: object) -> tuple[int, str]:
        (found,) = await client.create(name, **how)  # type: ignore[arg-type]
        (same,) = await client.create(name, validate_only=True, **how)  # type: ignore[arg-type]
        assert (same.error_code, same.error_message) == (found.error_code, found.error_message)
        return found.error_code, found.error_message

    error, text = await refused("a.b")
    assert error == KafkaErrorCode.TOPIC_ALREADY_EXISTS and "Topic 'a.b' already exists" in text
    assert (await refused("a_b"))[0] == KafkaErrorCode.INVALID_TOPIC_EXCEPTION
    for name in ("", ".", "..", "../x", "a/b", "x" * 250, "ü"):
        assert (await refused(name))[0] == KafkaErrorCode.INVALID_TOPIC_EXCEPTION
    assert (await refused("t", partitions=0))[0] == KafkaErrorCode.INVALID_PARTITIONS
    for factor in (0, 2):
        assert (await refused("t", factor=factor))[0] == KafkaErrorCode.INVALID_REPLICATION_FACTOR
    error, text = await refused("t", nope="1")
    assert error == KafkaErrorCode.INVALID_CONFIG and "Unknown topic config name: nope" in text
    error, text = await refused("t", retention_ms="soon")
    assert error == KafkaErrorCode.INVALID_CONFIG
    assert "Invalid value soon for configuration retention.ms: Not a number of type LONG" in text
    assert set(client.broker.image.topics) == {"a.b"}


async def test_create_topics_uses_broker_defaults() -> None:
    async with running(settings={"num.partitions": "4"}) as client:
        (found,) = await client.create("t", partitions=-1, factor=-1)
        assert (found.error_code, found.num_partitions, found.replication_factor) == (0, 4, 1)


async def test_create_topics_with_explicit_assignment(client: Client) -> None:
    entry = CreateTopicsRequest.CreatableTopic.CreatableReplicaAssignment
    for brokers, error in (([1], 0), ([2], KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT)):
        asked = CreateTopicsRequest.CreatableTopic(
            name=f"t{brokers[0]}",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[entry(partition_index=index, broker_ids=brokers) for index in range(2)],
        )
        (found,) = (await client.call(CreateTopicsRequest(topics=[asked]))).topics
        assert found.error_code == error


async def test_duplicate_topic_in_one_request_is_rejected(client: Client) -> None:
    found = await client.create("t", "t", "u")
    assert {each.name: each.error_code for each in found} == {"t": KafkaErrorCode.INVALID_REQUEST, "u": 0}


async def test_create_topics_validate_only(client: Client) -> None:
    (found,) = await client.create("t", partitions=2, validate_only=True, retention_ms="5")
    assert (found.error_code, found.num_partitions, found.topic_id) == (0, 2, bytes(16))
    assert not client.broker.image.topics


# Metadata.


@pytest.mark.parametrize("version", range(14))
async def test_metadata_in_every_version(client: Client, version: int) -> None:
    await client.create("t", partitions=2)
    answer = await metadata(client, "t", version=version)
    (broker,) = answer.brokers
    assert f"{broker.host}:{broker.port}" == client.broker.address and broker.node_id == 1
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
    assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [
        (0, 1, [1], [1]),
        (1, 1, [1], [1]),
    ]
    assert answer.controller_id == (1 if version >= 1 else -1)
    assert answer.cluster_id == (client.broker.cluster_id if version >= 2 else None)
    assert topic.topic_id == (client.topic_id("t") if version >= 10 else bytes(16))


async def test_metadata_of_all_no_and_some_topics(client: Client) -> None:
    await client.create("t", "u")

    async def names(topics: list[Wanted] | None, version: int) -> list[str]:
        return sorted(topic.name for topic in (await client.call(MetadataRequest(topics=topics), version)).topics)

    assert await names([], 0) == ["t", "u"]
    assert await names(None, 1) == ["t", "u"]
    assert await names([], 1) == []
    assert await names([], 13) == []


@pytest.mark.parametrize("name", [None, "", "another"])
async def test_metadata_by_topic_id(client: Client, name: str | None) -> None:
    """The name beside the id is ignored: Java sends an empty one."""
    await client.create("t")
    wanted = [Wanted(topic_id=topic_id, name=name) for topic_id in (client.topic_id("t"), bytes(15) + b"\1")]
    known, unknown = (await client.call(MetadataRequest(topics=wanted), 12)).topics
    assert list(client.broker.image.topics) == ["t"], "the name is not created"
    assert (known.error_code, known.name) == (0, "t")
    assert (unknown.error_code, unknown.name) == (KafkaErrorCode.UNKNOWN_TOPIC_ID, None)


async def test_auto_creation_needs_client_and_broker_setting(client: Client) -> None:
    (absent,) = (await metadata(client, "t")).topics
    assert absent.error_code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not client.broker.image.topics
    (made,) = (await metadata(client, "t", create=True)).topics
    assert (made.error_code, len(made.partitions)) == (0, 1)
    (old,) = (await metadata(client, "u", version=3)).topics  # before v4 there was no way to say no
    assert old.error_code == 0
    (wrong,) = (await metadata(client, "a/b", create=True)).topics
    assert wrong.error_code == KafkaErrorCode.INVALID_TOPIC_EXCEPTION
    async with running(settings={"auto.create.topics.enable": "false"}) as other:
        (absent,) = (await metadata(other, "t", create=True)).topics
        assert absent.error_code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_concurrent_auto_creation_creates_one_topic(client: Client) -> None:
    first, second = await asyncio.gather(metadata(client, "t", create=True), metadata(client, "t", create=True))
    assert [topic.error_code for answer in (first, second) for topic in answer.topics] == [0, 0]
    assert first.topics[0].topic_id == second.topics[0].topic_id == client.topic_id("t")


async def test_internal_topic_is_marked(client: Client) -> None:
    await client.create("__consumer_offsets")
    assert (await metadata(client, "__consumer_offsets")).topics[0].is_internal
    (found,) = await client.delete("__consumer_offsets")
    assert found.error_code


# Growing.


@pytest.mark.parametrize("version", range(4))
async def test_new_partitions_accept_appends(client: Client, version: int) -> None:
    await client.create("t")
    await client.produce("t", batch(b"0"))
    assert (await grow(client, "t", 3, validate_only=True, version=version)).error_code == 0
    assert len((await metadata(client, "t")).topics[0].partitions) == 1
    assert (await grow(client, "t", 3, version=version)).error_code == 0
    assert len((await metadata(client, "t")).topics[0].partitions) == 3
    assert (await client.produce("t", batch(b"2"), partition=2)).base_offset == 0
    assert await client.read("t") == [b"0"]


async def test_invalid_partition_counts_are_rejected(client: Client) -> None:
    await client.create("t")
    same = await grow(client, "t", 1)
    assert (same.error_code, same.error_message) == (37, "Topic already has 1 partition(s).")
    assert (await grow(client, "t", 0)).error_code == KafkaErrorCode.INVALID_PARTITIONS
    assert (await grow(client, "nowhere", 2)).error_code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_partitions_of_internal_topics_are_not_added(client: Client) -> None:
    """Another number of partitions would give groups another coordinator."""
    await client.call(FindCoordinatorRequest(coordinator_keys=["g"]))
    before = len(client.broker.image.topics["__consumer_offsets"].partitions)
    refused = await grow(client, "__consumer_offsets", before + 1)
    assert refused.error_code != 0
    assert len(client.broker.image.topics["__consumer_offsets"].partitions) == before


# Deleting.


@pytest.mark.parametrize("version", range(1, 7))
async def test_delete_topics_in_every_version(client: Client, version: int) -> None:
    await client.create("t")
    request = DeleteTopicsRequest(timeout_ms=1000, topic_names=["t", "nowhere"])
    request.topics = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in request.topic_names]
    gone, unknown = (await client.call(request, version)).responses
    assert (gone.name, gone.error_code) == ("t", 0)
    assert (unknown.name, unknown.error_code) == ("nowhere", KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert not client.broker.image.topics


async def test_deletion_of_one_topic_keeps_a_thousand_others(client: Client) -> None:
    names = [f"t{number}" for number in range(1_000)]
    await client.create("t", *names)
    assert [each.error_code for each in await client.delete("t")] == [0]
    assert set(client.broker.image.topics) == set(names)


async def test_delete_topics_by_id(client: Client) -> None:
    await client.create("t")
    ids = [client.topic_id("t"), bytes(15) + b"\1"]
    request = DeleteTopicsRequest(timeout_ms=1000)
    request.topics = [DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids]
    gone, unknown = (await client.call(request)).responses
    assert (gone.name, gone.error_code, gone.topic_id) == ("t", 0, ids[0])
    assert (unknown.error_code, unknown.topic_id) == (KafkaErrorCode.UNKNOWN_TOPIC_ID, ids[1])


async def test_duplicate_topic_deletion_in_one_request_is_rejected(client: Client) -> None:
    await client.create("named", "by-id", "both", "once")
    asked = DeleteTopicsRequest.DeleteTopicState
    named, by_id = asked(name="named"), asked(name=None, topic_id=client.topic_id("by-id"))
    both = (asked(name="both"), asked(name=None, topic_id=client.topic_id("both")))
    request = DeleteTopicsRequest(topics=[named, by_id, *both, asked(name="once"), named, by_id])
    errors = [each.error_code for each in (await client.call(request)).responses]
    assert errors == [KafkaErrorCode.INVALID_REQUEST] * 4 + [0]
    assert set(client.broker.image.topics) == {"named", "by-id", "both"}
    old = DeleteTopicsRequest(topic_names=["named", "named", "both"])
    answers = (await client.call(old, 5)).responses
    assert {each.name: each.error_code for each in answers} == {"named": KafkaErrorCode.INVALID_REQUEST, "both": 0}
    assert set(client.broker.image.topics) == {"named", "by-id"}


@pytest.mark.parametrize("version", range(1, 7))
async def test_disabled_topic_deletion_has_an_error_per_version(version: int) -> None:
    async with running(settings={"delete.topic.enable": "false"}) as client:
        await client.create("t")
        asked = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in ("t", "nowhere")]
        request = DeleteTopicsRequest(topics=asked, topic_names=["t", "nowhere"], timeout_ms=1000)
        answers = (await client.call(request, version)).responses
        code = KafkaErrorCode.INVALID_REQUEST if version < 3 else KafkaErrorCode.TOPIC_DELETION_DISABLED
        assert [(each.name, each.error_code) for each in answers] == [("t", code), ("nowhere", code)]
        assert set(client.broker.image.topics) == {"t"}


async def test_recreated_topic_is_empty_and_has_a_new_id(client: Client) -> None:
    await client.create("t")
    await client.produce("t", batch(b"old"))
    first = client.topic_id("t")
    await client.delete("t")
    assert (await client.produce("t", batch(b"lost"))).error_code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await client.create("t")
    assert client.topic_id("t") != first
    assert await client.read("t") == []
    assert (await client.produce("t", batch(b"new"))).base_offset == 0
    assert await client.read("t") == [b"new"]


async def test_pipelined_topic_deletion_creation_and_appends(client: Client) -> None:
    """All requests are in flight at once; the topics of one name, and their files, follow each other."""
    await client.create("t")
    for at in range(5):
        produced, deleted, created = await asyncio.gather(
            client.produce("t", batch(b"%d" % at), version=12), client.delete("t"), client.create("t")
        )
        assert produced.error_code in (0, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert deleted[0].error_code == 0 and created[0].error_code == 0
    assert (await client.produce("t", batch(b"new"))).base_offset == 0
    assert await client.read("t") == [b"new"]


async def test_delete_records_moves_the_log_start(client: Client) -> None:
    await client.create("t", partitions=2)
    for value in (b"a", b"b", b"c"):
        await client.produce("t", batch(value))
    assert await delete_records(client, "t", 0, 1) == (0, 1)
    assert await client.read("t", offset=1) == [b"b", b"c"]
    assert await delete_records(client, "t", 0, 4) == (KafkaErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete_records(client, "t", 0, 0) == (0, 1)  # never backwards
    assert await delete_records(client, "t", 0, -1) == (0, 3)
    assert (await client.offset("t", -2)).offset == 3
    assert await delete_records(client, "t", 1, 0) == (0, 0)
    assert await delete_records(client, "t", 1, 1) == (KafkaErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert (await delete_records(client, "nowhere", 0, 0))[0] == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await client.create("c", cleanup_policy="compact")
    assert (await delete_records(client, "c", 0, 0))[0] == KafkaErrorCode.POLICY_VIOLATION


# Pages.


async def test_describe_topic_partitions_in_pages(client: Client) -> None:
    await client.create("a", partitions=3)
    await client.create("b", partitions=2)
    cursor, pages = None, []
    for _ in range(5):
        request = DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor)
        answer = await client.call(request)
        pages.append([(topic.name, part.partition_index) for topic in answer.topics for part in topic.partitions])
        cursor = answer.next_cursor
        if cursor is None:
            break
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=cursor.topic_name, partition_index=cursor.partition_index
        )
    assert pages == [[("a", 0), ("a", 1)], [("a", 2), ("b", 0)], [("b", 1)]]


async def test_describe_topic_partitions_of_unknown_topics(client: Client) -> None:
    await client.create("t")
    asked = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in ("t", "nowhere", "a/b")]
    found = (await client.call(DescribeTopicPartitionsRequest(topics=asked))).topics
    assert {topic.name: topic.error_code for topic in found} == {"t": 0, "nowhere": 3, "a/b": 17}


@pytest.mark.parametrize("kept", ["in memory", "in a journal"])
async def test_cluster_image_is_copied_per_request_and_not_per_topic(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of topics in one request would copy thousands of topics for each of them."""
    names = [f"topic-{number}" for number in range(500)]
    copies: list[int] = []

    def counted(bare: ClusterImage, **tables: Any) -> ClusterImage:
        copies.append(len(tables["topics"]))
        return replace(bare, **tables)

    monkeypatch.setattr(image, "replace", counted)
    async with running(None if kept == "in memory" else str(tmp_path / "data")) as client:
        for change in (client.create, client.delete):
            copies.clear()
            assert {result.error_code for result in await change(*names)} == {0}
            assert len(client.broker.image.topics) == (500 if change == client.create else 0)
            assert 1 <= len(copies) <= 4, copies
        assert client.broker.image.topics_by_id == {} == client.broker.image.topics_by_folded_name


TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))  # all but those of clusters, see AclOperation
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
NOT_ASKED = -(2**31)


@pytest.mark.parametrize("asked", [False, True])
async def test_metadata_returns_authorized_operations_on_request(client: Client, asked: bool) -> None:
    """All supported operations, as there is no authorizer (AclEntry.supportedOperations)."""
    await client.create("orders")
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name="orders")],
        include_topic_authorized_operations=asked,
        include_cluster_authorized_operations=asked,
    )
    answer = await client.call(request, 10)
    expected = (TOPIC_OPERATIONS, CLUSTER_OPERATIONS) if asked else (NOT_ASKED, NOT_ASKED)
    assert (answer.topics[0].topic_authorized_operations, answer.cluster_authorized_operations) == expected
    cluster = await client.call(DescribeClusterRequest(include_cluster_authorized_operations=asked))
    assert cluster.cluster_authorized_operations == expected[1]
    topics = [DescribeTopicPartitionsRequest.TopicRequest(name="orders")]
    described = await client.call(DescribeTopicPartitionsRequest(topics=topics))
    assert described.topics[0].topic_authorized_operations == TOPIC_OPERATIONS


async def test_topics_that_are_created_automatically_get_the_partitions_of_the_map(tmp_path: Path) -> None:
    settings = {"topic.partition.count.map": "orders:5,clicks:2", "num.partitions": "3"}
    async with running(str(tmp_path), settings) as client:
        await metadata(client, "orders", "clicks", "other", create=True)
        assert {topic.name: len(topic.partitions) for topic in client.broker.image.topics.values()} == {
            "orders": 5,
            "clicks": 2,
            "other": 3,
        }
        await client.delete("orders")
        (created,) = await client.create("orders", partitions=-1, factor=-1)
        assert created.num_partitions == 3, "the map is for automatic creation only"
