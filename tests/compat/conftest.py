"""One broker for the whole session, one topic per test, one admin client to make it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.compat.clients import PYTHON_CLIENTS, Client
from tests.compat.clients.java import JAVA_VERSIONS, JavaTools
from tests.kit import jvm
from tests.kit.brokers import AGAINST, Broker, broker_under_test, wait_until

_numbers = itertools.count(1)

NOT_YET_LED = (KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.NOT_LEADER_FOR_PARTITION)
MakeTopic = Callable[..., str]


def pytest_report_header() -> str:
    return f"compat tests against: {AGAINST}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A foreign library's own deprecations are not ours to fail on."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka.*"))


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
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 2})

    def make(partitions: int = 1, **configs: str) -> str:
        name = unused_name(request.node.originalname)
        admin.create_topics([NewTopic(name, partitions, 1, config=configs)])[name].result(30)
        wait_until(lambda: is_led(admin, name, partitions), f"a leader for each partition of {name}")
        return name

    return make


def is_led(admin: AdminClient, topic: str, partitions: int) -> bool:
    """Whether every partition's leader serves it (Apache Kafka answers CreateTopics a moment before that)."""
    wanted = {TopicPartition(topic, number): OffsetSpec.earliest() for number in range(partitions)}
    try:
        return all(answer.result(30).offset == 0 for answer in admin.list_offsets(wanted).values())
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
