"""Tests what a broker keeps over a stop and a kill, and how it handles missing and foreign files."""

import asyncio
import errno
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.describe_cluster import DescribeClusterRequest
from kafkalite.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkalite.protocol.messages.describe_producers import DescribeProducersRequest
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.server.broker import Broker
from kafkalite.server.process.ports import Ports
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.jvm import HOST
from tests.kit.ports import free_port
from tests.kit.running_copy import copy_running
from tests.kit.server import Client, batch, connected, fetch_request, fetched, idempotent, running


async def new_producer_id(client: Client, version: int = 5) -> int:
    answer = await client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), version)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    return int(answer.producer_id)


async def producers(client: Client, topic: str, partition: int = 0) -> list[Any]:
    asked = [DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[partition])]
    found = (await client.call(DescribeProducersRequest(topics=asked))).topics[0].partitions[0]
    assert found.error_code == 0
    return list(found.active_producers)


async def log_dirs(client: Client, version: int = 5) -> list[Any]:
    return list((await client.call(DescribeLogDirsRequest(topics=None), version)).results)


def as_after_a_kill(data: Path, copy: Path) -> str:
    """The directory as a kill at this moment would leave it."""
    return str(copy_running(data, copy))


async def test_clean_restart_keeps_all_records(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as client:
        await client.create("t", partitions=2)
        await client.produce("t", batch(b"a", b"b"))
        await client.produce("t", idempotent(b"c", sequence=0))
        known, cluster = client.topic_id("t"), client.broker.cluster_id
    async with running(str(tmp_path)) as client:
        assert client.topic_id("t") == known and client.broker.cluster_id == cluster
        assert await client.read("t") == [b"a", b"b", b"c"] and await client.read("t", 1) == []
        assert (await client.offset("t", -1)).offset == 3
        again = await client.produce("t", idempotent(b"c", sequence=0))
        assert (again.error_code, again.base_offset) == (0, 2)
        gap = await client.produce("t", idempotent(b"c", sequence=5))
        assert gap.error_code == KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await client.produce("t", batch(b"d"), partition=1)).base_offset == 0


async def test_kill_keeps_acknowledged_records(tmp_path: Path) -> None:
    async with running(str(tmp_path / "data")) as client:
        await client.create("t", "untouched")
        for sequence in range(7):
            await client.produce("t", idempotent(b"%d" % sequence, sequence=sequence))
        killed = as_after_a_kill(tmp_path / "data", tmp_path / "killed")
    async with running(killed) as client:
        assert await client.read("t") == [b"%d" % sequence for sequence in range(7)]
        for sequence in range(2, 7):
            assert (await client.produce("t", idempotent(b"%d" % sequence, sequence=sequence))).base_offset == sequence
        assert (await client.produce("t", idempotent(b"7", sequence=7))).base_offset == 7
        assert await client.read("untouched") == []


async def test_listeners_open_after_recovery_of_all_partitions(tmp_path: Path) -> None:
    log_dirs = {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}
    async with running(str(tmp_path), log_dirs) as client:
        await client.create("t", partitions=4)
        for partition in range(4):
            await client.produce("t", batch(b"a"), partition=partition)
        copies = [as_after_a_kill(tmp_path / name, tmp_path / f"killed-{name}") for name in "ab"]
    port, disk = free_port(), FaultyDisk()
    knocked: dict[str, set[int]] = {}

    def connect_early(_operation: str, path: str) -> None:
        with socket.socket() as probe:
            knocked.setdefault(os.path.basename(os.path.dirname(path)), set()).add(probe.connect_ex((HOST, port)))

    disk.hook = connect_early
    again = {"log.dirs": ",".join(copies), "listeners": f"PLAINTEXT://{HOST}:{port}"}
    broker = Broker(str(tmp_path), again, ports=Ports(disk=disk))
    await broker.start()
    try:
        disk.hook = None
        assert all(knocked[f"t-{partition}"] == {errno.ECONNREFUSED} for partition in range(4)), knocked
        async with connected(broker) as client:
            assert [await client.read("t", partition) for partition in range(4)] == [[b"a"]] * 4
    finally:
        await broker.stop()


