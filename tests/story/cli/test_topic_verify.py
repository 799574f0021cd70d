"""`kafkalite topic verify` against a cluster of three brokers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafkalite_sdk.blocking import Producer

from kafkalite.testing.broker_cluster import BrokerCluster
from tests.story.cli.test_cluster_commands import run

RECORDS = 50


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(3) as running:
        running.create_topic("orders", 2)
        running.create_topic("accounts", 1, {"cleanup.policy": "compact"})
        with Producer(running.bootstrap_servers, acks="all") as producer:
            for topic in ("orders", "accounts"):
                for number in range(RECORDS):
                    producer.send(topic, b"value %d" % number, key=b"key %d" % (number % 7)).result()
        yield running


def test_nothing_to_compare(cluster: BrokerCluster) -> None:
    run("topic", "create", "single", "--replication-factor", "1", "-b", cluster.bootstrap_servers)
    done = run("topic", "verify", "single", "-b", cluster.bootstrap_servers)
    few = "those with one replica have nothing to compare"
    assert done.stdout == f"0 partition(s) compared, replicas of 0 differ: {few}\n"


def test_equal_replicas(cluster: BrokerCluster) -> None:
    done = run("topic", "verify", "orders", "accounts", "-b", cluster.bootstrap_servers)
    assert done.stdout == "3 partition(s) compared, replicas of 0 differ\n"
    lines = run("topic", "verify", "orders", "accounts", "--json", "-b", cluster.bootstrap_servers).stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert [sorted(each["brokers"]) for each in found] == [[1, 2, 3]] * 3
    assert sum(each["end_offset"] for each in found if each["topic"] == "orders") == RECORDS
    assert next(each["keys"] for each in found if each["topic"] == "accounts") == 7


@pytest.mark.parametrize("topic", ["orders", "accounts"])
def test_a_flipped_bit_of_a_follower_is_found(cluster: BrokerCluster, topic: str) -> None:
    partition = next(each for each in (1, 0) if has_records(cluster, topic, each))
    leader = cluster.leader(topic, partition)
    broker = leader % 3 + 1
    cluster.stop(broker)
    log = Path(cluster.log_directory(broker), f"{topic}-{partition}", f"{0:020}.log")
    right = log.read_bytes()
    at = right.index(b"value ")  # the last batch may be above the high watermark that this broker has at its start
    log.write_bytes(right[:at] + b"V" + right[at + 1 :])
    stopped = run("topic", "verify", topic, "-b", cluster.address(leader), code=2)
    assert f"on broker {broker}" in stopped.stderr
    cluster.start(broker)
    cluster.leader(topic, partition)
    done = run("topic", "verify", f"{topic}:{partition}", "-b", cluster.bootstrap_servers, code=1)
    (line, last) = done.stdout.splitlines()
    assert line.startswith(f"{topic}-{partition}: broker {broker}: ") and "CRC" in line
    assert last == "1 partition(s) compared, replicas of 1 differ"
    cluster.stop(broker)
    log.write_bytes(right)
    cluster.start(broker)


def has_records(cluster: BrokerCluster, topic: str, partition: int) -> bool:
    log = Path(cluster.log_directory(1), f"{topic}-{partition}", f"{0:020}.log")
    return log.exists() and log.stat().st_size > 0
