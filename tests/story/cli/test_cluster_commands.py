"""`cluster status` and `zk` against a cluster of three brokers."""

import json
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite.coordination.tree import Create, Delete
from kafkalite.testing.broker_cluster import BrokerCluster
from kafkalite.testing.fake_zookeeper import FakeZooKeeper
from kafkalite.testing.thread import BrokerThread
from kafkalite.testing.zookeeper_thread import ZooKeeperThread
from tests.kit.broker_processes import image_of
from tests.kit.brokers import wait_until
from tests.story.cli.conftest import COMMAND, ENVIRON, TIMEOUT_S, Run


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    settings = {
        "zookeeper.session.timeout.ms": 60_000,  # sessions end by `expire`
        "default.replication.factor": 1,  # partitions of a dead broker have no leader
        "min.insync.replicas": 1,
    }
    with BrokerCluster(3, settings) as running:
        running.create_topic("orders", 6)
        yield running


def run(*args: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*COMMAND, *args], capture_output=True, text=True, env=ENVIRON, timeout=TIMEOUT_S)
    assert code in (None, done.returncode), f"{args} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done


def status(cluster: BrokerCluster, broker_id: int, code: int = 0) -> dict[str, Any]:
    done = run("cluster", "status", "-b", cluster.address(broker_id), "--json", "--timeout", "2", code=code)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# cluster status


def test_any_broker_shows_the_status_of_the_cluster(cluster: BrokerCluster) -> None:
    for broker_id in cluster.broker_ids:
        found = status(cluster, broker_id)
        assert (found["controller"], found["partitions"], found["problems"]) == (cluster.controller(), 6, [])
        assert found["transaction_version"] == 2
        assert [each["broker"] for each in found["brokers"]] == [1, 2, 3] and found["without_leader"] == []
        for each in found["brokers"]:
            assert f"{each['host']}:{each['port']}" == cluster.address(each["broker"])
            assert each["coordination"] == cluster.zookeeper_connect and each["answers"]
            assert each["controller"] == (each["broker"] == found["controller"])
    lines = run("cluster", "status", "-b", cluster.bootstrap_servers).stdout.splitlines()
    assert lines[0].endswith(f", controller: broker {cluster.controller()}")
    assert lines[1] == "1 topic(s), 6 partition(s), 0 without a leader"
    assert lines[2] == "transaction.version 2"
    assert lines[3].split() == [
        "BROKER",
        "HOST",
        "PORT",
        "RACK",
        "CONTROLLER",
        "STATE",
        "IMBALANCE",
        "LAG",
        "ISR-CHANGES",
        "COORDINATION",
    ]
    assert len(lines) == 7


def leaders_known_to(cluster: BrokerCluster, broker_id: int) -> list[int]:
    """The leaders of all partitions of the topic as this broker knows them; -1 = none."""
    image = image_of(cluster.address(broker_id))
    assert image is not None
    return [leader for (topic, _), leader in image.leaders.items() if topic == "orders"]


def test_silent_brokers_and_partitions_without_a_leader_are_faults(cluster: BrokerCluster) -> None:
    absent = cluster.leader("orders", 2)
    asked = absent % 3 + 1
    lost = [each for each in range(6) if cluster.leader("orders", each) == absent]
    cluster.disconnect(absent)
    found = status(cluster, asked, code=1)
    assert [each["broker"] for each in found["brokers"] if not each["answers"]] == [absent]
    assert any(each.startswith(f"broker {absent} does not answer: ") for each in found["problems"])
    cluster.expire(absent)
    cluster.controller()
    wait_until(lambda: leaders_known_to(cluster, asked).count(-1) == len(lost), f"broker {asked} knows no leader")
    done = run("cluster", "status", "-b", cluster.address(asked), code=1)
    assert "2 without a leader" in done.stdout
    assert any(line.split()[:6] == [str(absent), "-", "-", "-", "no", "not"] for line in done.stdout.splitlines())
    step = f": start broker {absent}, or see its log if it runs\n"
    assert f"kafkalite: 2 partition(s) have no leader{step}" in done.stderr
    assert f"kafkalite: broker {absent} has replicas, but is not registered: start it\n" in done.stderr
    found = status(cluster, asked, code=1)
    assert found["not_registered"] == [absent]
    of_absent = {"topic": "orders", "replicas": [absent], "isr": [absent]}
    assert found["without_leader"] == [of_absent | {"partition": each} for each in lost]
    cluster.reconnect(absent)
    cluster.leader("orders", 2)


def write(cluster: BrokerCluster, *operations: Create | Delete) -> None:
    """Change the tree as a foreign program does."""

    def apply(server: FakeZooKeeper) -> None:
        server.tree.multi(list(operations), server.tree.open_session(), 0)
        server.fire()

    cluster._zookeeper.call(apply)


