"""Apache Kafka 3.9 with ZooKeeper, and a Java process with consumers of Kafka 1.1, for all tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.compat.conftest import topic_maker
from tests.kit.brokers import ApacheKafkaZooKeeper, broker_under_test
from tests.kit.zookeeper_era.processes import Process, start_java, start_ours
from tests.kit.zookeeper_era.tree import Tree, connected_tree


@pytest.fixture(scope="package")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafkaZooKeeper]:
    """A running Apache Kafka 3.9 with its ZooKeeper."""
    settings = {"log.retention.ms": "-1"}
    with broker_under_test(tmp_path_factory.mktemp("era"), settings, "kafka-zookeeper") as running:
        yield cast(ApacheKafkaZooKeeper, running)


@pytest.fixture(scope="package")
def zookeeper(kafka: ApacheKafkaZooKeeper) -> str:
    """The address of its ZooKeeper."""
    return kafka.zookeeper.address


@pytest.fixture
def tree(zookeeper: str) -> Iterator[Tree]:
    with connected_tree(zookeeper) as connected:
        yield connected


@pytest.fixture
def new_topic(kafka: ApacheKafkaZooKeeper, request: pytest.FixtureRequest) -> Callable[..., str]:
    return topic_maker(kafka.address, request.node.originalname)


@pytest.fixture
async def java(tmp_path: Path) -> AsyncIterator[Process]:
    """A Java process with consumers and tools of Kafka 1.1."""
    process = await start_java(tmp_path / "java.log")
    yield process
    await process.end()


@pytest.fixture
async def ours(tmp_path: Path) -> AsyncIterator[Process]:
    """A process with our consumers."""
    process = await start_ours(tmp_path / "ours.log")
    yield process
    await process.end()
