"""Group commands with `--zookeeper` that need no broker, on a server with a group of ZooKeeper-era consumers."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import click
import pytest
from click.testing import CliRunner, Result
from kafkalite_sdk.zk import group_changes
from kafkalite_sdk.zk.group_changes import GroupChangedError, GroupOffsets, RegisteredConsumersError, set_offsets
from kafkalite_sdk.zk.groups import ZooKeeperGroups
from kafkalite_sdk.zk.session import opened_session
from kafkalite_sdk.zk.znode_calls import ZnodeCalls

from kafkalite.cli.completion import complete_groups
from kafkalite.cli.main import main
from kafkalite.coordination.tree import Operation
from kafkalite.coordination.znodes import BROKER_IDS, consumers
from kafkalite.coordination.znodes.consumers import BLACK_LIST, WHITE_LIST, Registration, StreamId
from kafkalite.model import TopicPartition
from kafkalite.testing.zookeeper_thread import ZooKeeperThread
from tests.kit.zookeeper_groups import GroupNodes

GROUP, TOPIC = "billing", "orders"


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperThread]:
    with ZooKeeperThread() as running:
        yield running


@pytest.fixture
def address(zookeeper: ZooKeeperThread, request: pytest.FixtureRequest) -> str:
    """A chroot for each test."""
    return f"{zookeeper.address}/{request.node.name.replace('/', '-')}"


@pytest.fixture
def nodes(zookeeper: ZooKeeperThread, address: str) -> GroupNodes:
    chroot = address.removeprefix(zookeeper.address)
    nodes = GroupNodes(zookeeper.call, chroot)
    nodes.topic(TOPIC, 4)
    nodes.write(BROKER_IDS)
    nodes.write(consumers.CONSUMERS)
    return nodes


def run(*args: str, stdin: str = "", code: int = 0) -> Result:
    done = CliRunner().invoke(main, ["group", *args], input=stdin)
    assert done.exit_code == code, f"{args} ended with {done.exit_code}:\n{done.output}"
    return done


def two_consumers(nodes: GroupNodes) -> dict[str, int]:
    """Two consumers that share the partitions; their sessions by id."""
    sessions = {name: nodes.register(GROUP, name, Registration({TOPIC: 2})) for name in ("billing_a", "billing_b")}
    for partition in range(4):
        name = "billing_a" if partition < 2 else "billing_b"
        nodes.own(GROUP, TOPIC, partition, StreamId(name, partition % 2), sessions[name])
    return sessions


# verify


def test_each_partition_has_a_live_owner(nodes: GroupNodes, address: str) -> None:
    two_consumers(nodes)
    done = run("verify", GROUP, "--zookeeper", address)
    assert done.output == "4 partition(s) of 1 group(s) verified, 0 without exactly one live owner\n"
    found = json.loads(run("verify", "--zookeeper", address, "--json").stdout)
    assert found == {"group": GROUP, "consumers": 2, "partitions": 4, "problems": [], "invalid_nodes": {}}


def test_wrong_owners_are_named(nodes: GroupNodes, address: str) -> None:
    sessions = two_consumers(nodes)
    nodes.delete(consumers.owner_path(GROUP, TOPIC, 0))
    nodes.delete(consumers.owner_path(GROUP, TOPIC, 1))
    nodes.own(GROUP, TOPIC, 1, StreamId("billing_gone", 0), nodes.session())
    nodes.own(GROUP, "other", 0, StreamId("billing_a", 0), sessions["billing_a"])
    nodes.delete(consumers.owner_path(GROUP, TOPIC, 2))
    nodes.own(GROUP, TOPIC, 2, StreamId("billing_b", 7), sessions["billing_b"])
    nodes.delete(consumers.owner_path(GROUP, TOPIC, 3))
    nodes.write(consumers.owner_path(GROUP, TOPIC, 3), b"billing_b-1")
    done = run("verify", GROUP, "--zookeeper", address, code=1)
    assert done.stdout.splitlines() == [
        "billing: orders-0: no owner",
        "billing: orders-1: owner billing_gone-0 is not registered",
        "billing: orders-2: owner billing_b-7 is no stream of a consumer that reads the topic",
        "billing: orders-3: owner billing_b-1: the node is not ephemeral, so it stays when the consumer ends",
        "billing: other-0: owner billing_a-0, but no registered consumer reads this partition",
        "4 partition(s) of 1 group(s) verified, 5 without exactly one live owner",
    ]


def test_an_owner_of_an_earlier_session_is_not_live(nodes: GroupNodes, address: str) -> None:
    two_consumers(nodes)
    nodes.delete(consumers.owner_path(GROUP, TOPIC, 0))
    nodes.own(GROUP, TOPIC, 0, StreamId("billing_a", 0), nodes.session())
    done = run("verify", GROUP, "--zookeeper", address, code=1)
    assert "orders-0: owner billing_a-0: the node belongs to another session" in done.stdout


def test_the_number_of_consumers_may_be_expected(nodes: GroupNodes, address: str) -> None:
    two_consumers(nodes)
    run("verify", GROUP, "--zookeeper", address, "--consumers", "2")
    done = run("verify", GROUP, "--zookeeper", address, "--consumers", "3", "--wait", "0.1", code=1)
    assert "billing: 2 consumer(s) are registered, expected 3" in done.stdout


def test_wait_ends_when_all_partitions_have_owners(nodes: GroupNodes, address: str) -> None:
    """The group does not exist when the command starts."""
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(run, "verify", GROUP, "--zookeeper", address, "--consumers", "2", "--wait", "60")
        two_consumers(nodes)
        assert waiting.result(60).stdout.startswith("4 partition(s) of 1 group(s) verified, 0 without")
    done = run("verify", "none", "--zookeeper", address, "--wait", "0.1", code=2)
    assert "/consumers/none does not exist" in done.stderr


@pytest.mark.parametrize("pattern", [WHITE_LIST, BLACK_LIST])
def test_patterns_leave_internal_topics_out(nodes: GroupNodes, address: str, pattern: str) -> None:
    nodes.topic("__consumer_offsets", 50)
    nodes.topic("payments", 1)
    expression = "orders|__.*" if pattern == WHITE_LIST else "payments"
    session = nodes.register(GROUP, "billing_a", Registration({expression: 1}, pattern))
    for partition in range(4):
        nodes.own(GROUP, TOPIC, partition, StreamId("billing_a", 0), session)
    assert run("verify", GROUP, "--zookeeper", address).stdout.startswith("4 partition(s)")


def test_a_group_without_consumers_is_not_verified(nodes: GroupNodes, address: str) -> None:
    nodes.commit(GROUP, TOPIC, {0: 7})
    assert "billing: no consumer is registered" in run("verify", GROUP, "--zookeeper", address, code=1).stdout
    assert run("verify", "--zookeeper", address).stdout.startswith("0 partition(s) of 0 group(s)")


def test_invalid_nodes_are_named_and_the_others_are_verified(nodes: GroupNodes, address: str) -> None:
    two_consumers(nodes)
    nodes.write(consumers.id_path(GROUP, "billing_bad"), b"\xff")
    nodes.register(GROUP, "billing_re", Registration({"(?=x)": 1}, WHITE_LIST))
    done = run("verify", GROUP, "--zookeeper", address, code=2)
    assert done.stdout.startswith("4 partition(s) of 1 group(s) verified, 0 without")
    assert "/consumers/billing/ids/billing_bad: not JSON" in done.stderr
    assert "/consumers/billing/ids/billing_re: pattern '(?=x)': RE2 rejects it" in done.stderr


# Offsets


def test_export_prints_the_lines_of_export_zk_offsets(nodes: GroupNodes, address: str) -> None:
    nodes.commit(GROUP, TOPIC, {10: 2**62, 2: 5})
    nodes.commit("audit", "payments", {0: 1})
    lines = ["/consumers/billing/offsets/orders/2:5", f"/consumers/billing/offsets/orders/10:{2**62}"]
    assert run("offsets", "export", GROUP, "--zookeeper", address).stdout.splitlines() == lines
    everything = run("offsets", "export", "--zookeeper", address).stdout.splitlines()
    assert everything == ["/consumers/audit/offsets/payments/0:1", *lines]
    as_csv = run("offsets", "export", GROUP, "--zookeeper", address, "--csv").stdout
    assert as_csv == f"orders,2,5\norders,10,{2**62}\n"


def test_offsets_of_kafka_before_0_8_are_not_convertible(nodes: GroupNodes, address: str) -> None:
    nodes.commit(GROUP, TOPIC, {0: 5})
    nodes.write("/consumers/billing/offsets/orders/1-0", b"286894308")
    nodes.write("/consumers/billing/offsets/orders/3", b"many")
    done = run("offsets", "export", GROUP, "--zookeeper", address, code=2)
    assert done.stdout == "/consumers/billing/offsets/orders/0:5\n"
    assert (
        "/consumers/billing/offsets/orders/1-0: BROKER-PARTITION of Kafka before 0.8 is not convertible" in done.stderr
    )
    assert "/consumers/billing/offsets/orders/3: b'many' is not an offset" in done.stderr


@pytest.mark.parametrize("to_csv", [False, True])
def test_exported_offsets_are_imported(nodes: GroupNodes, address: str, to_csv: bool) -> None:
    nodes.commit(GROUP, TOPIC, {0: 5, 3: 2**62})
    exported = run("offsets", "export", GROUP, "--zookeeper", address, *["--csv"] * to_csv).stdout
    nodes.commit(GROUP, TOPIC, {0: 1, 3: 1})
    dry = run("offsets", "import", "-g", GROUP, "--zookeeper", address, "--dry-run", stdin=exported)
    assert "nothing was changed" in dry.stderr and nodes.read("/consumers/billing/offsets/orders/0") == b"1"
    done = run("offsets", "import", "-g", GROUP, "--zookeeper", address, stdin=exported)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[1:] == [[GROUP, TOPIC, "0", "1", "5"], [GROUP, TOPIC, "3", "1", str(2**62)]]
    assert nodes.read("/consumers/billing/offsets/orders/3") == str(2**62).encode()


def test_import_creates_groups_and_replaces_garbage(nodes: GroupNodes, address: str) -> None:
    nodes.write("/consumers/billing/offsets/orders/1", b"many")
    lines = "/consumers/billing/offsets/orders/1:7\n/consumers/new/offsets/orders/2:8\r\n"
    run("offsets", "import", "--zookeeper", address, stdin=lines)
    assert nodes.read("/consumers/billing/offsets/orders/1") == b"7"
    assert nodes.read("/consumers/new/offsets/orders/2") == b"8"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("/consumers/billing/offsets/orders/1", "expected /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET"),
        ("/consumers/billing/owners/orders/1:7", "expected /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET"),
        ("/consumers/billing/offsets/orders/x:7", "its partition is 'x', expected an integer from 0"),
        ("/consumers/billing/offsets/orders/1:-1", "its offset is -1, expected an integer from 0"),
        ("/consumers/billing/offsets/orders/1:", "its offset is '', expected an integer from 0"),
        ("/consumers/billing/offsets/orders/1:9223372036854775808", "its offset is 9223372036854775808"),
        ("/consumers/billing/offsets/orders/0-1:7", "0-1 is BROKER-PARTITION of Kafka before 0.8"),
    ],
)
def test_nothing_is_written_unless_all_lines_are_valid(zookeeper: ZooKeeperThread, line: str, reason: str) -> None:
    nodes = GroupNodes(zookeeper.call, "/wrong-lines")
    nodes.topic(TOPIC, 4)
    nodes.commit(GROUP, TOPIC, {0: 1})
    lines = f"/consumers/billing/offsets/orders/0:5\n{line}\n\n{line}\n"
    done = run("offsets", "import", "--zookeeper", f"{zookeeper.address}/wrong-lines", stdin=lines, code=2)
    assert reason in done.stderr
    assert "line 2 is not" in done.stderr and "line 4 is not" in done.stderr
    assert nodes.read("/consumers/billing/offsets/orders/0") == b"1"


def test_nothing_is_written_unless_all_partitions_exist(nodes: GroupNodes, address: str) -> None:
    nodes.commit(GROUP, TOPIC, {0: 1})
    done = run("offsets", "import", "-g", GROUP, "--zookeeper", address, stdin="orders,0,5\norders,4,5\n", code=2)
    assert "nothing was written: orders-4 does not exist: /brokers/topics/orders has no such partition" in done.stderr
    assert nodes.read("/consumers/billing/offsets/orders/0") == b"1"


def test_offsets_of_a_group_with_registered_consumers_are_not_imported(nodes: GroupNodes, address: str) -> None:
    two_consumers(nodes)
    nodes.commit(GROUP, TOPIC, {0: 1})
    lines = "/consumers/other/offsets/orders/0:5\n/consumers/billing/offsets/orders/0:5\n"
    done = run("offsets", "import", "--zookeeper", address, stdin=lines, code=2)
    assert "billing has registered consumers: stop them first" in done.stderr
    assert nodes.read("/consumers/billing/offsets/orders/0") == b"1"
    assert nodes.read("/consumers/other/offsets/orders/0") is None


# delete


def test_delete_removes_all_nodes(nodes: GroupNodes, address: str) -> None:
    session = nodes.register(GROUP, "billing_a", Registration({TOPIC: 1}))
    nodes.commit(GROUP, TOPIC, dict.fromkeys(range(4), 1))
    nodes.write("/consumers/billing/owners/orders")
    nodes.commit("audit", TOPIC, {0: 1})
    done = run("delete", GROUP, "none", "audit", "--zookeeper", address, code=2)
    assert done.stdout == "deleted audit\n"
    assert "billing has registered consumers" in done.stderr and "/consumers/none does not exist" in done.stderr
    nodes.end(session)
    run("delete", GROUP, "--zookeeper", address)
    assert nodes.children("/consumers") == []


# list, and errors


def test_without_brokers_the_tree_is_listed_and_the_error_says_what_is_unknown(nodes: GroupNodes, address: str) -> None:
    two_consumers(nodes)
    nodes.commit(GROUP, TOPIC, {0: 7})
    done = run("list", "--zookeeper", address, code=2)
    assert done.stdout.splitlines()[1].split() == [GROUP, "zookeeper", "2", "1", "4"]
    assert "/brokers/ids has no broker; name one with --bootstrap-server" in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ("describe", "none", "--zookeeper", "{}"),
            "/consumers/none does not exist; `kafkalite group list --zookeeper",
        ),
        (("describe", "a/b", "--zookeeper", "{}"), "group 'a/b': not the name of a znode"),
        (
            ("list", "--zookeeper", "{}/nothing"),
            "/nothing (the chroot in zookeeper.connect",
        ),
        (("list", "--zookeeper", "{}", "--state", "Stable"), "--state: groups in ZooKeeper have no such property"),
        (("list", "--zookeeper-config", "x"), "--zookeeper-config is for --zookeeper"),
        (("list", "--zookeeper", "{}", "--zookeeper-config", "/no/file"), "/no/file"),
        (("verify",), "Missing option '--zookeeper'"),
        (("migrate", "g", "--zookeeper", "{}"), "Missing option '--to'"),
        (("offsets", "export"), "name the groups to export"),
        (("offsets", "export", "g", "--csv", "--znodes"), "give --csv or --znodes, not both"),
    ],
)
def test_errors_name_the_reason(nodes: GroupNodes, address: str, args: tuple[str, ...], said: str) -> None:
    done = run(*(each.format(address) for each in args), code=2)
    assert said in done.stderr and done.stderr.count("\n") == 1


def test_names_of_groups_are_completed_from_the_tree(nodes: GroupNodes, address: str) -> None:
    for name in ("billing", "bills", "audit"):
        nodes.commit(name, TOPIC, {0: 1})
    context = click.Context(click.Command("describe"))
    context.params = {"zookeeper": address, "names": ["bills"]}
    assert complete_groups(context, click.Argument(["names"]), "bil") == ["billing"]
    context.params["zookeeper"] = "127.0.0.1:nothing"
    assert complete_groups(context, click.Argument(["names"]), "bil") == []


# Large groups, and changes of others


def test_large_groups_are_written_and_deleted_in_several_transactions(
    nodes: GroupNodes, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_changes, "BYTES_MAX", 400)
    nodes.topic("large", 40)
    lines = "".join(f"large,{partition},{partition}\n" for partition in range(40))
    run("offsets", "import", "-g", GROUP, "--zookeeper", address, stdin=lines)
    assert run("offsets", "export", GROUP, "--zookeeper", address, "--csv").stdout == lines
    assert nodes.children("/consumers/billing") == ["offsets"]
    nodes.write("/consumers/billing/ids")
    run("offsets", "import", "-g", GROUP, "--zookeeper", address, stdin=lines)
    assert nodes.children("/consumers/billing") == ["ids", "offsets"]
    run("delete", GROUP, "--zookeeper", address)
    assert nodes.children("/consumers") == []


async def changed(nodes: GroupNodes, address: str, change: Callable[[], object]) -> None:
    """Write an offset that was changed after it was read."""
    async with opened_session(address, 30.0) as session:
        groups = ZooKeeperGroups(session, 30.0)
        found = await groups.read(GROUP)
        await asyncio.to_thread(change)
        await set_offsets(groups, [GroupOffsets(GROUP, {TopicPartition(TOPIC, 0): 9}, found.offset_versions)])


async def test_an_offset_that_was_committed_meanwhile_is_not_overwritten(nodes: GroupNodes, address: str) -> None:
    nodes.commit(GROUP, TOPIC, {0: 7})
    with pytest.raises(GroupChangedError, match=r"^/consumers/billing/offsets/orders/0$"):
        await changed(nodes, address, lambda: nodes.commit(GROUP, TOPIC, {0: 8}))
    assert nodes.read("/consumers/billing/offsets/orders/0") == b"8"


async def test_an_offset_is_not_written_when_a_consumer_has_registered_meanwhile(
    nodes: GroupNodes, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it comes after the last read: the transaction itself fails."""
    nodes.commit(GROUP, TOPIC, {0: 7})
    nodes.write("/consumers/billing/ids")
    with pytest.raises(RegisteredConsumersError):
        await changed(nodes, address, lambda: nodes.register(GROUP, "billing_a", Registration({TOPIC: 1})))
    multi = ZnodeCalls.multi

    async def late(calls: ZnodeCalls, operations: Sequence[Operation]) -> None:
        await asyncio.to_thread(nodes.register, GROUP, "billing_b", Registration({TOPIC: 1}))
        await multi(calls, operations)

    nodes.delete("/consumers/billing/ids/billing_a")
    monkeypatch.setattr(ZnodeCalls, "multi", late)
    with pytest.raises(RegisteredConsumersError):
        await changed(nodes, address, lambda: None)
    assert nodes.read("/consumers/billing/offsets/orders/0") == b"7"
    assert nodes.children("/consumers/billing/ids") == ["billing_b"]
