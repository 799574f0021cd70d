"""Java's consumer and ours leave the same nodes in ZooKeeper after the same steps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from kafkalite_sdk import Producer

from tests.kit import jvm
from tests.kit.brokers import ApacheKafkaZooKeeper, wait_until
from tests.kit.zookeeper_era.mixed_group import SETTINGS
from tests.kit.zookeeper_era.processes import Member, Process
from tests.kit.zookeeper_era.tree import Tree

pytestmark = [
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}"),
    pytest.mark.xdist_group("zookeeper-era"),
]
RECORDS = 3  # of each partition
PARTITIONS = 4
NAME = "host-1700000000000-0123abcd"
Nodes = dict[str, object]


def nodes_of(tree: Tree, group: str) -> Nodes:
    """The value of each node of a group as JSON or text, with whether it is ephemeral; without its name and times."""
    found: Nodes = {}
    for path in walk(tree, f"/consumers/{group}"):
        data, stat = tree.client.get(path)
        text = (data or b"").decode()
        value: object = text
        if text.startswith("{"):
            value = {key: each for key, each in json.loads(text).items() if key != "timestamp"}
        found[path.replace(group, "GROUP")] = (str(value).replace(group, "GROUP"), stat.ephemeralOwner != 0)
    return found


def walk(tree: Tree, path: str) -> list[str]:
    children = sorted(tree.client.get_children(path))
    return [path, *(each for name in children for each in walk(tree, f"{path}/{name}"))]


async def steps(tree: Tree, process: Process, group: str, zookeeper: str, *subscription: str) -> list[Nodes]:
    """The nodes after each step: joined, committed, a second one joined, the first left, all left."""
    named = {"group_id": group, "zookeeper_connect": zookeeper, "auto_commit_enable": False}
    seen: list[Nodes] = []

    async def open_member(name: str, streams: int) -> Member:
        return await process.open(name, *subscription, streams, **{**SETTINGS, **named})  # type: ignore[arg-type]

    first = await open_member(NAME, 2)
    seen.append(await complete(tree, group, 2))
    await asyncio.to_thread(wait_until, lambda: len(set(first.reads)) == PARTITIONS * RECORDS, "all records")
    await first.commit()
    seen.append(nodes_of(tree, group))
    second = await open_member(f"{NAME}-2", 1)
    seen.append(await complete(tree, group, 3))
    await first.close()
    seen.append(await complete(tree, group, 1))
    await second.close()
    seen.append(nodes_of(tree, group))
    return seen


async def complete(tree: Tree, group: str, streams: int) -> Nodes:
    """The nodes when every partition has an owner, and this number of streams are owners."""

    def is_complete() -> bool:
        owners = tree.group(group).owners
        return len(owners) == PARTITIONS and len(set(owners.values())) == streams

    await asyncio.to_thread(wait_until, is_complete, f"an assignment to {streams} streams")
    return nodes_of(tree, group)


@pytest.mark.parametrize("pattern", ["static", "white", "black"])
async def test_nodes_after_each_step(
    pattern: str,
    kafka: ApacheKafkaZooKeeper,
    zookeeper: str,
    tree: Tree,
    java: Process,
    ours: Process,
    new_topic: Callable[..., str],
) -> None:
    topic = new_topic(PARTITIONS)
    async with Producer(kafka.address) as producer:
        await producer.send_many([(topic, b"value", None, each % PARTITIONS) for each in range(PARTITIONS * RECORDS)])
    others = [each for each in tree.client.get_children("/brokers/topics") if each != topic]
    what = {"static": topic, "white": f"{topic} , missing", "black": "|".join(("__.*", *others))}[pattern]
    seen = {}
    for process in (java, ours):
        try:
            seen[process.language] = await steps(
                tree, process, f"{process.language}-{pattern}", zookeeper, pattern, what
            )
        except AssertionError as error:
            error.add_note(process.log_tail())
            raise
    assert seen["ours"] == seen["java"]
