"""`--bootstrap-server zookeeper://...`: a command finds the brokers in ZooKeeper."""

from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from kafkalite_sdk.blocking import Producer

from kafkalite.cli.main import main
from kafkalite.testing.broker_cluster import BrokerCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(1, {"zookeeper.session.timeout.ms": 60_000}) as running:
        yield running


def run(*args: str, code: int = 0, env: dict[str, str] | None = None) -> str:
    done = CliRunner().invoke(main, args, env=env)
    assert done.exit_code == code, f"{args} ended with {done.exit_code}:\n{done.output}"
    return done.output


def test_commands_find_the_brokers_of_a_tree(cluster: BrokerCluster) -> None:
    tree = f"zookeeper://{cluster.zookeeper_connect}"
    run("topic", "create", "orders", "-b", tree)
    with Producer(f"{tree}?listener=PLAINTEXT") as producer:  # a blocking client
        producer.send("orders", b"one").result()
        producer.send("orders", b"two").result()
    assert run("consume", "orders", "--from-beginning", "-e", "-b", tree).split() == ["one", "two"]
    assert "orders" in run("topic", "list", env={"KAFKALITE_BOOTSTRAP": tree})
    assert "orders" in run("topic", "list", "-X", f"bootstrap.servers={tree}")


def test_wrong_trees_end_the_command_with_one_line(cluster: BrokerCluster) -> None:
    tree = f"zookeeper://{cluster.zookeeper_connect}"
    assert "has a listener named EXTERNAL" in run("topic", "list", "-b", f"{tree}?listener=EXTERNAL", code=2)
    assert "the chroot" in run("topic", "list", "-b", f"{tree}/missing", code=2)
    assert "is not host:port" in run("topic", "list", "-b", "zookeeper://zk:x", code=2)
