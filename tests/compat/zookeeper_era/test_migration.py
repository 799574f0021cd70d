"""A group of two Java consumers and two of ours moves from ZooKeeper's offsets to the broker's and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.kit import jvm
from tests.kit.brokers import ApacheKafkaZooKeeper
from tests.kit.flights import FLIGHTS, flights
from tests.kit.seeds import chosen_seed
from tests.kit.zookeeper_era.commands import run_group_command
from tests.kit.zookeeper_era.migration import BOTH, BROKER, ZOOKEEPER, Migration
from tests.kit.zookeeper_era.mixed_group import MixedGroup, Subscription
from tests.kit.zookeeper_era.tree import Tree

pytestmark = [
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}"),
    pytest.mark.xdist_group("zookeeper-era"),
]
PARTITIONS = 8
PARTS = 11


@pytest.mark.parametrize(
    "count", [5_500, pytest.param(FLIGHTS, marks=[pytest.mark.torture, pytest.mark.long_form])], ids=str
)
async def test_offsets_move_to_the_broker_and_back(
    count: int, kafka: ApacheKafkaZooKeeper, tree: Tree, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    seed = chosen_seed()
    print(f"KAFKALITE_SEED={seed}")
    topic, zookeeper, part = new_topic(PARTITIONS), kafka.zookeeper.address, count // PARTS
    name = f"flights-{count}"
    group = MixedGroup(name, "range", [Subscription("static", topic)], tree, zookeeper, Random(seed))
    migration = Migration(group, topic, kafka.address, zookeeper, flights(part * PARTS), tmp_path)

    await migration.write(part)
    await migration.begin()
    await group.quiet()
    await migration.commit()
    await migration.check_zookeeper()
    assert await migration.broker_offsets() == {}

    await migration.restart_all(BOTH, part)
    await migration.check_zookeeper()
    await migration.check_broker()
    await migration.kill_between_commits("java", BOTH, part)
    to_broker = ("migrate", name, "--zookeeper", zookeeper, "-b", kafka.address, "--to", "broker")
    await run_group_command(*to_broker, "--consumers-commit-to-both")

    await migration.restart_all(BROKER, part)
    await migration.check_broker()

    await migration.restart_all(BOTH, part)
    await migration.check_zookeeper()
    await migration.check_broker()
    await migration.kill_between_commits("ours", BOTH, part)

    await migration.restart_all(ZOOKEEPER, part)
    await migration.check_zookeeper()
    await migration.end()
    print(f"{group.ledger.repeated} records processed again\n{group.report()}")
