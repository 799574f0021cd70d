"""`__consumer_offsets` as clients see it and on disk: created on first use, readable, complete after each failure."""

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkalite.protocol.messages.delete_records import DeleteRecordsRequest
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.stored.group_records import OffsetCommitKey, OffsetCommitValue, read_key, read_value
from kafkalite.records import batches
from kafkalite.server.broker import Broker
from kafkalite.server.process.ports import Ports
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.members import codes, commit, fetch, offsets_of
from tests.kit.server import Client, batch, connected, fetch_request, fetched, running

OFFSETS = "__consumer_offsets"
TOPIC_RESOURCE = 2


async def committed(client: Client, group: str) -> dict[tuple[Any, int], int]:
    """All offsets of a group; asks again while the coordinator is loading, as clients do."""
    while True:
        answer = await client.call(fetch(group), 8)
        if answer.groups[0].error_code != Error.COORDINATOR_LOAD_IN_PROGRESS:
            assert answer.groups[0].error_code == 0
            return offsets_of(answer)


async def take(client: Client, group: str, offset: int, partitions: int = 1) -> list[int]:
    return codes(await client.call(commit(group, "orders", dict.fromkeys(range(partitions), offset)), 8))


# The topic.


async def test_offsets_topic_is_created_on_first_use(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as client:
        await client.create("orders")
        assert OFFSETS not in client.broker.image.topics
        answer = await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        assert [each.error_code for each in answer.coordinators] == [0]
        assert len(client.broker.image.topics[OFFSETS].partitions) == 1


async def described(client: Client) -> dict[str, str]:
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=OFFSETS, configuration_keys=None
    )
    (found,) = (await client.call(DescribeConfigsRequest(resources=[asked]))).results
    return {each.name: each.value for each in found.configs}


@pytest.mark.parametrize("by", ["coordinator", "metadata"])
async def test_offsets_topic_has_configured_settings(by: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        "offsets.topic.num.partitions": "7",
        "offsets.topic.segment.bytes": "1048576",
        "offsets.topic.replication.factor": "3",
        "num.partitions": "2",
        "log.cleanup.policy": "delete",
    }
    async with running(settings=settings) as client:
        if by == "coordinator":
            await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        else:
            wanted = [MetadataRequest.MetadataRequestTopic(name=OFFSETS)]
            await client.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=True))
        (topic,) = (await client.call(MetadataRequest(topics=None))).topics
        assert (topic.name, topic.is_internal, len(topic.partitions)) == (OFFSETS, True, 7)
        assert all(len(partition.replica_nodes) == 1 for partition in topic.partitions)
        configs = await described(client)
        assert (configs["cleanup.policy"], configs["compression.type"]) == ("compact", "producer")
        assert configs["segment.bytes"] == "1048576"
        assert await take(client, "g", 5) == [Error.UNKNOWN_TOPIC_OR_PARTITION]
    received = [(each.levelname, each.getMessage()) for each in caplog.records if "one replica" in each.getMessage()]
    assert received == [("WARNING", f"{OFFSETS}: created with one replica instead of 3: there is one broker")]


async def test_default_replication_factor_on_one_broker_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as client:
        await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == []


async def test_clients_may_only_read_offsets_topic() -> None:
    async with running() as client:
        await client.create("orders")
        assert await take(client, "g", 5) == [0]
        written = await client.produce(OFFSETS, batch(b"mine"))
        assert written.error_code == Error.INVALID_TOPIC_EXCEPTION
        deleted = await client.delete(OFFSETS)
        assert deleted[0].error_code == Error.TOPIC_AUTHORIZATION_FAILED
        topic = DeleteRecordsRequest.DeleteRecordsTopic(
            name=OFFSETS,
            partitions=[DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition(partition_index=0, offset=-1)],
        )
        cut = await client.call(DeleteRecordsRequest(topics=[topic], timeout_ms=1000))
        assert cut.topics[0].partitions[0].error_code == Error.INVALID_TOPIC_EXCEPTION
        grown = CreatePartitionsRequest.CreatePartitionsTopic(name=OFFSETS, count=9, assignments=None)
        answer = await client.call(CreatePartitionsRequest(topics=[grown], timeout_ms=1000, validate_only=False))
        assert answer.results[0].error_code == Error.INVALID_PARTITIONS
        part = fetched(await client.call(fetch_request(OFFSETS, (0, 0)), 12))[OFFSETS, 0]
        (record,) = [record for found in batches(part.records) for record in found]
        assert record.key is not None and record.value is not None
        assert read_key(record.key)[1] == OffsetCommitKey(group="g", topic="orders", partition=0)
        value = read_value(1, record.value)
        assert isinstance(value, OffsetCommitValue) and value.offset == 5


@pytest.mark.parametrize("codec", range(5))
async def test_offsets_topic_uses_configured_compression(tmp_path: Path, codec: int) -> None:
    settings = {"offsets.topic.compression.codec": str(codec)}
    async with running(str(tmp_path), settings) as client:
        await client.create("orders", partitions=40)
        assert await take(client, "g", 5, 40) == [0] * 40
    (log,) = tmp_path.glob(f"{OFFSETS}-0/*.log")
    (found,) = batches(log.read_bytes())
    assert (found.codec, found.records_count) == (codec, 40)
    async with running(str(tmp_path), settings) as client:
        assert await committed(client, "g") == {("orders", index): 5 for index in range(40)}


# What is kept.


async def test_committed_offsets_survive_restart_and_kill(tmp_path: Path) -> None:
    data, killed = tmp_path / "data", tmp_path / "killed"
    settings = {"offsets.topic.num.partitions": "5"}
    async with running(str(data), settings) as client:
        await client.create("orders", partitions=3)
        for at in range(20):
            assert await take(client, f"g{at}", at, 3) == [0] * 3
        shutil.copytree(data, killed)
    for directory in (data, killed):
        async with running(str(directory), settings) as client:
            for at in range(20):
                assert await committed(client, f"g{at}") == {("orders", index): at for index in range(3)}
            assert await take(client, "g3", 100) == [0]
            assert (await committed(client, "g3"))["orders", 0] == 100


async def test_offsets_of_deleted_topic_stay_deleted_after_restart(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as client:
        await client.create("orders")
        assert await take(client, "g", 5) == [0]
        await client.delete("orders")
        await client.create("orders")
        assert await committed(client, "g") == {}
    async with running(str(tmp_path)) as client:
        assert await committed(client, "g") == {}


async def test_full_disk_rejects_commits_and_keeps_committed_offsets(tmp_path: Path) -> None:
    disk = FaultyDisk()
    broker = Broker(str(tmp_path), ports=Ports(disk=disk))
    async with broker, connected(broker) as client:
        await client.create("orders")
        assert await take(client, "g", 5) == [0]
        disk.fail("write", errno.ENOSPC, path=OFFSETS)
        assert await take(client, "g", 6) == [Error.NOT_COORDINATOR]
        assert await committed(client, "g") == {("orders", 0): 5}
        assert await take(client, "g", 7) == [0]
        assert await committed(client, "g") == {("orders", 0): 7}


async def test_failed_fsync_completes_no_commit(tmp_path: Path) -> None:
    disk = FaultyDisk()
    broker = Broker(str(tmp_path), {"log.flush.interval.messages": "1"}, ports=Ports(disk=disk))
    async with broker, connected(broker) as client:
        await client.create("orders")
        assert await take(client, "g", 5) == [0]
        disk.fail("sync", errno.EIO, path=OFFSETS)
        assert await take(client, "g", 6) == [Error.NOT_COORDINATOR]
        assert await take(client, "g", 7) == [Error.NOT_COORDINATOR]