async def test_producer_state_expires_after_the_configured_time() -> None:
    settings = {"producer.id.expiration.ms": "1", "producer.id.expiration.check.interval.ms": "20"}
    async with running(settings=settings) as client:
        await client.create("t")
        await client.produce("t", idempotent(b"a", sequence=0))
        async with asyncio.timeout(60):
            while await producers(client, "t"):
                pass  # each turn is a request that is answered


async def test_old_record_timestamps_do_not_expire_producer_state(tmp_path: Path) -> None:
    old = batch(b"2013", timestamp=1_357_000_000_000, producer_id=9, producer_epoch=0, base_sequence=0)
    async with running(str(tmp_path / "data")) as client:
        await client.create("t", retention_ms="-1")
        assert (await client.produce("t", old)).base_offset == 0
        assert (await client.produce("t", old)).base_offset == 0
        killed = as_after_a_kill(tmp_path / "data", tmp_path / "killed")
    for data in (str(tmp_path / "data"), killed):
        async with running(data) as client:
            assert [(each.producer_id, each.last_sequence) for each in await producers(client, "t")] == [(9, 0)]
            assert (await client.produce("t", old)).base_offset == 0
            assert await client.read("t") == [b"2013"]


async def test_torn_log_end_is_truncated(tmp_path: Path) -> None:
    async with running(str(tmp_path / "data")) as client:
        await client.create("t")
        await client.produce("t", batch(b"whole"))
        killed = as_after_a_kill(tmp_path / "data", tmp_path / "killed")
    with open(os.path.join(killed, "t-0", "00000000000000000000.log"), "ab") as log:
        log.write(batch(b"half")[:-5])
    async with running(killed) as client:
        assert await client.read("t") == [b"whole"]
        assert (await client.produce("t", batch(b"next"))).base_offset == 1


async def test_producer_ids_never_repeat(tmp_path: Path) -> None:
    seen: list[int] = []
    data = str(tmp_path / "0")
    for attempt in range(3):
        async with running(data) as client:
            seen += [await new_producer_id(client, version) for version in range(6)]
            data = as_after_a_kill(Path(data), tmp_path / f"{attempt + 1}")
            seen += [await new_producer_id(client)]
    seen_after_kill = len(seen)
    assert len(set(seen)) == seen_after_kill


@pytest.mark.parametrize("lost", ["directory", "log"])
async def test_partition_with_missing_files_is_offline(tmp_path: Path, lost: str) -> None:
    async with running(str(tmp_path)) as client:
        await client.create("t", partitions=2)
        await client.produce("t", batch(b"acknowledged"), partition=0)
        await client.produce("t", batch(b"kept"), partition=1)
    if lost == "directory":
        shutil.rmtree(tmp_path / "t-0")
    else:
        for file in (tmp_path / "t-0").iterdir():
            if file.suffix != ".metadata":
                file.unlink()
    async with running(str(tmp_path)) as client:
        part = fetched(await client.call(fetch_request("t", (0, 0)), 12))["t", 0]
        assert part.error_code == KafkaErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.produce("t", batch(b"x"))).error_code == KafkaErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.offset("t", -1)).error_code == KafkaErrorCode.KAFKA_STORAGE_ERROR
        wanted = [MetadataRequest.MetadataRequestTopic(name="t")]
        (topic,) = (await client.call(MetadataRequest(topics=wanted))).topics
        assert [(part.error_code, part.leader_id, part.offline_replicas) for part in topic.partitions] == [
            (KafkaErrorCode.LEADER_NOT_AVAILABLE, -1, [1]),
            (0, 1, []),
        ]
        assert await client.read("t", 1) == [b"kept"]
        assert (await client.delete("t"))[0].error_code == 0
        await client.create("t")
        assert (await client.produce("t", batch(b"fresh"))).base_offset == 0


