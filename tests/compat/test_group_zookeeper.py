"""Group commands with `--zookeeper` on Apache Kafka 3.9 and its ZooKeeper: the brokers come from `/brokers/ids`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from kafkalite_sdk import Producer

from kafkalite.cli.main import main
from tests.compat.conftest import topic_maker
from tests.kit import jvm
from tests.kit.brokers import ApacheKafkaZooKeeper, broker_under_test

pytestmark = [
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}"),
    pytest.mark.xdist_group("kafka-zookeeper"),
]
GROUP, RECORDS = "billing", 10
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafkaZooKeeper]:
    with broker_under_test(tmp_path_factory.mktemp("groups"), {}, "kafka-zookeeper") as running:
        assert isinstance(running, ApacheKafkaZooKeeper)
        yield running


@pytest.fixture(scope="module")
def topic(kafka: ApacheKafkaZooKeeper) -> str:
    name = topic_maker(kafka.address, "orders")(2)

    async def write() -> None:
        async with Producer(kafka.address) as producer:
            await asyncio.gather(*(producer.send(name, b"order", partition=each % 2) for each in range(2 * RECORDS)))

    asyncio.run(write())
    return name


def run(kafka: ApacheKafkaZooKeeper, *args: str, stdin: str = "") -> Result:
    command = ["group", *args, "--zookeeper", kafka.zookeeper.address]
    done = CliRunner().invoke(main, command, input=stdin)
    assert done.exit_code == 0, f"{args} ended with {done.exit_code}:\n{done.output}"
    return done


def kafkas_offsets(kafka: ApacheKafkaZooKeeper, topic: str, *args: str) -> dict[int, int]:
    """What kafka-consumer-groups says after `--reset-offsets` or `--describe`: the offset of each partition."""
    options = ["--bootstrap-server", kafka.address, "--group", GROUP, *args]
    done = jvm.run_tool(jvm.PREVIOUS, TOOL, options)
    rows = re.findall(rf"{GROUP}\s+{topic}\s+(\d+)\s+(\d+)", done.stdout)
    found = {int(partition): int(offset) for partition, offset in rows}
    assert found, f"{done.stdout}{done.stderr}"
    return found


def test_a_group_is_migrated_to_the_broker_and_back(kafka: ApacheKafkaZooKeeper, topic: str) -> None:
    """Kafka's own tool reports the same offsets after each step, and what it sets is migrated back."""
    lines = [f"/consumers/{GROUP}/offsets/{topic}/{each}:{7 + each}" for each in range(2)]
    run(kafka, "offsets", "import", stdin="\n".join(lines))
    described = json.loads(run(kafka, "describe", GROUP, "--json").stdout)
    assert described["storage"] == "zookeeper"
    assert [(each["current_offset"], each["log_end_offset"], each["lag"]) for each in described["partitions"]] == [
        (7, RECORDS, 3),
        (8, RECORDS, 2),
    ]
    run(kafka, "migrate", GROUP, "--to", "broker")
    assert kafkas_offsets(kafka, topic, "--describe") == {0: 7, 1: 8}
    assert json.loads(run(kafka, "describe", GROUP, "--json").stdout)["storage"] == "both"
    to_end = ("--reset-offsets", "--to-latest", "--topic", topic, "--execute")
    assert kafkas_offsets(kafka, topic, *to_end) == dict.fromkeys(range(2), RECORDS)
    run(kafka, "migrate", GROUP, "--to", "zookeeper")
    exported = run(kafka, "offsets", "export", GROUP).stdout
    assert exported.splitlines() == [f"/consumers/{GROUP}/offsets/{topic}/{each}:{RECORDS}" for each in range(2)]
    run(kafka, "delete", GROUP)
    listed = run(kafka, "list", "--json").stdout
    assert f'"{GROUP}"' not in listed
