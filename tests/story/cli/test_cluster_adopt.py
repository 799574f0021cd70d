"""`cluster adopt`: a broker that ran alone becomes the first broker of a cluster, with all that it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafkalite_sdk.admin import NewTopic, Resource
from kafkalite_sdk.blocking import Admin, Consumer, Producer

from kafkalite.coordination.tree import Create
from kafkalite.testing.thread import BrokerThread
from kafkalite.testing.zookeeper_thread import ZooKeeperThread
from tests.story.cli.test_cluster_commands import run

TOPIC, GROUP, RECORDS = "orders", "billing", 30
WAIT_S = 30.0


def fill(address: str) -> list[int]:
    """A topic with configs and records, of which a group has committed ten; their values."""
    with Admin(address) as admin:
        admin.topics.create(NewTopic(TOPIC, partitions=3, configs={"retention.ms": "123456789"})).check()
    with Producer(address) as producer:
        for number in range(RECORDS):
            producer.send(TOPIC, b"%d" % number, partition=number % 3)
    with Consumer(address, group=GROUP, auto_offset_reset="earliest", max_poll_records=10) as consumer:
        consumer.subscribe(TOPIC)
        found = consumer.poll(WAIT_S)
        assert len(found) == 10
        consumer.commit()
    return [int(each.value or b"") for each in found]


def topic_id(address: str) -> str:
    with Admin(address) as admin:
        return admin.topics.describe(TOPIC)[TOPIC].topic_id


def read(address: str, group: str, number: int) -> list[int]:
    values: list[int] = []
    with Consumer(address, group=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(TOPIC)
        while len(values) < number:
            found = consumer.poll(WAIT_S)
            assert found, f"{len(values)} of {number} records"
            values += [int(each.value or b"") for each in found]
    return sorted(values)


@pytest.mark.parametrize("kind", ["zookeeper", "coordination"])
def test_a_broker_becomes_the_first_one_of_a_cluster(tmp_path: Path, kind: str) -> None:
    data = str(tmp_path / "1")
    with BrokerThread(data) as alone:
        committed = fill(alone.address)
        before = topic_id(alone.address)
        done = run("cluster", "adopt", "--data", data, "--coordination", str(tmp_path / "unused"), code=2)
        assert "another broker uses this log directory" in done.stderr
    with ZooKeeperThread() as zookeeper:
        where = f"{zookeeper.address}/kafka" if kind == "zookeeper" else str(tmp_path / "shared")
        key = "zookeeper.connect" if kind == "zookeeper" else "kafkalite.coordination.directory"
        refused = BrokerThread(data, {key: where})
        with pytest.raises(Exception, match="kafkalite cluster adopt"):
            refused.__enter__()
        lines = run("cluster", "adopt", "--data", data, f"--{kind}", where).stdout.splitlines()
        assert lines[0].startswith("cluster ") and " with 2 topics: " in lines[0]
        assert lines[1] == f"next: kafkalite serve --data {data} --set {key}={where}"
        refused = BrokerThread(data)
        with pytest.raises(Exception, match=r"has no kafkalite\.journal; a cluster has adopted it"):
            refused.__enter__()
        with BrokerThread(data, {key: where}) as first:
            assert topic_id(first.address) == before
            with Admin(first.address) as admin:
                (configs,) = admin.configs.describe(Resource.topic(TOPIC)).check().values()
                assert configs["retention.ms"].value == "123456789"
            assert sorted([*committed, *read(first.address, GROUP, RECORDS - 10)]) == list(range(RECORDS))
            with BrokerThread(str(tmp_path / "2"), {key: where, "broker.id": 2}) as second:
                with Admin(second.address) as admin:
                    admin.topics.create(NewTopic("spread", partitions=2)).check()
                    assert {each.broker_id for each in admin.cluster.describe().brokers} == {1, 2}
                assert read(second.address, "another", RECORDS) == list(range(RECORDS))


def test_a_tree_with_another_cluster_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    for number in ("1", "2"):
        with BrokerThread(str(tmp_path / number)) as alone, Admin(alone.address) as admin:
            admin.topics.create(f"of-{number}").check()
    with ZooKeeperThread() as zookeeper:
        run("cluster", "adopt", "--data", str(tmp_path / "1"), "--zookeeper", zookeeper.address)
        done = run("cluster", "adopt", "--data", str(tmp_path / "2"), "--zookeeper", zookeeper.address, code=2)
        assert "the tree belongs to cluster" in done.stderr and done.stderr.count("\n") == 1
        node = Create("/brokers/topics/other", b"")
        nodes = [Create("/b", b""), Create("/b/brokers", b""), Create("/b/brokers/topics", b"")]
        nodes.append(node._replace(path=f"/b{node.path}"))
        zookeeper.call(lambda server: server.tree.multi(nodes, server.tree.open_session(), 0))
        done = run("cluster", "adopt", "--data", str(tmp_path / "2"), "--zookeeper", f"{zookeeper.address}/b", code=2)
        assert "the tree has other topics, first /brokers/topics/other; choose another path" in done.stderr
    with BrokerThread(str(tmp_path / "2")) as alone, Admin(alone.address) as admin:
        assert [each.name for each in admin.topics.list()] == ["of-2"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ((), "give either --zookeeper or --coordination"),
        (("--zookeeper", "a:1", "--coordination", "b"), "give either --zookeeper or --coordination"),
        (
            ("--data", "{}/other", "--coordination", "{}/shared"),
            "has no kafkalite.journal: it is not the log directory",
        ),
        (("--zookeeper", "127.0.0.1:1", "--timeout", "0.5"), "127.0.0.1:1: no answer within 0.5 s"),
        (("--zookeeper", "a b:1"), "is not host:port"),
    ],
)
def test_bad_input(tmp_path: Path, options: tuple[str, ...], error: str) -> None:
    given = [each.format(tmp_path) for each in options]
    data = tmp_path / "data"
    for directory in (data, tmp_path / "other"):
        directory.mkdir()
    (data / "kafkalite.journal").touch()
    done = run("cluster", "adopt", "--data", str(data), *given, code=2)
    assert error in done.stderr and done.stderr.count("\n") == 1