def test_invalid_nodes_are_faults_whichever_broker_is_asked(cluster: BrokerCluster) -> None:
    paths = ["/brokers/ids/7", "/brokers/topics/bad\u200b name"]
    write(cluster, *(Create(each, b"x") for each in paths))
    args = ("cluster", "status", "-b", cluster.bootstrap_servers)
    wait_until(lambda: "2 node(s)" in run(*args, "--json", code=None).stdout, "the nodes are not shown")
    for broker_id in cluster.broker_ids:
        found = status(cluster, broker_id, code=1)
        assert [each["path"] for each in found["invalid_nodes"]] == paths and found["invalid_node_count"] == 2
        assert found["invalid_nodes"][0]["reason"] == "not JSON"
        assert found["problems"] == ["2 node(s) of the tree are invalid, and left out"]
    lines = run(*args, code=1).stdout.splitlines()
    assert lines[-3].split() == ["PATH", "REASON", "ACTION"] and lines[-2].startswith("/brokers/ids/7 ")
    assert lines[-1].startswith("/brokers/topics/bad\\u200b name  ") and lines[-1].endswith("  delete the node")
    write(cluster, *(Delete(each) for each in paths))
    wait_until(lambda: run(*args, code=None).returncode == 0, "the nodes are still shown")


def test_a_broker_that_is_alone_has_no_coordination(broker: BrokerThread, kafkalite: Run) -> None:
    found = json.loads(kafkalite("cluster", "status", "--json").stdout)
    assert [each["coordination"] for each in found["brokers"]] == [None] and found["problems"] == []


# zk


def test_tree_prints_nodes_in_order_within_its_limits(cluster: BrokerCluster) -> None:
    servers = cluster.zookeeper_connect
    rows = [line.split() for line in run("zk", "tree", servers, "/brokers", "--depth", "2").stdout.splitlines()]
    assert rows[0] == ["PATH", "BYTES", "CHILDREN", "VERSION", "EPHEMERAL"]
    assert [row[0] for row in rows[1:]] == [
        *("/brokers", "/brokers/ids", "/brokers/ids/1", "/brokers/ids/2", "/brokers/ids/3"),
        *("/brokers/seqid", "/brokers/topics", "/brokers/topics/orders"),
    ]
    assert [row[4] for row in rows[1:]] == ["no", "no", "yes", "yes", "yes", "no", "no", "no"]
    done = run("zk", "tree", servers, "--limit", "3", "--json")
    assert [json.loads(line)["path"] for line in done.stdout.splitlines()] == ["/", "/admin", "/admin/delete_topics"]
    assert done.stderr == "kafkalite: only the first 3 nodes are printed; --limit prints more\n"
    below = run("zk", "tree", f"{servers}/brokers", "/ids").stdout.splitlines()
    assert [line.split()[0] for line in below[1:]] == ["/ids", "/ids/1", "/ids/2", "/ids/3"]


def test_get_prints_data_and_metadata(cluster: BrokerCluster) -> None:
    servers, controller = cluster.zookeeper_connect, cluster.controller()
    found = json.loads(run("zk", "get", servers, "/controller", "--json").stdout)
    assert found["path"] == "/controller" and found["data"]["brokerid"] == controller
    assert found["stat"]["ephemeral_owner"] and found["stat"]["num_children"] == 0
    lines = run("zk", "get", servers, "/controller").stdout.splitlines()
    assert json.loads(lines[0]) == found["data"]
    assert f"ephemeral_owner: {found['stat']['ephemeral_owner']:#x}" in lines
    assert json.loads(run("zk", "get", servers, "/brokers", "--json").stdout)["data"] is None


def test_data_that_is_no_json_is_shown_safely() -> None:
    with ZooKeeperThread() as zookeeper:
        nodes = (Create("/text", b"a\x1b[2J"), Create("/bytes", b"\xff\x00"))
        zookeeper.call(lambda server: server.tree.multi(nodes, server.tree.open_session(), 0))
        assert run("zk", "get", zookeeper.address, "/text").stdout.splitlines()[0] == "a\\x1b[2J"
        assert json.loads(run("zk", "get", zookeeper.address, "/text", "--json").stdout)["data"] == "a\x1b[2J"
        assert run("zk", "get", zookeeper.address, "/bytes").stdout.splitlines()[0] == "\\xff\\x00"
        found = json.loads(run("zk", "get", zookeeper.address, "/bytes", "--json").stdout)
        assert found["data"] == {"base64": "/wA="}


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("get", "{}", "/none"), "no such node: /none"),
        (("tree", "{}/none"), "no such node: /"),
        (("get", "{}", "controller"), "'controller' is not the path of a node; write it as /brokers/ids"),
        (("get", "local host", "/x"), '"local host" is not host:port; write SERVERS as in zookeeper.connect'),
    ],
)
def test_errors_name_the_reason(cluster: BrokerCluster, args: tuple[str, ...], error: str) -> None:
    done = run("zk", *(each.format(cluster.zookeeper_connect) for each in args), code=2)
    assert done.stdout == "" and error in done.stderr and done.stderr.count("\n") == 1


def test_a_server_that_is_absent_or_silent_ends_the_command() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = run("zk", "tree", address, "--timeout", "1", code=2)
        assert done.stderr == f"kafkalite: {address}: no answer within 1 s; is ZooKeeper there?\n"
    done = run("zk", "tree", address, "--timeout", "1", code=2)
    refused = f"({address}: Connection refused)"
    assert done.stderr == f"kafkalite: {address}: no answer within 1 s {refused}; is ZooKeeper there?\n"
