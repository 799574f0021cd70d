"""The shipped pytest plugin: cheap to load, legal topic names, fixtures with their settings. test_dist.py uses it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkalite.testing.plugin import TOPIC_NAME_MAX, topic_name

ROOT = Path(__file__).parents[2]


def test_loading_the_plugin_does_not_import_the_broker() -> None:
    code = (
        "import sys, pytest, kafkalite.testing.plugin as _; "
        "print(sorted(m for m in sys.modules if m.split('.')[0] in {'kafkalite', 'uvloop', 'aiozk'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "['kafkalite', 'kafkalite.testing', 'kafkalite.testing.plugin']"


def test_topic_names_are_legal_and_unique() -> None:
    assert topic_name("test_a[x.y/z]", 7) == "test_a-x-y-z--7"
    assert len(topic_name("x" * 500, 12345)) == TOPIC_NAME_MAX
    assert topic_name("same", 1) != topic_name("same", 2)


USES_EVERY_FIXTURE = """
import pytest
from kafkalite_sdk.blocking import Admin


def partitions(broker, topic):
    with Admin(broker.address) as admin:
        return len(admin.topics.describe(topic)[topic].partitions)


def test_default(kafkalite_broker, kafkalite_topic, kafkalite_producer, kafkalite_consumer):
    assert partitions(kafkalite_broker, kafkalite_topic) == 2
    assert kafkalite_producer.send(kafkalite_topic, b"value").result().offset == 0
    assert [each.value for each in kafkalite_consumer.poll(60.0)] == [b"value"]
    with Admin(kafkalite_broker.address) as admin:
        assert set(kafkalite_consumer.assignment()) and admin.topics.create("by-default")["by-default"]
        assert partitions(kafkalite_broker, "by-default") == 4


@pytest.mark.kafkalite(settings={"num.partitions": 5}, partitions=7)
class TestMarked:
    @pytest.mark.kafkalite(
        partitions=3,
        configs={"cleanup.policy": "compact"},
        producer={"value_serializer": str.encode},
        consumer={"value_deserializer": bytes.decode},
    )
    def test_marker(self, kafkalite_broker, kafkalite_topic, kafkalite_producer, kafkalite_consumer):
        assert partitions(kafkalite_broker, kafkalite_topic) == 3
        kafkalite_producer.send(kafkalite_topic, "value", key=b"k")
        assert [each.value for each in kafkalite_consumer.poll(60.0)] == ["value"]
        with Admin(kafkalite_broker.address) as admin:
            admin.topics.create("by-marker").check()
            assert partitions(kafkalite_broker, "by-marker") == 5

    def test_same_broker(self, kafkalite_broker, kafkalite_topic):
        assert partitions(kafkalite_broker, "by-marker") == 5
        assert partitions(kafkalite_broker, kafkalite_topic) == 7


def test_factories(
    kafkalite_broker_factory,
    kafkalite_broker,
    kafkalite_topic_factory,
    kafkalite_producer_factory,
    kafkalite_consumer_factory,
):
    first, second = kafkalite_topic_factory(), kafkalite_topic_factory(partitions=6, configs={"retention.ms": 1000})
    assert partitions(kafkalite_broker, second) == 6
    producer, other = kafkalite_producer_factory(), kafkalite_producer_factory(acks=1)
    producer.send(first, b"first").result()
    other.send(second, b"second").result()
    consumer, seen = kafkalite_consumer_factory(first, second, group="own"), set()
    while len(seen) < 2:
        seen |= {each.value for each in consumer.poll(60.0)}
    another = kafkalite_broker_factory({"num.partitions": 8})
    with Admin(another.address) as admin:
        admin.topics.create("orders").check()
        assert partitions(another, "orders") == 8
"""
USES_A_CLUSTER = """
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient


