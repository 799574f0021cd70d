"""Group commands with `--zookeeper` on a running cluster: offsets of both storages, reset, migration both ways."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kafkalite_sdk.blocking import Admin, Producer
from kafkalite_sdk.zk import ConsumerConnector
from kafkalite_sdk.zk.offsets.offsets_topic import OFFSETS_TOPIC

from kafkalite.cli.group.zookeeper import connection
from kafkalite.cli.main import main
from kafkalite.coordination import znodes
from kafkalite.coordination.znodes.consumers import Registration, StreamId, offset_path
from kafkalite.model import TopicPartition
from kafkalite.testing.broker_cluster import BrokerCluster
from kafkalite.testing.thread import BrokerThread
from kafkalite.testing.zookeeper_thread import ZooKeeperThread
from tests.kit.zookeeper_groups import GroupNodes

TOPIC, RECORDS = "orders", 10
ABSENT = 77  # id of a broker that does not exist


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(1, {"zookeeper.session.timeout.ms": 60_000}) as running:
        running.create_topic(TOPIC, 2)
        with Producer(running.bootstrap_servers) as producer:
            for number in range(2 * RECORDS):
                producer.send(TOPIC, b"order", partition=number % 2)
            producer.flush()
        yield running


@pytest.fixture
def nodes(cluster: BrokerCluster) -> GroupNodes:
    zookeeper: ZooKeeperThread = cluster._zookeeper
    return GroupNodes(zookeeper.call)


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return name.translate({ord("["): "-", ord("]"): ""})


class Groups:
    """Runs group commands on the cluster."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self._cluster = cluster

    def __call__(self, *args: str, code: int = 0, stdin: str = "") -> Result:
        command = ["group", *args, "--zookeeper", self._cluster.zookeeper_connect]
        done = CliRunner().invoke(main, command, input=stdin)
        assert done.exit_code == code, f"{args} ended with {done.exit_code}:\n{done.output}"
        return done

    def of_broker(self, *args: str, stdin: str = "") -> Result:
        command = ["group", *args, "-b", self._cluster.bootstrap_servers]
        done = CliRunner().invoke(main, command, input=stdin)
        assert done.exit_code == 0, f"{args} ended with {done.exit_code}:\n{done.output}"
        return done

    def described(self, group: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("describe", group, "--json").stdout)
        return found

    def commit(self, group: str, offsets: dict[int, int]) -> None:
        """Commit to the broker."""
        with Admin(self._cluster.bootstrap_servers) as admin:
            admin.group_offsets.alter(group, {TopicPartition(TOPIC, each): at for each, at in offsets.items()}).check()

    def committed(self, group: str) -> dict[int, int]:
        with Admin(self._cluster.bootstrap_servers) as admin:
            found = admin.group_offsets.list(group)[group]
        return {each.partition: one.offset for each, one in found.items()}


@pytest.fixture
def groups(cluster: BrokerCluster) -> Groups:
    return Groups(cluster)


def stored(nodes: GroupNodes, group: str) -> dict[int, int]:
    found = {number: nodes.read(offset_path(group, TOPIC, number)) for number in range(2)}
    return {number: int(data) for number, data in found.items() if data is not None}


# list, describe


