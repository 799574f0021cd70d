"""Starts after a stop, a kill and a power failure, as the registration says them; and failed log directories."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from kafkalite.coordination.znodes.brokers import decode_registration, registration_path
from kafkalite.coordination.znodes.controller import LOG_DIR_EVENTS, decode_log_dir_event
from kafkalite.server.process.saved_session import NAME
from kafkalite.storage import checkpoints
from kafkalite.storage.manager import LogManager
from kafkalite.testing.simulated_cluster import SimulatedCluster
from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.test_missing_logs import TOPIC, leader_of, prepared
from tests.story.cluster.test_three_brokers import Client, run, until

CLEAN, THIS = -1, 0


def unclean_since(cluster: SimulatedCluster, broker_id: int) -> int:
    """What the registration of a broker says: CLEAN, THIS, or the broker epoch of an earlier one."""
    data, _stat = cluster.zookeeper.tree.get(registration_path(broker_id))
    found = decode_registration(broker_id, data).unclean_since
    assert ("unclean_since" in json.loads(data)) == (found != CLEAN), "Kafka's bytes without an unclean start"
    return found


def epoch_of(cluster: SimulatedCluster, broker_id: int) -> int:
    """The broker epoch of the registration of a broker."""
    return cluster.zookeeper.tree.get(registration_path(broker_id))[1].czxid


async def restart(cluster: SimulatedCluster, broker_id: int, end: str) -> None:
    """Start a broker after this end."""
    if end == "stop":
        await cluster.brokers[broker_id].stop()
    elif end == "kill":
        cluster.kill(broker_id)
    else:
        cluster.cut_power(broker_id)
    await cluster.start(broker_id)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (["stop", "stop"], [CLEAN, CLEAN]),
        (["kill", "kill"], [CLEAN, CLEAN]),
        (["power", "stop", "stop"], [THIS, 1, 1]),
        (["power", "kill", "kill"], [THIS, 1, 1]),
        (["kill", "power", "kill", "stop", "power", "stop"], [CLEAN, THIS, 2, 2, THIS, 5]),
    ],
    ids=lambda values: " ".join(map(str, values)),
)
def test_registration_names_the_first_one_since_unflushed_records_may_have_been_lost(
    tmp_path: Path, ends: list[str], expected: list[int]
) -> None:
    """A kill leaves the page cache. `expected`: the number, from 1, of the registration that each one names."""

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        assert {unclean_since(cluster, broker_id) for broker_id in cluster.brokers} == {CLEAN}, "they have no logs"
        victim, _partition = await prepared(cluster, client)
        epochs = [THIS]
        for end, named in zip(ends, expected, strict=True):
            await restart(cluster, victim, end)
            epochs.append(epoch_of(cluster, victim))
            assert unclean_since(cluster, victim) == (CLEAN if named == CLEAN else epochs[named]), (end, epochs)

    run(tmp_path, scenario)


def test_later_registration_of_the_process_names_the_first_one(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        victim, _partition = await prepared(cluster, client)
        await restart(cluster, victim, "power")
        first = epoch_of(cluster, victim)
        cluster.expire(victim)

        async def registered() -> bool | None:
            node = cluster.zookeeper.tree.find(registration_path(victim))
            return True if node is not None and node.czxid != first else None

        await until(registered)
        assert unclean_since(cluster, victim) == first

    run(tmp_path, scenario)


def test_lost_file_of_the_session_counts_as_a_power_failure(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        victim, _partition = await prepared(cluster, client)
        cluster.kill(victim)
        (tmp_path / str(victim) / NAME).unlink()
        await pass_time(20.0)
        await cluster.start(victim)
        assert unclean_since(cluster, victim) == THIS

    run(tmp_path, scenario)


def test_stop_on_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        victim, _partition = await prepared(cluster, client)
        disk = cluster.brokers[victim].disk
        disk.fail("write", errno.ENOSPC, path=".index", repeat=True)
        await cluster.brokers[victim].stop()
        disk.faults.clear()
        await cluster.start(victim)
        assert unclean_since(cluster, victim) == CLEAN

    run(tmp_path, scenario)


@pytest.mark.parametrize(("before", "expected"), [("stop", CLEAN), ("power", 1)])
def test_kill_of_a_broker_that_closes_its_logs_leaves_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, expected: int
) -> None:
    """Its session has ended; systemd kills a process whose stop takes too long."""

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        victim, _partition = await prepared(cluster, client)
        await restart(cluster, victim, before)
        epochs = [CLEAN, epoch_of(cluster, victim)]
        with monkeypatch.context() as patch:
            patch.setattr(LogManager, "close", lambda *_: False)
            await cluster.brokers[victim].stop()
        await cluster.start(victim)
        assert unclean_since(cluster, victim) == (CLEAN if expected == CLEAN else epochs[expected])

    run(tmp_path, scenario)


def test_mark_of_a_clean_stop_has_the_broker_epoch(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        victim, _partition = await prepared(cluster, client)
        epoch = cluster.zookeeper.tree.get(registration_path(victim))[1].czxid
        broker = cluster.brokers[victim]
        await broker.stop()
        assert checkpoints.read_broker_epoch(broker.disk, str(tmp_path / str(victim))) == epoch > 0

    run(tmp_path, scenario)


def test_failed_log_directory_is_reported_to_the_controller(tmp_path: Path) -> None:
    seen: list[int] = []

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        victim, partition = await prepared(cluster, client)
        tree, logs = cluster.zookeeper.tree, cluster.brokers[victim].running.logs
        log = logs.find(TOPIC, partition)
        assert log is not None

        def changed(_event: object) -> None:
            for name in tree.children(LOG_DIR_EVENTS)[0]:
                path = f"{LOG_DIR_EVENTS}/{name}"
                seen.append(decode_log_dir_event(path, tree.get(path)[0]))

        tree.children(LOG_DIR_EVENTS, changed)
        logs.take_offline(log.root, OSError("failed"))

        async def offline() -> bool | None:
            found = await leader_of(client, victim % 3 + 1, partition)
            return True if found[2] == [victim] else None

        await until(offline)
        assert seen == [victim]
        assert tree.children(LOG_DIR_EVENTS)[0] == [], "the controller has deleted it"

    run(tmp_path, scenario)