@pytest.mark.kafkalite(settings={"num.partitions": 4}, brokers=2)
def test_foreign_clients_survive_a_kill(kafkalite_cluster):
    cluster = kafkalite_cluster
    assert cluster.broker_ids == cluster.running == (1, 2)
    cluster.create_topic("orders", partitions=2)
    assert len(AdminClient({"bootstrap.servers": cluster.address(2)}).list_topics(timeout=60).brokers) == 2
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    failures = []
    for number in range(200):
        report = {"on_delivery": lambda error, _: failures.append(error)}
        producer.produce("orders", b"%d" % number, partition=number % 2, **report)
        if number == 100:
            producer.poll(0.1)
            cluster.kill(cluster.leader("orders", 0))
            (other,) = cluster.running
            cluster.start(3 - other)
    assert producer.flush(120) == 0
    assert failures == [None] * 200
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "billing", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    values = []
    while len(values) < 200:
        message = consumer.poll(120)
        assert message is not None and message.error() is None, message and message.error()
        values.append(int(message.value()))
    consumer.close()
    assert sorted(values) == list(range(200))
    assert [each for each in values if each % 2] == list(range(1, 200, 2))


def test_factory(kafkalite_cluster_factory):
    one, two = kafkalite_cluster_factory(1), kafkalite_cluster_factory(settings={"auto.create.topics.enable": False})
    assert (one.running, two.running) == ((1,), (1, 2, 3))
    assert not {one.address(1)} & set(two.bootstrap_servers.split(","))
"""
INI = "[pytest]\nkafkalite_settings =\n    num.partitions = 4\nkafkalite_partitions = 2\n"
# To load them takes a third of the time of a short run.
UNUSED = ("-p", "no:hypothesispytest", "-p", "no:benchmark", "-p", "no:xdist", "-p", "no:xdist.looponfail")


def run_tests(
    directory: Path, tests: str, ini: str = "[pytest]\n", library: Sequence[str] = ("-p", "no:asyncio")
) -> subprocess.CompletedProcess[str]:
    """Run pytest with the plugin, and without the settings and plugins of this project."""
    (directory / "test_it.py").write_text(tests)
    (directory / "pytest.ini").write_text(ini)
    plugins = ("-p", "no:kafkalite", *library, "-p", "kafkalite.testing.plugin", "-p", "no:cacheprovider", *UNUSED)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "--strict-markers", *plugins]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "sdk")))}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=300)


def test_fixtures_follow_marker_ini_option_and_factory(tmp_path: Path) -> None:
    done = run_tests(tmp_path, USES_EVERY_FIXTURE, INI)
    assert "4 passed" in done.stdout, done.stdout + done.stderr


ASKS_THE_BROKER = """
from kafkalite_sdk.admin import Resource
from kafkalite_sdk.blocking import Admin

def test_interval(kafkalite_broker):
    broker = Resource.broker(1)
    with Admin(kafkalite_broker.address) as admin:
        described = admin.configs.describe(broker)[broker]
    assert described["group.consumer.assignment.interval.ms"].value == "0"
"""


def test_consumers_do_not_wait_between_two_assignments(tmp_path: Path) -> None:
    done = run_tests(tmp_path, ASKS_THE_BROKER)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_clusters_belong_to_one_test(tmp_path: Path) -> None:
    done = run_tests(tmp_path, USES_A_CLUSTER)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("marker", "ini", "message"),
    [
        ("@pytest.mark.kafkalite(partition=3)", "", "does not accept partition; it accepts settings, brokers, "),
        ("@pytest.mark.kafkalite(3)", "", "does not accept 3; it accepts settings, brokers, partitions"),
        ("@pytest.mark.kafkalite(partitions=0)", "", "ValueError: partitions is 0, expected at least 1"),
        ("@pytest.mark.kafkalite(partitions=-1)", "", "ValueError: partitions is -1, expected at least 1"),
        ("", "kafkalite_partitions = 0", "kafkalite_partitions is '0', expected a number above 0"),
        ("", "kafkalite_partitions = -1", "kafkalite_partitions is '-1', expected a number above 0"),
        ("", "kafkalite_partitions = many", "kafkalite_partitions is 'many', expected a number above 0"),
        ("", "kafkalite_settings = num.partitions", "'num.partitions' is no setting, expected NAME=VALUE"),
    ],
)
def test_invalid_settings_of_the_plugin_are_named(tmp_path: Path, marker: str, ini: str, message: str) -> None:
    tests = f"import pytest\n{marker}\ndef test_it(kafkalite_topic):\n    pass\n"
    done = run_tests(tmp_path, tests, f"[pytest]\n{ini}\n")
    assert done.returncode and message in done.stdout + done.stderr, done.stdout + done.stderr
    assert "does not accept" not in message or "pluggy" not in done.stdout, "one line instead of a traceback"


ASYNC_TESTS = """
import pytest
{MARK}


