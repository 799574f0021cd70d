"""Consumers of Kafka 1.1 and ours in the same groups, on Apache Kafka 3.9 with ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.kit import jvm
from tests.kit.brokers import ApacheKafkaZooKeeper
from tests.kit.seeds import chosen_seed
from tests.kit.zookeeper_era.mixed_group import MixedGroup, Subscription
from tests.kit.zookeeper_era.processes import NEWEST
from tests.kit.zookeeper_era.tree import Tree
from tests.kit.zookeeper_era.two_languages import Writer, run_groups, running_processes

pytestmark = [
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}"),
    pytest.mark.xdist_group("zookeeper-era"),
]
PARTITIONS = 12
SHORT_S, LONG_S = 45.0, 600.0


def groups_of(topic: str, tree: Tree, zookeeper: str, random: Random) -> list[MixedGroup]:
    """A group for each strategy; their members subscribe to the topic in all ways."""
    static = Subscription("static", topic)
    white = Subscription("white", f"{topic}, {topic}-more")
    black = Subscription("black", "[^o].*")  # no other topic begins with this letter
    return [
        MixedGroup("ranges", "range", [static, white], tree, zookeeper, random),
        MixedGroup("rounds", "roundrobin", [static, white, black], tree, zookeeper, random),
    ]


async def run(
    kafka: ApacheKafkaZooKeeper, tree: Tree, topic: str, folder: Path, versions: tuple[str, ...], seconds: float
) -> None:
    """Groups of consumers of these versions of Kafka and ours."""
    seed = chosen_seed()
    print(f"KAFKALITE_SEED={seed}")
    random = Random(seed)
    groups = groups_of(topic, tree, kafka.zookeeper.address, random)
    if NEWEST not in versions:
        groups[1].use_release("0.10")
    async with running_processes(folder, versions) as processes:
        quiet = await run_groups(groups, processes, Writer(topic, PARTITIONS), kafka.address, random, seconds)
    for group in groups:
        print(f"{quiet} quiet moments, {group.ledger.repeated} records repeated\n{group.report()}")


async def test_one_group_of_two_languages(
    kafka: ApacheKafkaZooKeeper, tree: Tree, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    await run(kafka, tree, new_topic(PARTITIONS), tmp_path, (NEWEST,), SHORT_S)


@pytest.mark.torture
@pytest.mark.long_form
@pytest.mark.parametrize("versions", [(NEWEST,), ("0.8.2.2", "0.10.2.2")], ids=",".join)
async def test_one_group_for_ten_minutes(
    versions: tuple[str, ...], kafka: ApacheKafkaZooKeeper, tree: Tree, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    await run(kafka, tree, new_topic(PARTITIONS), tmp_path, versions, LONG_S)
