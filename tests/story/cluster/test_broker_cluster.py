"""`kafkalite.testing.broker_cluster`: brokers in threads of the test, with the blocking clients of the SDK."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafkalite_sdk.blocking import Admin, Consumer, Producer

from kafkalite.errors import KafkaError
from kafkalite.testing.broker_cluster import BrokerCluster

PARTITIONS = 6
CLEAN = ".kafka_cleanshutdown"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def shared() -> Iterator[BrokerCluster]:
    with BrokerCluster(3, {"zookeeper.session.timeout.ms": 60_000}) as cluster:  # sessions end by `expire`
        yield cluster


@pytest.fixture
def cluster(shared: BrokerCluster) -> BrokerCluster:
    """The cluster with all its brokers."""
    for broker_id in set(shared.broker_ids) - set(shared.running):
        shared.start(broker_id)
    return shared


def send(cluster: BrokerCluster, topic: str, values: range) -> None:
    """Send the values to partitions in turn, and wait for the acknowledgements."""
    with Producer(cluster.bootstrap_servers) as producer:
        sent = [producer.send(topic, b"%d" % each, partition=each % PARTITIONS) for each in values]
        for each in sent:
            each.result()


def read(cluster: BrokerCluster, topic: str, number: int) -> list[int]:
    """Read that many records in a group."""
    values: list[int] = []
    with Consumer(cluster.bootstrap_servers, group=f"of-{topic}", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(topic)
        while len(values) < number:
            found = consumer.poll(WAIT_S)
            assert found, f"{len(values)} of {number} records"
            values += [int(each.value or b"") for each in found]
    return values


def refuses(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        return bool(probe.connect_ex((host, int(port))))


def test_topics_are_spread_and_clients_of_any_broker_reach_them(cluster: BrokerCluster) -> None:
    cluster.create_topic("spread", PARTITIONS, {"retention.ms": 10_000_000})
    assert sorted(cluster.leader("spread", each) for each in range(PARTITIONS)) == [1, 1, 2, 2, 3, 3]
    send(cluster, "spread", range(300))
    assert sorted(read(cluster, "spread", 300)) == list(range(300))
    for broker_id in cluster.broker_ids:
        with Admin(cluster.address(broker_id)) as admin:
            assert len(admin.cluster.describe().brokers) == 3
    cluster.delete_topic("spread")
    with Admin(cluster.bootstrap_servers) as admin:
        assert "spread" not in admin.topics.list()


def test_a_killed_broker_keeps_what_it_acknowledged(cluster: BrokerCluster) -> None:
    cluster.create_topic("killed", PARTITIONS)
    send(cluster, "killed", range(60))
    victim = cluster.leader("killed", 0)
    mark = Path(cluster.log_directory(victim), CLEAN)
    cluster.kill(victim)
    assert victim not in cluster.running and not mark.exists()
    assert refuses(cluster.address(victim))
    cluster.start(victim)
    send(cluster, "killed", range(60, 120))
    assert cluster.leader("killed", 0) in cluster.running
    assert sorted(read(cluster, "killed", 120)) == list(range(120))


def test_a_stopped_broker_closes_its_logs(cluster: BrokerCluster) -> None:
    cluster.create_topic("stopped", PARTITIONS)
    send(cluster, "stopped", range(60))
    cluster.stop(2)
    assert Path(cluster.log_directory(2), CLEAN).exists()
    assert cluster.controller() in (1, 3)
    cluster.start(2)
    assert sorted(read(cluster, "stopped", 60)) == list(range(60))


def test_another_broker_becomes_the_controller(cluster: BrokerCluster) -> None:
    before = cluster.controller()
    cluster.kill(before)
    cluster.expire(before)
    assert cluster.controller() in set(cluster.broker_ids) - {before}
    cluster.expire(before)  # it has no session
    cluster.start(before)
    cluster.create_topic("controlled", PARTITIONS)


def test_a_broker_with_an_expired_session_registers_again(cluster: BrokerCluster) -> None:
    cluster.create_topic("expired", PARTITIONS)
    cluster.expire(3)
    send(cluster, "expired", range(60))
    assert sorted(read(cluster, "expired", 60)) == list(range(60))


def test_a_disconnected_broker_is_unreachable_until_it_is_reconnected(cluster: BrokerCluster) -> None:
    cluster.create_topic("disconnected", PARTITIONS)
    leaders = {each: cluster.leader("disconnected", each) for each in range(PARTITIONS)}
    victim = leaders[0]
    cluster.disconnect(victim)
    cluster.expire(victim)
    assert victim in cluster.running and cluster.controller() != victim
    others = {each: leader for each, leader in leaders.items() if leader != victim}
    assert {each: cluster.leader("disconnected", each) for each in others} == others != {}
    send(cluster, "disconnected", range(60))
    host, port = cluster.address(victim).split(":")
    with pytest.raises(KafkaError), Admin(f"{host}:{port}", request_timeout_ms=500) as admin:
        admin.cluster.describe()
    assert cluster.leader("disconnected", 0) != victim
    cluster.reconnect(victim)
    send(cluster, "disconnected", range(60, 120))
    assert sorted(read(cluster, "disconnected", 120)) == list(range(120))


def test_wrong_calls_are_named(cluster: BrokerCluster) -> None:
    with pytest.raises(RuntimeError, match="broker 1 runs already"):
        cluster.start(1)
    cluster.stop(1)
    for call in (cluster.stop, cluster.kill, cluster.disconnect, cluster.reconnect):
        with pytest.raises(RuntimeError, match="broker 1 does not run"):
            call(1)
    with pytest.raises(KeyError):
        cluster.address(4)
    with pytest.raises(ValueError, match="a cluster of 0 brokers"):
        BrokerCluster(0)
    with pytest.raises(KafkaError, match="a b"):
        cluster.create_topic("a b")


def test_a_failed_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(Exception, match=r"num\.partitions"), BrokerCluster(2, {"num.partitions": "many"}):
        raise AssertionError("unreachable")
    assert list(tmp_path.iterdir()) == []