async def test_fixtures(kafkalite_topic, kafkalite_async_producer, kafkalite_async_consumer):
    assert (await kafkalite_async_producer.send(kafkalite_topic, b"value")).offset == 0
    assert [each.value for each in await kafkalite_async_consumer.poll(60.0)] == [b"value"]


@pytest.mark.kafkalite(producer={{"value_serializer": str.encode}}, consumer={{"value_deserializer": bytes.decode}})
async def test_factories_and_marker(
    kafkalite_topic_factory, kafkalite_async_producer_factory, kafkalite_async_consumer_factory
):
    first, second = kafkalite_topic_factory(), kafkalite_topic_factory()
    producer, other = await kafkalite_async_producer_factory(), await kafkalite_async_producer_factory(acks=1)
    await producer.send(first, "first")
    await other.send(second, "second")
    consumer, seen = await kafkalite_async_consumer_factory(first, second, group="own"), set()
    while len(seen) < 2:
        seen |= {{each.value for each in await consumer.poll(60.0)}}
    assert seen == {{"first", "second"}}
    later = await kafkalite_async_consumer_factory(first, group="later")
    assert [each.value for each in await later.poll(60.0)] == ["first"]


async def test_blocking_clients_work_beside(kafkalite_topic, kafkalite_producer, kafkalite_async_consumer):
    kafkalite_producer.send(kafkalite_topic, b"value").result()
    assert [each.value for each in await kafkalite_async_consumer.poll(60.0)] == [b"value"]
"""
AUTO, STRICT = "[pytest]\nasyncio_mode = auto\n", "[pytest]\nasyncio_mode = strict\n"
ANYIO = """pytestmark = pytest.mark.anyio
@pytest.fixture
def anyio_backend():
    return {BACKEND!r}
"""


@pytest.mark.parametrize(
    ("mark", "ini", "library"),
    [
        ("", AUTO, ()),
        ("pytestmark = pytest.mark.asyncio", STRICT, ()),
        ("pytestmark = pytest.mark.asyncio(loop_scope='module')", STRICT, ()),
        ("", AUTO + "asyncio_default_test_loop_scope = session\n", ()),
        (ANYIO.format(BACKEND="asyncio"), STRICT, ()),
        (ANYIO.format(BACKEND="asyncio"), "[pytest]\n", ("-p", "no:asyncio")),
    ],
    ids=["auto mode", "strict mode", "loop of the module", "loop of the session", "anyio", "anyio alone"],
)
def test_async_fixtures_run_in_the_loop_of_the_test(
    tmp_path: Path, mark: str, ini: str, library: Sequence[str]
) -> None:
    done = run_tests(tmp_path, ASYNC_TESTS.format(MARK=mark), ini, library)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("mark", "library", "message"),
    [
        ("", ("-p", "no:asyncio", "-p", "no:anyio"), "kafkalite_async_producer needs pytest-asyncio or anyio's marker"),
        (ANYIO.format(BACKEND="trio"), (), "trio runs this test; clients of the SDK need asyncio"),
    ],
    ids=["no library", "trio"],
)
def test_async_fixture_without_asyncio_says_what_it_needs(
    tmp_path: Path, mark: str, library: Sequence[str], message: str
) -> None:
    test = f"import pytest\n{mark}\nasync def test_it(kafkalite_async_producer):\n    pass\n"
    done = run_tests(tmp_path, test, STRICT if not library else "[pytest]\n", library)
    assert done.returncode and message in done.stdout + done.stderr, done.stdout + done.stderr


def test_failure_that_an_async_test_has_not_read_fails_it(tmp_path: Path) -> None:
    test = """
