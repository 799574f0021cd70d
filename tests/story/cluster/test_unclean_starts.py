"""Starts after a stop, a kill and a power failure, as the registration says them; and failed log directories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkalite.coordination.znodes.brokers import decode_registration, registration_path
from kafkalite.coordination.znodes.controller import LOG_DIR_EVENTS, decode_log_dir_event
from kafkalite.server.process.saved_session import NAME
from kafkalite.storage import checkpoints
from kafkalite.testing.simulated_cluster import SimulatedCluster, host_of
from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.test_missing_logs import TOPIC, leader_of, prepared
from tests.story.cluster.test_three_brokers import Client, run, until


def is_unclean(cluster: SimulatedCluster, broker_id: int) -> bool:
    """What the registration of a broker says."""
    data, _stat = cluster.zookeeper.tree.get(registration_path(broker_id))
    found = decode_registration(broker_id, data).unclean_start
    assert ("unclean_start" in json.loads(data)) == found, "Kafka's bytes after a clean start"
    return found


def unclean_since(cluster: SimulatedCluster, broker_id: int) -> int:
    """The first registration after the unclean start, as the present one says."""
    data, _stat = cluster.zookeeper.tree.get(registration_path(broker_id))
    return decode_registration(broker_id, data).unclean_since


async def restarted(cluster: SimulatedCluster, broker_id: int, end: str) -> bool:
    """Start a broker after this end, and return whether its start was unclean."""
    if end == "stop":
        await cluster.brokers[broker_id].stop()
    elif end == "kill":
        cluster.kill(broker_id)
    else:
        cluster.cut_power(broker_id)
    await cluster.start(broker_id)
    return is_unclean(cluster, broker_id)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (["stop", "stop"], [False, False]),
        (["kill", "kill"], [False, False]),
        (["power", "stop"], [True, False]),
        (["power", "kill", "kill"], [True, True, True]),
        (["kill", "power", "kill", "stop", "kill"], [False, True, True, False, False]),
    ],
    ids=lambda values: " ".join(map(str, values)),
)
def test_registration_says_whether_unflushed_records_may_be_lost(
    tmp_path: Path, ends: list[str], expected: list[bool]
) -> None:
    """A kill leaves the page cache. After a kill behind a power failure the controller may not know of the failure."""

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        assert not any(is_unclean(cluster, broker_id) for broker_id in cluster.brokers), "they have no logs"
        victim, _partition = await prepared(cluster, client)
        assert [await restarted(cluster, victim, end) for end in ends] == expected

    run(tmp_path, scenario)


def test_stop_before_the_controller_answers_is_followed_by_an_unclean_start(tmp_path: Path) -> None:
    """The controller may not have seen the registration that says that the power failed."""

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        victim, _partition = await prepared(cluster, client)
        others = [each for each in cluster.brokers if each != victim]
        for other in others:
            client.network.disconnect(host_of(victim), host_of(other))
        assert [await restarted(cluster, victim, end) for end in ("power", "stop", "stop")] == [True, True, True]
        for other in others:
            client.network.reconnect(host_of(victim), host_of(other))

        async def described() -> bool | None:
            running = cluster.brokers[victim].running
            return True if running.image.controller_id in others else None

        await until(described)
        assert [await restarted(cluster, victim, end) for end in ("stop", "stop")] == [False, False]

    run(tmp_path, scenario)


def test_later_registrations_of_the_process_say_the_same(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        victim, _partition = await prepared(cluster, client)
        assert await restarted(cluster, victim, "power")
        first = cluster.zookeeper.tree.get(registration_path(victim))[1].czxid
        cluster.expire(victim)

        async def registered() -> bool | None:
            node = cluster.zookeeper.tree.find(registration_path(victim))
            return True if node is not None and node.czxid != first else None

        await until(registered)
        assert is_unclean(cluster, victim) and unclean_since(cluster, victim) == first
        cluster.kill(victim)
        await cluster.start(victim)
        assert is_unclean(cluster, victim) and unclean_since(cluster, victim) == first

    run(tmp_path, scenario)


def test_lost_file_of_the_session_counts_as_a_power_failure(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        victim, _partition = await prepared(cluster, client)
        cluster.kill(victim)
        (tmp_path / str(victim) / NAME).unlink()
        await pass_time(20.0)
        await cluster.start(victim)
        assert is_unclean(cluster, victim)

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