def test_describe_shows_lag_owner_and_storage(groups: Groups, nodes: GroupNodes, group: str) -> None:
    session = nodes.register(group, f"{group}_a", Registration({TOPIC: 1}))
    for partition in range(2):
        nodes.own(group, TOPIC, partition, StreamId(f"{group}_a", 0), session)
    nodes.commit(group, TOPIC, {0: 7, 1: 2})
    groups.commit(group, {1: 3})
    lines = [line.split() for line in groups("describe", group).stdout.splitlines()]
    assert lines[0] == f"{group}: storage both, 1 registered consumer(s)".split()
    assert lines[1][1:] == ["TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "OWNER", "STORAGE"]
    assert lines[2:] == [
        [group, TOPIC, "0", "7", "10", "3", f"{group}_a-0", "zookeeper"],
        [group, TOPIC, "1", "3", "10", "7", f"{group}_a-0", "broker"],
    ]
    found = groups.described(group)
    assert found["consumers"] == [{"consumer_id": f"{group}_a", "pattern": "static", "streams": {TOPIC: 1}}]
    assert [(each["zookeeper_offset"], each["broker_offset"]) for each in found["partitions"]] == [(7, None), (2, 3)]
    summary = json.loads(groups("describe", group, "--summary", "--json").stdout)
    assert (summary["lag"], summary["lag_max"], summary["consumers"]) == (10, 7, 1)
    listed = [json.loads(line) for line in groups("list", "--json").stdout.splitlines()]
    (row,) = [each for each in listed if each["group"] == group]
    assert row == {"group": group, "storage": "both", "consumers": 1, "topics": 1, "partitions": 2}


def test_an_offset_of_a_deleted_topic_or_beyond_the_log_is_shown(groups: Groups, nodes: GroupNodes, group: str) -> None:
    nodes.commit(group, "deleted", {0: 5})
    nodes.commit(group, TOPIC, {0: RECORDS + 5})
    deleted, beyond = groups.described(group)["partitions"]
    assert (deleted["topic"], deleted["log_end_offset"], deleted["lag"]) == ("deleted", None, None)
    assert (beyond["current_offset"], beyond["log_end_offset"], beyond["lag"]) == (15, 10, -5)


# reset


def test_reset_moves_a_group_without_consumers(groups: Groups, nodes: GroupNodes, group: str) -> None:
    nodes.commit(group, TOPIC, {0: 7})
    groups("reset", group, "--to", "latest", "--topic", TOPIC, "--dry-run")
    assert stored(nodes, group) == {0: 7}
    done = groups("reset", group, "--to", "latest", "--topic", TOPIC)
    assert [line.split()[-2:] for line in done.stdout.splitlines()[1:]] == [["7", "10"], ["-", "10"]]
    assert stored(nodes, group) == {0: 10, 1: 10}
    session = nodes.register(group, f"{group}_a", Registration({TOPIC: 1}))
    refused = groups("reset", group, "--to", "earliest", code=2)
    assert f"{group} has registered consumers: stop them first" in refused.stderr
    assert stored(nodes, group) == {0: 10, 1: 10}
    nodes.end(session)
    groups.commit(group, {0: 9})
    done = groups("reset", group, "--to", "earliest")
    assert "the broker has larger offsets of orders-0, which consumers with dual commit use" in done.stderr
    assert stored(nodes, group) == {0: 0, 1: 0}


def test_reset_creates_a_group(groups: Groups, nodes: GroupNodes, group: str) -> None:
    groups("reset", group, "--to", "3", "--topic", f"{TOPIC}:1")
    assert stored(nodes, group) == {1: 3}


# export, import


def test_offsets_move_between_the_storages_in_files(groups: Groups, nodes: GroupNodes, group: str) -> None:
    groups.commit(group, {0: 4, 1: 6})
    lines = groups.of_broker("offsets", "export", group, "--znodes").stdout
    assert lines.splitlines() == [f"/consumers/{group}/offsets/{TOPIC}/{each}:{at}" for each, at in ((0, 4), (1, 6))]
    groups("offsets", "import", stdin=lines)
    assert stored(nodes, group) == {0: 4, 1: 6}
    nodes.commit(group, TOPIC, {0: 8, 1: 8})
    groups.of_broker("offsets", "import", "-g", group, stdin=groups("offsets", "export", group, "--csv").stdout)
    assert groups.committed(group) == {0: 8, 1: 8}
    nodes.commit(group, TOPIC, {0: 9})
    groups.of_broker("offsets", "import", stdin=groups("offsets", "export", group).stdout)
    assert groups.committed(group) == {0: 9, 1: 8}


# migrate


def test_migration_to_the_broker_and_back(groups: Groups, nodes: GroupNodes, group: str) -> None:
    nodes.commit(group, TOPIC, {0: 7, 1: 8})
    dry = groups("migrate", group, "--to", "broker", "--dry-run")
    assert [line.split() for line in dry.stdout.splitlines()][1:] == [
        [group, TOPIC, "0", "7", "-", "-", "-", "copy"],
        [group, TOPIC, "1", "8", "-", "-", "-", "copy"],
    ]
    assert groups.committed(group) == {}
    assert "2 offset(s) copied to broker and read back" in groups("migrate", group, "--to", "broker").stderr
    assert groups.committed(group) == {0: 7, 1: 8}
    repeated = groups("migrate", group, "--to", "broker", "--json")
    assert [each["step"] for each in json.loads(repeated.stdout)["partitions"]] == ["equal", "equal"]
    groups.commit(group, {0: 9, 1: 10})
    refused = groups("migrate", group, "--to", "broker", code=2)
    assert "broker has larger offsets of 2 partition(s): orders-0 (9 > 7)" in refused.stderr
    groups("migrate", group, "--to", "zookeeper")
    assert stored(nodes, group) == {0: 9, 1: 10}


def test_an_interrupted_migration_is_completed(groups: Groups, nodes: GroupNodes, group: str) -> None:
    nodes.commit(group, TOPIC, {0: 7, 1: 8})
    groups.commit(group, {0: 7})
    done = groups("migrate", group, "--to", "broker", "--json")
    assert [each["step"] for each in json.loads(done.stdout)["partitions"]] == ["equal", "copy"]
    assert groups.committed(group) == {0: 7, 1: 8}


def test_migration_is_refused_while_consumers_use_the_source_alone(
    groups: Groups, nodes: GroupNodes, group: str
) -> None:
    session = nodes.register(group, f"{group}_a", Registration({TOPIC: 1}))
    nodes.own(group, TOPIC, 0, StreamId(f"{group}_a", 0), session)
    nodes.commit(group, TOPIC, {1: 8})
    refused = groups("migrate", group, "--to", "broker", code=2)
    assert f"registered: {group}_a, static {TOPIC}" in refused.stdout and "orders" in refused.stdout
    assert "nothing was copied: 1 consumer(s) are registered" in refused.stderr
    groups("migrate", group, "--to", "broker", "--consumers-commit-to-both")
    assert groups.committed(group) == {1: 8}
    nodes.commit(group, TOPIC, {0: 5})  # by the owner, and not to the broker
    refused = groups("migrate", group, "--to", "broker", "--consumers-commit-to-both", code=2)
    assert f"registered consumers commit to ZooKeeper alone: orders-0 ({group}_a-0)" in refused.stderr
    nodes.end(session)
    groups("migrate", group, "--to", "broker")
    assert groups.committed(group) == {0: 5, 1: 8}


def test_offsets_of_deleted_topics_and_garbage(groups: Groups, nodes: GroupNodes, group: str) -> None:
    nodes.commit(group, "deleted", {0: 5})
    nodes.commit(group, TOPIC, {0: 7})
    nodes.write(offset_path(group, TOPIC, 1), b"many")
    nodes.write(f"/consumers/{group}/offsets/{TOPIC}/1-0", b"286894308")
    refused = groups("migrate", group, "--to", "broker", code=2)
    assert f"nothing was copied: /consumers/{group}/offsets/{TOPIC}/1: b'many' is not an offset" in refused.stderr
    assert f"BROKER-PARTITION of Kafka before 0.8: /consumers/{group}/offsets/{TOPIC}/1-0" in refused.stderr
    assert groups.committed(group) == {}
    groups("reset", group, "--to", "8", "--topic", f"{TOPIC}:1")
    done = groups("migrate", group, "--to", "broker")
    assert "do not exist any more: deleted-0" in done.stderr
    assert groups.committed(group) == {0: 7, 1: 8}


def test_a_group_without_offsets_is_not_migrated(groups: Groups, group: str) -> None:
    for to, source in (("broker", "zookeeper"), ("zookeeper", "broker")):
        refused = groups("migrate", group, "--to", to, code=2)
        assert f"{group} has no offsets in {source}, so there is nothing to copy" in refused.stderr


async def test_dual_commit_moves_partitions_without_new_records(
    cluster: BrokerCluster, groups: Groups, nodes: GroupNodes, group: str
) -> None:
    """Without an offset in the broker, the next restart would begin at `auto.offset.reset`."""
    nodes.commit(group, TOPIC, {0: RECORDS, 1: RECORDS})
    settings: Any = {"offsets_storage": "kafka", "dual_commit_enabled": True}
    async with ConsumerConnector(cluster.zookeeper_connect, group, **settings) as connector:
        connector.create_message_streams({TOPIC: 1})
        await asyncio.to_thread(groups, "verify", group, "--consumers", "1", "--wait", "60")
        await connector.wait_until_assigned()  # owners are created before the offsets are read
        await connector.commit_offsets()
    assert await asyncio.to_thread(groups.committed, group) == {0: RECORDS, 1: RECORDS}


def test_commands_that_read_look_for_no_coordinator_without_the_offsets_topic(tmp_path: Path) -> None:
    """A single broker cannot create it with the default replication factor: a lookup would not end."""
    shared = str(tmp_path / "shared")
    with BrokerThread(str(tmp_path / "data"), {"kafkalite.coordination.directory": shared}) as broker:
        broker.create_topic(TOPIC, 1)
        for args in (
            ("reset", "served", "--to", "earliest", "--topic", TOPIC),
            ("list",),
            ("describe", "served"),
            ("migrate", "served", "--to", "broker", "--dry-run"),
        ):
            done = CliRunner().invoke(main, ["group", *args, "--zookeeper", shared])
            assert done.exit_code == 0, f"{args} ended with {done.exit_code}:\n{done.output}"
            assert "served" in done.stdout or args[0] == "list"
            assert "COORDINATOR_NOT_AVAILABLE" not in done.stderr
        with Admin(broker.address) as admin:
            assert [each.name for each in admin.topics.list()] == [TOPIC], "they have created no topic"


def test_offsets_of_zookeeper_are_shown_when_no_coordinator_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "COORDINATOR_S", 5.0)  # on a loaded machine a connection may take seconds
    with ZooKeeperThread() as zookeeper:
        nodes = GroupNodes(zookeeper.call)
        settings = {"zookeeper.connect": zookeeper.address}
        with BrokerThread(str(tmp_path / "data"), settings) as broker:
            broker.create_topic(TOPIC, 1)
            node = znodes.TopicNode(bytes(15) + b"7", {0: (ABSENT,)})
            nodes.write(znodes.topic_path(OFFSETS_TOPIC), znodes.encode_topic(node))
            nodes.commit("waiting", TOPIC, {0: 0})
            for args in (("list",), ("describe", "waiting")):
                done = CliRunner().invoke(main, ["group", *args, "--zookeeper", zookeeper.address])
                assert done.exit_code == 2 and "waiting" in done.stdout and "zookeeper" in done.stdout
                assert "the broker's offsets of waiting are unknown" in done.stderr
                assert "COORDINATOR_NOT_AVAILABLE" in done.stderr


def test_the_directory_of_a_served_tree(tmp_path: Path) -> None:
    shared = str(tmp_path / "shared")
    settings = {"kafkalite.coordination.directory": shared, "offsets.topic.replication.factor": 1}
    with BrokerThread(str(tmp_path / "data"), settings) as broker:
        broker.create_topic(TOPIC, 1)

        def run(*args: str) -> Result:
            done = CliRunner().invoke(main, ["group", *args, "--zookeeper", shared])
            assert done.exit_code == 0, f"{args} ended with {done.exit_code}:\n{done.output}"
            return done

        run("reset", "served", "--to", "latest", "--topic", TOPIC)
        run("migrate", "served", "--to", "broker")
        described = json.loads(run("describe", "served", "--json").stdout)
        assert (described["storage"], described["partitions"][0]["lag"]) == ("both", 0)
    gone = CliRunner().invoke(main, ["group", "list", "--zookeeper", str(tmp_path / "none")])
    assert gone.exit_code == 2 and "No such file or directory" in gone.stderr
