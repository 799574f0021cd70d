"""Apache Kafka's tools move partitions between the log directories of a broker, and show the moves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafkalite_sdk import Consumer, Producer, ProducerRecord, TopicPartition

from tests.compat.conftest import topic_maker
from tests.kit import jvm
from tests.kit.brokers import AGAINST, Broker, broker_under_test, wait_until
from tests.kit.clients.java_members import JavaProcess
from tests.kit.clients.model import DEADLINE_S

RECORDS = 2_000
ALONE = ("kafkalite", "kafkalite-secured", "kafka")
TWO_DIRECTORIES = pytest.mark.skipif(AGAINST not in ALONE, reason="needs one broker with two log.dirs")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    data = tmp_path_factory.mktemp("jbod")
    with broker_under_test(data, {"log.dirs": f"{data / 'a'},{data / 'b'}"}) as running:
        yield running


@pytest.fixture(scope="module")
def tools(broker: Broker) -> Iterator[JavaProcess]:
    if (reason := jvm.java_missing()) is not None:
        pytest.skip(f"Apache Kafka's tools: {reason}")
    with JavaProcess(jvm.CURRENT, broker.address) as process:
        yield process


def described(tools: JavaProcess, topic: str) -> dict[str, list[bool]]:
    """By log directory, whether each replica of the topic in it is a future one, as kafka-log-dirs shows."""
    shown = tools.tool("log-dirs", "--describe", "--topic-list", topic)
    (line,) = [line for line in shown.splitlines() if line.startswith("{")]
    (found,) = json.loads(line)["brokers"]
    return {
        Path(each["logDir"]).name: [one["isFuture"] for one in each["partitions"]]
        for each in found["logDirs"]
        if each["partitions"]
    }


@TWO_DIRECTORIES
def test_a_partition_is_reassigned_to_the_other_log_directory(
    tools: JavaProcess, broker: Broker, tmp_path: Path
) -> None:
    """kafka-reassign-partitions with log_dirs: --execute, --verify; kafka-log-dirs before and after."""
    topic = topic_maker(broker.address, "reassigned")()
    values = [b"%d" % number for number in range(RECORDS)]
    asyncio.run(write(broker.address, topic, values))
    (old,) = described(tools, topic)
    new = str(next(iter({"a", "b"} - {old})))
    directory = next(each for each in known_directories(tools, topic) if Path(each).name == new)
    plan = tmp_path / "plan.json"
    wanted = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [directory]}
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    shown = tools.tool("reassign-partitions", "--execute", "--reassignment-json-file", str(plan))
    assert f"Successfully started moving log directory to {directory} for replica {topic}-0" in shown, shown

    moved = f"Reassignment of replica {topic}-0-1 completed successfully"

    def verified() -> str:
        return tools.tool("reassign-partitions", "--verify", "--reassignment-json-file", str(plan))

    wait_until(lambda: moved in verified(), "the move")
    assert f"Reassignment of partition {topic}-0 is completed" in verified()
    assert described(tools, topic) == {new: [False]}
    assert asyncio.run(read(broker.address, topic)) == values


async def write(address: str, topic: str, values: list[bytes]) -> None:
    async with asyncio.timeout(DEADLINE_S), Producer(address) as producer:
        await producer.send_many(ProducerRecord(topic, value) for value in values)
        await producer.flush()


async def read(address: str, topic: str) -> list[bytes | None]:
    async with asyncio.timeout(DEADLINE_S), Consumer(address) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        return [(await anext(consumer)).value for _ in range(RECORDS)]


def known_directories(tools: JavaProcess, topic: str) -> list[str]:
    """The paths of all log directories."""
    shown = tools.tool("log-dirs", "--describe", "--topic-list", topic)
    (line,) = [line for line in shown.splitlines() if line.startswith("{")]
    (found,) = json.loads(line)["brokers"]
    return [each["logDir"] for each in found["logDirs"]]


@TWO_DIRECTORIES
def test_an_unknown_log_directory_is_rejected(tools: JavaProcess, broker: Broker, tmp_path: Path) -> None:
    topic = topic_maker(broker.address, "unknown-directory")()
    plan = tmp_path / "plan.json"
    wanted = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": ["/no/such/directory"]}
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    shown = tools.tool("reassign-partitions", "--execute", "--reassignment-json-file", str(plan))
    assert "LogDirNotFoundException" in shown and "exit 1" in shown
