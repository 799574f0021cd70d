"""A broker whose log directory or partitions are missing is offline for them, until an operator accepts the loss."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.coordination import znodes
from kafkalite.coordination.tree import Create
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.server.hosting.missing_logs import MARK
from kafkalite.testing.power_loss import UnsyncedState
from kafkalite.testing.simulated_cluster import SimulatedCluster
from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.test_three_brokers import Client, led, run, until

TOPIC = "orders"
PARTITIONS = 6
Loss = Callable[[Path], object]


def unmounted(data: Path) -> None:
    """The directory is not mounted: it is empty."""
    for path in data.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def partition_removed(data: Path) -> None:
    """The directories of partitions are gone, the log directory is the same."""
    for path in data.glob(f"{TOPIC}-*"):
        shutil.rmtree(path)


async def prepared(cluster: SimulatedCluster, client: Client) -> tuple[int, int]:
    """A topic with a record in each partition; returns a broker that is not the controller, and a partition of it."""
    controller = await client.controller(1, 2, 3)
    await client.create(controller, TOPIC)
    leaders = await led(client, controller, TOPIC, PARTITIONS)
    for partition, leader in leaders.items():
        assert await client.produce(leader, TOPIC, partition, b"kept") == 0
    victim = controller % 3 + 1
    return victim, next(each for each, leader in leaders.items() if leader == victim)


async def leader_of(client: Client, broker_id: int, partition: int) -> tuple[int, int, list[int]]:
    """Leader, error and offline replicas of a partition in the metadata of a broker."""
    (topic,) = (await client.metadata(broker_id, TOPIC)).topics
    (part,) = (each for each in topic.partitions if each.partition_index == partition)
    return part.leader_id, part.error_code, list(part.offline_replicas)


async def accepted(client: Client, broker_id: int, partition: int) -> None:
    async def produced() -> bool | None:
        return await client.produce(broker_id, TOPIC, partition, b"new") == 0 or None

    await until(produced)


async def offline(client: Client, victim: int, partition: int) -> None:
    """The partition is offline on every broker, and stays so."""

    async def shown() -> bool | None:
        found = [await leader_of(client, each, partition) for each in (1, 2, 3)]
        return found == [(-1, Error.LEADER_NOT_AVAILABLE, [victim])] * 3 or None

    await until(shown)
    await pass_time(3.0)
    await until(shown)
    assert await client.produce(victim, TOPIC, partition, b"refused") == Error.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("lose", [unmounted, partition_removed])
def test_partition_whose_files_are_missing_is_offline_until_they_are_back(
    tmp_path: Path, lose: Loss, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        victim, partition = await prepared(cluster, client)
        data = tmp_path / str(victim)
        await cluster.brokers[victim].stop()
        kept = shutil.copytree(data, tmp_path / "kept")
        lose(data)
        cluster.brokers[victim].disk.shadow = UnsyncedState()
        for _ in range(2):  # the second start finds a log directory that is not new any more
            caplog.clear()
            await cluster.start(victim)
            await offline(client, victim, partition)
            lines = [each for each in caplog.records if each.levelno == logging.ERROR and TOPIC in each.getMessage()]
            assert "Mount or restore the log directory" in lines[-1].getMessage() and len(lines) <= 2
            await cluster.brokers[victim].stop()
        unmounted(data)
        shutil.copytree(kept, data, dirs_exist_ok=True)
        cluster.brokers[victim].disk.shadow = UnsyncedState()
        await cluster.start(victim)
        await accepted(client, victim, partition)
        assert await client.values(victim, TOPIC, partition) == [b"kept", b"new"]
        assert not (data / MARK).exists()

    run(tmp_path, scenario)


@pytest.mark.parametrize("lose", [unmounted, partition_removed])
def test_operator_accepts_the_loss_by_removing_the_mark(tmp_path: Path, lose: Loss) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        victim, partition = await prepared(cluster, client)
        await cluster.brokers[victim].stop()
        lose(tmp_path / str(victim))
        cluster.brokers[victim].disk.shadow = UnsyncedState()
        await cluster.start(victim)
        await offline(client, victim, partition)
        await cluster.brokers[victim].stop()
        os.remove(tmp_path / str(victim) / MARK)
        await cluster.start(victim)
        await accepted(client, victim, partition)
        assert await client.values(victim, TOPIC, partition) == [b"new"]

    run(tmp_path, scenario)


def test_new_brokers_and_topics_are_created_and_leave_no_mark(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await prepared(cluster, client)
        assert not [path for each in cluster.brokers for path in (tmp_path / str(each)).glob(MARK)]

    run(tmp_path, scenario)


def test_partition_created_while_its_broker_was_down_is_created_on_a_new_log_directory(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        victim, partition = await prepared(cluster, client)
        await cluster.brokers[victim].stop()
        others = [each for each in cluster.brokers if each != victim]
        controller = await client.controller(*others)
        zookeeper = cluster.zookeeper
        node = znodes.encode_topic(znodes.TopicNode(b"1" * 16, {0: (victim,)}, {}, {}))
        zookeeper.tree.multi([Create(znodes.topic_path("later"), node)], zookeeper.tree.open_session(), 0)
        zookeeper.fire()
        unmounted(tmp_path / str(victim))
        cluster.brokers[victim].disk.shadow = UnsyncedState()
        await cluster.start(victim)
        await led(client, controller, "later", 1)
        assert await client.produce(victim, "later", 0, b"first") == 0
        await offline(client, victim, partition)

    run(tmp_path, scenario)
