"""Kafka's tools for offsets in ZooKeeper read what we write, and we read what they write."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kafkalite_sdk import Producer

from tests.kit import jvm
from tests.kit.brokers import ApacheKafkaZooKeeper, wait_until
from tests.kit.zookeeper_era.commands import run_group_command
from tests.kit.zookeeper_era.mixed_group import SETTINGS, VERIFIED
from tests.kit.zookeeper_era.processes import Process, start_java
from tests.kit.zookeeper_era.tree import Tree

pytestmark = [
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}"),
    pytest.mark.xdist_group("zookeeper-era"),
]
RECORDS, PARTITIONS = 5, 3


async def filled_topic(kafka: ApacheKafkaZooKeeper, topic: str) -> str:
    """The topic, with records in each partition."""
    async with Producer(kafka.address) as producer:
        await producer.send_many([(topic, b"value", None, each % PARTITIONS) for each in range(PARTITIONS * RECORDS)])
    return topic


async def test_tools_of_kafka_1(
    kafka: ApacheKafkaZooKeeper,
    zookeeper: str,
    tree: Tree,
    java: Process,
    ours: Process,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic, group = await filled_topic(kafka, await asyncio.to_thread(new_topic, PARTITIONS)), "tools-1"
    settings = {**SETTINGS, "group_id": group, "zookeeper_connect": zookeeper, "auto_commit_enable": False}

    member = await ours.open("m1", "static", topic, 2, **settings)
    await asyncio.to_thread(wait_until, lambda: len(set(member.reads)) == RECORDS * PARTITIONS, "all records")
    await member.commit()
    verified = await java.tool("verify", "--zookeeper.connect", zookeeper, "--group", group)
    assert VERIFIED in verified, java.log_tail()
    await run_group_command("verify", group, "--zookeeper", zookeeper)
    await member.close()

    exported = tmp_path / "exported"
    await java.tool("export", "--zkconnect", zookeeper, "--group", group, "--output-file", str(exported))
    paths = [f"/consumers/{group}/offsets/{topic}/{partition}" for partition in range(PARTITIONS)]
    assert sorted(exported.read_text().splitlines()) == [f"{path}:{RECORDS}" for path in paths]
    ours_exported = await run_group_command("offsets", "export", group, "--zookeeper", zookeeper)
    assert sorted(ours_exported) == sorted(exported.read_text().splitlines())

    imported = tmp_path / "imported"
    imported.write_text("".join(f"{path}:{partition + 1}\n" for partition, path in enumerate(paths)))
    await java.tool("import", "--zkconnect", zookeeper, "--input-file", str(imported))
    member = await ours.open("m2", "static", topic, 1, **settings)
    expected = {
        (topic, partition, offset) for partition in range(PARTITIONS) for offset in range(partition + 1, RECORDS)
    }
    await asyncio.to_thread(wait_until, lambda: expected <= set(member.reads), "the records behind the offsets")
    assert set(member.reads) == expected
    await member.close()

    properties = tmp_path / "consumer.properties"
    properties.write_text(f"zookeeper.connect={zookeeper}\ngroup.id={group}\n")
    for where, offset in (("earliest", 0), ("latest", RECORDS)):
        printed = await java.tool("update", where, str(properties), topic)
        assert f"updated the offset for {PARTITIONS} partitions" in printed
        assert set(tree.group(group).offsets.values()) == {str(offset)}


@pytest.mark.torture
@pytest.mark.long_form
async def test_consumer_offset_checker(
    kafka: ApacheKafkaZooKeeper, zookeeper: str, ours: Process, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The tool of 0.10.2 shows offset, log end, lag and owner of our group."""
    topic, group = await filled_topic(kafka, await asyncio.to_thread(new_topic, PARTITIONS)), "tools-0"
    settings = {**SETTINGS, "group_id": group, "zookeeper_connect": zookeeper, "auto_commit_enable": False}
    member = await ours.open("m1", "static", topic, 1, **settings)
    await asyncio.to_thread(wait_until, lambda: len(set(member.reads)) == RECORDS * PARTITIONS, "all records")
    await member.commit()
    java = await start_java(tmp_path / "java.log", "0.10.2.2")
    printed = await java.tool("check", "--zookeeper", zookeeper, "--group", group)
    await java.end()
    rows = [line.split() for line in printed.splitlines() if line.startswith(group)]
    (described,) = await run_group_command("describe", group, "--zookeeper", zookeeper, "--json")
    names = ("topic", "partition", "current_offset", "log_end_offset", "lag", "owner")
    assert rows == [[group, *(str(each[name]) for name in names)] for each in json.loads(described)["partitions"]]
    assert rows == [
        [group, topic, str(partition), str(RECORDS), str(RECORDS), "0", f"{group}_m1-0"]
        for partition in range(PARTITIONS)
    ]