async def test_unfinished_topic_deletion_is_finished_at_start(tmp_path: Path) -> None:
    async with running(str(tmp_path / "data"), {"log.segment.delete.delay.ms": "0"}) as client:
        await client.create("t")
        await client.produce("t", batch(b"old"))
        shutil.copytree(tmp_path / "data" / "t-0", tmp_path / "t-0")
        await client.delete("t")
        await client.create("t")
    shutil.copytree(tmp_path / "t-0", tmp_path / "data" / "t-0")  # as if the rename had never come to the disk
    async with running(str(tmp_path / "data")) as client:
        assert await client.read("t") == []
        assert (await client.produce("t", batch(b"new"))).base_offset == 0
        assert await client.read("t") == [b"new"]
    async with running(str(tmp_path / "data")) as client:
        assert await client.read("t") == [b"new"]


@asynccontextmanager
async def created_without_a_record(client: Client) -> AsyncIterator[None]:
    """The files of partition 0 of `t` exist, and the tree has no record of them."""
    halfway = asyncio.Event()
    note_directories = client.broker.store.note_directories
    held: list[tuple[Any, ...]] = []

    def hold(*args: Any) -> None:
        held.append(args)
        halfway.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.broker.store, "note_directories", hold)
        waiting = asyncio.create_task(client.produce("t", batch(b"acknowledged after the copy")))
        await halfway.wait()
        yield
    for args in held:
        note_directories(*args)
    assert (await waiting).error_code == 0


@pytest.mark.parametrize(
    ("lost", "emptied"),
    [
        ("log leader-epoch-checkpoint partition.metadata", ""),
        ("log partition.metadata", ""),
        ("log", ""),
        ("partition.metadata", ""),
        ("leader-epoch-checkpoint", "partition.metadata"),
        ("leader-epoch-checkpoint", ""),
        ("log", "partition.metadata"),
        ("", "leader-epoch-checkpoint"),
        ("", "partition.metadata leader-epoch-checkpoint"),
    ],
)
async def test_power_failure_before_the_record_leaves_no_partition_offline(
    tmp_path: Path, lost: str, emptied: str
) -> None:
    """Files that were not synced may be missing or empty, each by itself; here the topic is known, the partition not
    recorded.
    """
    async with running(str(tmp_path / "data")) as client:
        await client.create("t")
        async with created_without_a_record(client):
            killed = as_after_a_kill(tmp_path / "data", tmp_path / "killed")
    for path in (tmp_path / "killed/t-0").iterdir():
        if path.name.endswith(tuple(lost.split() or ["/"])):
            path.unlink()
        elif path.name in emptied.split():
            path.write_bytes(b"")
    async with running(killed) as client:
        assert (await client.produce("t", batch(b"new"))).base_offset == 0
    async with running(killed) as client:
        assert await client.read("t") == [b"new"]


@pytest.mark.parametrize("lost", ["", "log"])
async def test_partition_that_a_kill_left_unrecorded_may_be_created_in_another_log_directory(
    tmp_path: Path, lost: str
) -> None:
    """What its creation has left in the first one must not prevent later starts."""
    settings = {"log.dirs": f"{tmp_path / 'killed/a'},{tmp_path / 'killed/b'}"}
    async with running(str(tmp_path), {"log.dirs": f"{tmp_path / 'data/a'},{tmp_path / 'data/b'}"}) as client:
        for topic in ("x", "y"):
            await client.create(topic)
            await client.produce(topic, batch(b"x"))
        await client.create("t")
        async with created_without_a_record(client):
            async with connected(client.broker) as other:
                await other.delete("y")  # then the other directory has fewer logs
            as_after_a_kill(tmp_path / "data", tmp_path / "killed")
    assert (tmp_path / "killed/a/t-0").exists()
    for path in (tmp_path / "killed/a/t-0").glob(f"*.{lost}"):
        path.unlink()
    async with running(str(tmp_path), settings) as client:
        assert (await client.produce("t", batch(b"new"))).base_offset == 0
        assert (tmp_path / "killed/b/t-0").exists() and not (tmp_path / "killed/a/t-0").exists()
    async with running(str(tmp_path), settings) as client:
        assert await client.read("t") == [b"new"]


async def test_kill_between_creation_and_record_leaves_an_empty_partition(tmp_path: Path) -> None:
    async with running(str(tmp_path / "data")) as client:
        await client.create("t")
        async with created_without_a_record(client):
            killed = as_after_a_kill(tmp_path / "data", tmp_path / "killed")
    async with running(killed) as client:
        assert await client.read("t") == []
        assert (await client.produce("t", batch(b"first"))).base_offset == 0


