"""One broker for the whole session, one topic per test, one admin client to make it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kafkalite.cli.main import main
from tests.kit import jvm
from tests.kit.brokers import AGAINST, Broker, broker_under_test, wait_until
from tests.kit.clients import PYTHON_CLIENTS, Client
from tests.kit.clients.confluent import QUIET, create_topics
from tests.kit.clients.groups import Run
from tests.kit.clients.java import JAVA_VERSIONS, JavaTools
from tests.kit.clients.members import Crowd
from tests.kit.clients.model import DEADLINE_S
from tests.kit.foreign_warnings import FOREIGN_WARNINGS
from tests.kit.isolated import dropped_later, killable
from tests.kit.secure_kafka import SecureKafka, secure_kafka

OPEN_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}
# Modules whose brokers are others than the one under test, or have security of their own: AGAINST=kafkalite-secured
# would repeat a usual run.
OTHER_BROKERS = (
    "test_acls.py",
    "test_authorization_sample.py",
    "test_broken_appends.py",
    "test_cluster_clients.py",
    "test_controller_messages.py",
    "test_delegation_tokens.py",
    "test_extension_keys.py",
    "test_heartbeat_interval.py",
    "test_kafka_zookeeper.py",
    "test_oauthbearer_clients.py",
    "test_offsets_topic.py",
    "test_sdk_security.py",
    "test_security_commands.py",
    "test_stored_records.py",
    "test_tls_clients.py",
    "test_users.py",
    "test_znodes.py",
    "test_zookeeper_era_clients.py",
    "zookeeper_era",
)
collect_ignore = list(OTHER_BROKERS) if AGAINST == "kafkalite-secured" else []
_numbers = itertools.count(1)

NOT_YET_LED = (
    KafkaError._NOENT,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
MakeTopic = Callable[..., str]


def pytest_report_header() -> str:
    return f"compat tests against: {AGAINST}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A foreign library's own deprecations and sockets are not ours to fail on."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for each in FOREIGN_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(each))


@pytest.fixture(scope="package")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """Apache Kafka with listeners for TLS and SASL, and an authorizer that allows what no ACL is about."""
    with secure_kafka(tmp_path_factory.mktemp("secure"), OPEN_AUTHORIZER) as running:
        yield running


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker that no test of this session may stop."""
    with broker_under_test(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def address(broker: Broker) -> str:
    return broker.address


@pytest.fixture
def new_topic(broker: Broker, request: pytest.FixtureRequest) -> MakeTopic:
    """Make a topic with a name of its own: `new_topic(partitions=3, **{"max.message.bytes": "2000000"})`."""
    return topic_maker(broker.address, request.node.originalname)


@pytest.fixture
def new_group_topic(group_address: str, request: pytest.FixtureRequest) -> MakeTopic:
    """The same at the broker of `group_address`."""
    return topic_maker(group_address, request.node.originalname)


def topic_maker(address: str, stem: str) -> MakeTopic:
    """Makes topics at that broker, under names that begin with `stem`."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = unused_name(stem)
        create_topics(address, name, partitions=partitions, configs=configs)
        wait_until_led(address, name, partitions)
        return name

    return make


@killable
def wait_until_led(address: str, topic: str, partitions: int) -> None:
    """Wait until every partition has a leader that serves it."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": QUIET})
    dropped_later(admin)
    wait_until(lambda: is_led(admin, topic, partitions), f"a leader for each partition of {topic}")


def is_led(admin: AdminClient, topic: str, partitions: int) -> bool:
    """Whether every partition's leader serves it (Apache Kafka answers CreateTopics a moment before that)."""
    wanted = {TopicPartition(topic, number): OffsetSpec.earliest() for number in range(partitions)}
    try:
        return all(answer.result(DEADLINE_S).offset == 0 for answer in admin.list_offsets(wanted).values())
    except KafkaException as error:
        if error.args[0].code() in NOT_YET_LED:
            return False
        raise


def unused_name(stem: str) -> str:
    """A legal topic name that no other test of this session has."""
    return f"{stem.removeprefix('test_')[:60].replace('_', '-')}-{next(_numbers)}"


@pytest.fixture
def topic(new_topic: MakeTopic) -> str:
    """A topic with one partition and the default configuration."""
    return new_topic()


@pytest.fixture(params=PYTHON_CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    """Each Python client in turn."""
    return request.param


@pytest.fixture(params=JAVA_VERSIONS, ids=lambda version: f"kafka-{version}")
def java(request: pytest.FixtureRequest, address: str) -> JavaTools:
    """Apache Kafka's own tools, of the current and the previous major version."""
    if (reason := jvm.java_missing()) is not None:
        pytest.skip(f"Apache Kafka's tools: {reason}")
    return JavaTools(request.param, address)


# Sessions that end within a test; the same for both brokers.
SHORT_SESSIONS = {
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(scope="session")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker that allows short sessions; no test of this session may stop it."""
    with broker_under_test(tmp_path_factory.mktemp("groups"), SHORT_SESSIONS) as running:
        yield running


@pytest.fixture(scope="session")
def group_address(group_broker: Broker) -> str:
    return group_broker.address


@pytest.fixture
def crowd(group_address: str) -> Iterator[Crowd]:
    """Who joins groups at the broker of `group_address`; all leave at the end of the test."""
    with Crowd(group_address) as members:
        yield members


@pytest.fixture
def group(group_address: str) -> Run:
    """`kafkalite group` at the broker of `group_address`."""

    def run(*args: str, code: int = 0, stdin: str | None = None) -> Result:
        done = CliRunner().invoke(main, ["group", *args, "--bootstrap-server", group_address], input=stdin)
        assert done.exit_code == code, (args, done.output, done.exception)
        return done

    return run