async def test_it(kafkalite_async_producer_factory):
    producer = await kafkalite_async_producer_factory(max_block_ms=100, allow_auto_create_topics=False)
    producer.send("absent", b"value")
"""
    done = run_tests(tmp_path, test, AUTO, ())
    assert "1 passed, 1 error" in done.stdout and "absent: no metadata" in done.stdout, done.stdout


USES_SECURITY = """
import pytest
from kafkalite_sdk import errors
from kafkalite_sdk.blocking import Producer

USERS = {"alice": "a secret", "bob": "b \\\\ secret"}


@pytest.mark.kafkalite(tls=True)
def test_tls(kafkalite_broker, kafkalite_topic, kafkalite_producer, kafkalite_consumer):
    assert kafkalite_broker.client_settings()["security_protocol"] == "SSL"
    kafkalite_producer.send(kafkalite_topic, b"value").result()
    assert [each.value for each in kafkalite_consumer.poll(60.0)] == [b"value"]


ACLS = [("alice", "all", "topic", "test_*"), ("alice", "read", "group", "*")]


def send(broker, user, topic):
    with Producer(broker.address, **broker.client_settings(user)) as producer:
        producer.send(topic, b"value").result()


@pytest.mark.kafkalite(tls=True, users=USERS, acls=ACLS)
class TestRights:
    def test_first_user(self, kafkalite_topic, kafkalite_producer, kafkalite_consumer):
        kafkalite_producer.send(kafkalite_topic, b"value").result()
        assert [each.value for each in kafkalite_consumer.poll(60.0)] == [b"value"]

    def test_other_user(self, kafkalite_broker, kafkalite_topic):
        with pytest.raises(errors.AuthorizationError):
            send(kafkalite_broker, "bob", kafkalite_topic)
        kafkalite_broker.allow("bob", "write", topic=kafkalite_topic)
        send(kafkalite_broker, "bob", kafkalite_topic)
        kafkalite_broker.deny("*", "write", topic=kafkalite_topic)
        with pytest.raises(errors.AuthorizationError):
            send(kafkalite_broker, "bob", kafkalite_topic)


@pytest.mark.kafkalite(users=USERS, mechanism="SCRAM-SHA-512", acls=ACLS)
def test_scram(kafkalite_broker, kafkalite_topic, kafkalite_producer):
    assert kafkalite_broker.client_settings("bob")["sasl_mechanism"] == "SCRAM-SHA-512"
    kafkalite_producer.send(kafkalite_topic, b"value").result()
    with pytest.raises(errors.AuthorizationError):
        send(kafkalite_broker, "bob", kafkalite_topic)


def test_factory(kafkalite_broker_factory, kafkalite_producer_factory):
    broker = kafkalite_broker_factory(users=USERS)
    broker.create_topic("orders")
    send(broker, "bob", "orders")
    with pytest.raises(ValueError, match="no authorizer"):
        broker.allow("bob", "write", topic="orders")
    with pytest.raises(ValueError, match="'raed' does not exist; use all, read"):
        broker.allow("bob", "raed", topic="orders")
    with pytest.raises(ValueError, match=f"no user 'mallory'; its users are {', '.join(USERS)}"):
        broker.client_settings("mallory")


def test_without_security(kafkalite_broker):
    assert kafkalite_broker.client_settings() == {}
    with pytest.raises(ValueError, match="no user 'alice'; a `SecuredBroker` with `users` has"):
        kafkalite_broker.client_settings("alice")
"""


def test_security_by_marker_and_argument(tmp_path: Path) -> None:
    done = run_tests(tmp_path, USES_SECURITY, "[pytest]\naddopts = -rA\n")
    assert "6 passed" in done.stdout, done.stdout + done.stderr
    assert "test_first_user[tls,users,acls]" in done.stdout and "a secret" not in done.stdout
