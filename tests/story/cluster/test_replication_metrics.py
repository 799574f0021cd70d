"""Metrics of replication, lags and unclean elections in a cluster of three brokers."""

import json
from collections.abc import Iterator

import pytest
from kafkalite_sdk.blocking import Producer

from kafkalite.testing.broker_cluster import BrokerCluster
from tests.kit.brokers import wait_until
from tests.story.cli.test_cluster_commands import run


@pytest.fixture
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(3, {"min.insync.replicas": 1, "auto.leader.rebalance.enable": False}) as running:
        yield running


def metrics(cluster: BrokerCluster, broker_id: int) -> dict[str, float]:
    """The metrics of a broker by name; of several with labels the sum."""
    families = cluster._threads[broker_id].running.metrics.walk()
    return {family.name: sum(each.value for each in family.members.values()) for family in families}


def send(cluster: BrokerCluster, *values: bytes) -> None:
    with Producer(cluster.bootstrap_servers, acks="all") as producer:
        for value in values:
            producer.send("orders", value).result()


def test_lags_and_bytes_of_replicas_in_sync(cluster: BrokerCluster) -> None:
    cluster.create_topic("orders", 3)
    send(cluster, *(b"x" * 1000 for _ in range(20)))
    found = {each: metrics(cluster, each) for each in cluster.broker_ids}
    total = {name: sum(each[name] for each in found.values()) for name in found[1]}
    assert total["kafkalite_replication_bytes_out"] >= 2 * 20 * 1000, "two followers"
    assert total["kafkalite_replication_bytes_in"] == total["kafkalite_replication_bytes_out"]
    assert total["kafkalite_active_controller"] == 1
    for name in ("offline_partitions", "not_preferred_leaders", "unclean_leader_elections", "offline_replicas"):
        assert total[f"kafkalite_{name}"] == 0, name
    args = ("cluster", "log-dirs", "--partitions", "--json", "-b", cluster.bootstrap_servers)

    def lags() -> list[int]:
        rows = [json.loads(line) for line in run(*args).stdout.splitlines()]
        return [row["offset_lag"] for row in rows if row["topic"] == "orders"]

    wait_until(lambda: lags() == [0] * 9, "replicas still lag")
    for each in cluster.broker_ids:
        assert metrics(cluster, each)["kafkalite_replica_fetcher_lag"] == 0


def test_an_unclean_election_is_counted_by_the_controller(cluster: BrokerCluster) -> None:
    cluster.create_topic("orders", 1, {"unclean.leader.election.enable": True})
    last = cluster.leader("orders")
    stale, other = (each for each in cluster.broker_ids if each != last)
    for broker_id in (stale, other):
        cluster.kill(broker_id)
        cluster.expire(broker_id)
        send(cluster, b"without %d" % broker_id)
    cluster.kill(last)
    cluster.expire(last)
    cluster.start(stale)
    assert cluster.leader("orders") == stale
    found = metrics(cluster, stale)
    assert found["kafkalite_unclean_leader_elections"] == 1 and found["kafkalite_offline_partitions"] == 0
    assert found["kafkalite_under_replicated_partitions"] == 1
    status = json.loads(run("cluster", "status", "--json", "-b", cluster.address(stale), code=1).stdout)
    (broker,) = status["brokers"]
    assert (broker["replica_lag"], broker["pending_isr_changes"]) == (0, 0)
