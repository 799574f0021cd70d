"""Group commands with `--zookeeper` on Apache Kafka 3.9 and its ZooKeeper: the brokers come from `/brokers/ids`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result
from kafkalite_sdk import Producer
from kazoo.security import make_acl

from kafkalite.cli.main import main
from tests.kit import jvm
from tests.kit.brokers import ApacheKafkaZooKeeper
from tests.kit.zookeeper_era.tree import Tree

pytestmark = [
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}"),
    pytest.mark.xdist_group("zookeeper-era"),
]
GROUP, RECORDS = "commands", 10
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
READ_ONLY = make_acl("world", "anyone", read=True)
FORBIDDEN = make_acl("digest", "other:secret", all=True)


@pytest.fixture
def topic(kafka: ApacheKafkaZooKeeper, new_topic: Callable[..., str]) -> str:
    name = new_topic(2)

    async def write() -> None:
        async with Producer(kafka.address) as producer:
            await asyncio.gather(*(producer.send(name, b"order", partition=each % 2) for each in range(2 * RECORDS)))

    asyncio.run(write())
    return name


def run(kafka: ApacheKafkaZooKeeper, *args: str, stdin: str = "", code: int = 0) -> Result:
    command = ["group", *args, "--zookeeper", kafka.zookeeper.address]
    done = CliRunner().invoke(main, command, input=stdin)
    assert done.exit_code == code, f"{args} ended with {done.exit_code}:\n{done.output}"
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


def test_nodes_without_permission_are_named(kafka: ApacheKafkaZooKeeper, tree: Tree, topic: str) -> None:
    """The others are shown, and a change that ZooKeeper refuses leaves all offsets as they were."""
    group = "closed"
    for partition in range(2):
        tree.set_offset(group, topic, partition, "5")
    path = f"/consumers/{group}/offsets/{topic}"
    tree.client.set_acls(f"{path}/1", [READ_ONLY])
    refused = run(kafka, "reset", group, "--to", "latest", code=2)
    assert f"no permission: {path}/1" in refused.stderr and "another identity owns the nodes" in refused.stderr
    assert {each: tree.client.get(f"{path}/{each}")[0] for each in range(2)} == {0: b"5", 1: b"5"}
    tree.client.set_acls(f"{path}/0", [FORBIDDEN])
    described = run(kafka, "describe", group, "--json", code=2)
    assert [each["partition"] for each in json.loads(described.stdout)["partitions"]] == [1]
    assert f"{path}/0: no permission to read it" in described.stderr
    refused = run(kafka, "migrate", group, "--to", "broker", code=2)
    assert f"nothing was copied: {path}/0: no permission to read it" in refused.stderr