@pytest.mark.parametrize("version", range(1, 6))
async def test_describe_log_dirs_lists_every_replica(client: Client, version: int) -> None:
    await client.create("t", partitions=2)
    await client.produce("t", batch(b"x"))
    (found,) = await log_dirs(client, version)
    assert (found.error_code, found.log_dir) == (0, client.broker.logs.directories()[0])
    sizes = {
        (topic.name, part.partition_index): part.partition_size for topic in found.topics for part in topic.partitions
    }
    assert sizes == {("t", 0): len(batch(b"x")), ("t", 1): 0}
    assert (found.total_bytes > 0, found.usable_bytes > 0) == ((version >= 4,) * 2)


async def test_describe_producers_after_restart(client: Client) -> None:
    await client.create("t", partitions=2)
    await client.produce("t", idempotent(b"a", b"b", sequence=0, producer=7, epoch=3))
    (found,) = await producers(client, "t")
    assert (found.producer_id, found.producer_epoch, found.last_sequence) == (7, 3, 1)
    assert await producers(client, "t", 1) == []
    asked = [DescribeProducersRequest.TopicRequest(name="nowhere", partition_indexes=[0])]
    answer = await client.call(DescribeProducersRequest(topics=asked))
    assert answer.topics[0].partitions[0].error_code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_describe_cluster_returns_this_broker(client: Client) -> None:
    answer = await client.call(DescribeClusterRequest(endpoint_type=1))
    (node,) = answer.brokers
    assert f"{node.host}:{node.port}" == client.broker.address
    assert (answer.cluster_id, answer.controller_id, node.broker_id) == (client.broker.cluster_id, 1, 1)
    wrong = await client.call(DescribeClusterRequest(endpoint_type=2))
    assert wrong.error_code == KafkaErrorCode.MISMATCHED_ENDPOINT_TYPE
    moving = await client.call(ListPartitionReassignmentsRequest())
    assert (moving.error_code, moving.topics) == (0, [])


async def test_metadata_returns_the_address_of_the_clients_connection() -> None:
    async with Broker(settings={"listeners": "PLAINTEXT://0.0.0.0:0"}) as broker:
        port = int(broker.address.rsplit(":", 1)[1])
        for host in ("127.0.0.1", "127.0.0.2"):
            async with connected(broker, host) as client:
                (node,) = (await client.call(MetadataRequest(topics=[]))).brokers
                assert (node.host, node.port) == (host, port)


async def test_metadata_returns_advertised_listeners() -> None:
    async with running(settings={"advertised.listeners": "PLAINTEXT://example.org:1234"}) as client:
        (node,) = (await client.call(MetadataRequest(topics=[]))).brokers
        assert (node.host, node.port) == ("example.org", 1234)


async def test_unknown_files_are_neither_served_nor_overwritten(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as client:
        await client.create("t")
        await client.produce("t", batch(b"whose?"))
        await client.delete("t")
    (deleted,) = tmp_path.glob("t-0*-delete")
    deleted.rename(tmp_path / "t-0")
    (tmp_path / "t-0" / "partition.metadata").unlink()
    files = {file.name: file.read_bytes() for file in (tmp_path / "t-0").glob("*.log")}
    async with running(str(tmp_path)) as client:
        await client.create("t", partitions=2)
        assert (await client.produce("t", batch(b"x"))).error_code == KafkaErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.produce("t", batch(b"x"), partition=1)).error_code == 0
    assert {file.name: file.read_bytes() for file in (tmp_path / "t-0").glob("*.log")} == files


async def test_wrong_topic_id_never_deletes_records(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as client:
        await client.create("t")
        await client.produce("t", batch(b"mine"))
    metadata = tmp_path / "t-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    files = {file.name: file.read_bytes() for file in (tmp_path / "t-0").glob("*.log")}
    async with running(str(tmp_path)) as client:
        assert (await client.produce("t", batch(b"x"))).error_code == KafkaErrorCode.KAFKA_STORAGE_ERROR
    assert {file.name: file.read_bytes() for file in (tmp_path / "t-0").glob("*.log")} == files
