"""Figures of Java's consumer of Kafka 1.1 and ours, on Apache Kafka 3.9 with ZooKeeper.

    python -m tests.kit.zookeeper_era.rates

- milliseconds of a rebalance of 10 members and 100 partitions: from the end of a member's session to the last owner
  node, by ZooKeeper's transaction log, with the same settings;
- commits of 100 partitions to ZooKeeper per second.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from random import Random
from typing import cast

from kafkalite_sdk.admin import Admin, NewTopic
from kafkalite_sdk.zk import ConsumerConnector

from kafkalite.model import TopicPartition
from tests.kit import jvm
from tests.kit.brokers import ApacheKafkaZooKeeper, broker_under_test
from tests.kit.zookeeper_era.mixed_group import MixedGroup, Subscription
from tests.kit.zookeeper_era.processes import NEWEST, Process, start_java, start_ours
from tests.kit.zookeeper_era.transactions import rebalance_ms
from tests.kit.zookeeper_era.tree import connected_tree

MEMBERS, PARTITIONS, REPEATS = 10, 100, 5
COMMIT_S = 10.0
RATES = Path(__file__).parent / "Rates.java"


async def rebalances(kafka: ApacheKafkaZooKeeper, topic: str, process: Process) -> list[int]:
    """Milliseconds of each rebalance."""
    name, found = f"rebalance-{process.language}", []
    with connected_tree(kafka.zookeeper.address) as tree:
        group = MixedGroup(name, "range", [Subscription("static", topic)], tree, kafka.zookeeper.address, Random(1))
        group.settings = {"rebalance_backoff_ms": 2_000}
        for _ in range(MEMBERS):
            await group.join(process)
        for number in range(REPEATS):
            await group.quiet()
            leaving = group.joined[number]
            session = tree.group(name).sessions[f"/consumers/{name}/ids/{leaving.member.id}"]
            leaving.link.interrupt()
            group.joined.remove(leaving)
            await group.quiet()
            found.append(rebalance_ms(kafka.zookeeper.data, name, session))
            leaving.link.resume()
            group.joined.append(leaving)
        for joined in list(group.joined):
            await group.leave(joined)
    return found


def java_commits(zookeeper: str, topic: str) -> float:
    """Commits of all partitions per second by Java's consumer."""
    java = jvm.java_command(NEWEST, "Rates", log="ERROR", quick_start=False, classes=jvm.compiled(NEWEST, RATES))
    command = [*java, zookeeper, "commits-java", topic, str(PARTITIONS), str(COMMIT_S)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


async def our_commits(zookeeper: str, topic: str) -> float:
    """The same by our consumer."""
    async with ConsumerConnector(zookeeper, "commits-ours", auto_commit_enable=False) as connector:
        connector.create_message_streams({topic: 1})
        await connector.wait_until_assigned()
        await _commit(connector, topic, 0)
        return await _commit(connector, topic, 1_000_000)


async def _commit(connector: ConsumerConnector, topic: str, first: int) -> float:
    began, offset = time.monotonic(), first
    while time.monotonic() - began < COMMIT_S:
        offset += 1
        await connector.commit_offsets({TopicPartition(topic, each): offset for each in range(PARTITIONS)})
    return (offset - first) / (time.monotonic() - began)


async def measure(folder: Path, kafka: ApacheKafkaZooKeeper) -> None:
    """Measure, and print."""
    topic = "rates"
    async with Admin(kafka.address) as admin:
        (await admin.topics.create(NewTopic(topic, partitions=PARTITIONS))).check()
    zookeeper = kafka.zookeeper.address
    print(f"java: {java_commits(zookeeper, topic):.1f} commits of {PARTITIONS} partitions per second")
    print(f"ours: {await our_commits(zookeeper, topic):.1f} commits of {PARTITIONS} partitions per second")
    for start in (start_java, start_ours):
        process = await start(folder / f"{start.__name__}.log")
        times = await rebalances(kafka, topic, process)
        await process.end()
        print(f"{process.language}: rebalance of {MEMBERS} members in {statistics.median(times):.0f} ms, all: {times}")


def main() -> None:
    """Start Apache Kafka, and measure on it."""
    with tempfile.TemporaryDirectory() as name, broker_under_test(Path(name), {}, "kafka-zookeeper") as kafka:
        asyncio.run(measure(Path(name), cast(ApacheKafkaZooKeeper, kafka)))


if __name__ == "__main__":
    main()
