"""Tests several log directories: a failed one takes only its partitions offline."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from kafkalite.cli import serve as command
from kafkalite.cli.failure import Failure
from kafkalite.cluster.partition.partition import Partition
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.server.process.sd_notify import Notifier
from kafkalite.server.running.running_broker import RunningBroker
from tests.kit.server import Client, batch, running

PARTITIONS = 4
STORAGE = KafkaErrorCode.KAFKA_STORAGE_ERROR
BROKEN = OSError(errno.EIO, os.strerror(errno.EIO))


def settings(data: Path) -> dict[str, str]:
    return {"log.dirs": f"{data / 'a'},{data / 'b'}"}


def directories_by_partition(broker: RunningBroker) -> dict[int, str]:
    """The log directory of each partition of `t`."""
    found = {}
    for index in range(PARTITIONS):
        partition = broker.replicas.partition("t", b"", index, by_id=False)
        assert isinstance(partition, Partition)
        if partition.log is not None:
            found[index] = os.path.basename(partition.log.root)
    return found


async def received(client: Client) -> tuple[set[int], dict[str, int]]:
    """The partitions of `t` that Metadata calls offline, and the error code of each log directory."""
    metadata = await client.call(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]))
    offline = {part.partition_index for part in metadata.topics[0].partitions if part.offline_replicas}
    answer = await client.call(DescribeLogDirsRequest(topics=None))
    return offline, {os.path.basename(one.log_dir): one.error_code for one in answer.results}


async def fill(client: Client) -> list[Any]:
    return [(await client.produce("t", batch(b"x"), partition=at)).error_code for at in range(PARTITIONS)]


async def test_failed_log_directory_takes_only_its_partitions_offline(tmp_path: Path) -> None:
    async with running(settings=settings(tmp_path), data=str(tmp_path)) as client:
        await client.create("t", partitions=PARTITIONS)
        assert await fill(client) == [0] * PARTITIONS
        where = directories_by_partition(client.broker)
        assert sorted(where.values()) == ["a", "a", "b", "b"]
        client.broker.logs.take_offline(str(tmp_path / "b"), BROKEN)
        lost = {index for index, name in where.items() if name == "b"}
        assert await fill(client) == [STORAGE if index in lost else 0 for index in range(PARTITIONS)]
        assert await received(client) == (lost, {"a": 0, "b": STORAGE})
        await client.create("new", partitions=2)
        for partition in (0, 1):
            assert (await client.produce("new", batch(b"y"), partition=partition)).error_code == 0
    async with running(settings=settings(tmp_path), data=str(tmp_path)) as client:
        assert await received(client) == (set(), {"a": 0, "b": 0})
        assert await fill(client) == [0] * PARTITIONS
        assert await client.read("t", min(set(where) - lost)) == [b"x"] * 3
        assert await client.read("t", min(lost)) == [b"x"] * 2


async def test_missing_log_directory_at_start_keeps_the_others(tmp_path: Path) -> None:
    async with running(settings=settings(tmp_path), data=str(tmp_path)) as client:
        await client.create("t", partitions=PARTITIONS)
        await fill(client)
        lost = {index for index, name in directories_by_partition(client.broker).items() if name == "b"}
    (tmp_path / "b").rename(tmp_path / "c")
    (tmp_path / "b").write_bytes(b"no directory")
    async with running(settings=settings(tmp_path), data=str(tmp_path)) as client:
        assert await received(client) == (lost, {"a": 0, "b": STORAGE})
        assert await fill(client) == [STORAGE if index in lost else 0 for index in range(PARTITIONS)]
    moved = {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'c'}"}
    async with running(settings=moved, data=str(tmp_path)) as client:
        assert await received(client) == (set(), {"a": 0, "c": 0})


async def test_new_partitions_are_spread_over_log_directories(tmp_path: Path) -> None:
    async with running(settings=settings(tmp_path), data=str(tmp_path)) as client:
        await client.create("t", partitions=PARTITIONS)
        await asyncio.gather(*(client.produce("t", batch(b"x"), partition=at) for at in range(PARTITIONS)))
        assert sorted(directories_by_partition(client.broker).values()) == ["a", "a", "b", "b"]


@pytest.mark.usefixtures("collector_restored")
async def test_serve_exits_when_all_log_directories_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_all(broker: RunningBroker) -> None:
        for path in broker.logs.directories():
            broker.logs.take_offline(path, BROKEN)

    monkeypatch.setattr(command, "say_ready", lose_all)
    monkeypatch.setattr(command, "ENDING", ())
    config = BrokerConfig({**settings(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    with pytest.raises(Failure, match="every log directory failed") as failure:
        await command.serve(config, Notifier(None), [])
    assert failure.value.exit_code == 1 and str(tmp_path / "a") in str(failure.value)
