"""A transactional producer in a simulation: committed records are visible once and in order, aborted ones never."""

import asyncio
from pathlib import Path
from typing import Any

from kafkalite_sdk import Consumer, TopicPartition
from kafkalite_sdk.admin import Admin, Upgrade

from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.simulated_transactions import PARTITIONS, TOPICS, Outcome, TransactionalApplication
from tests.story.sdk.world import SECONDS, World, run, seeds, total

RUNS = 3
LAST_TIMEOUT_S = 30.0  # the longest transaction timeout, and the time to complete it


async def use_version_1(world: World) -> None:
    async with Admin(world.bootstrap, environment=world.environment()) as admin:
        (await admin.cluster.update_features({"transaction.version": 1}, upgrade=Upgrade.SAFE_DOWNGRADE)).check()


async def committed(world: World, part: TopicPartition) -> list[tuple[int, int]]:
    """Number and index of the visible records of a partition, in order."""
    found: list[tuple[int, int]] = []
    settings: dict[str, Any] = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    async with Consumer(world.bootstrap, environment=world.environment(), **settings) as consumer:
        consumer.assign([part])
        end = (await consumer.end_offsets([part]))[part]
        while await consumer.position(part) < end:
            for record in await consumer.poll(0.1):
                number, _, index = (record.value or b"").partition(b"-")
                found.append((int(number), int(index)))
    return found


def check(application: TransactionalApplication, visible: list[list[tuple[int, int]]]) -> None:
    """Compare the visible records of each partition with what the application knows."""
    for records in visible:
        assert records == sorted(set(records)), "a record is visible twice or too late"
    counts: dict[int, int] = {}
    for number, _ in [each for records in visible for each in records]:
        counts[number] = counts.get(number, 0) + 1
    for number, outcome in application.outcomes.items():
        allowed = {
            Outcome.COMMITTED: (len(application.values[number]),),
            Outcome.ABORTED: (0,),
            Outcome.UNKNOWN: (0, len(application.values[number])),
        }
        assert counts.get(number, 0) in allowed[outcome], f"transaction {number}: {outcome}"


async def scenario(world: World) -> dict[str, int]:
    """One run; every second seed has version 1 of transactions."""
    await world.create_topics(**dict.fromkeys(TOPICS, PARTITIONS))
    if world.seed % 2:
        await use_version_1(world)
    until = world.loop.time() + SECONDS
    faults = asyncio.ensure_future(world.inject_faults(until))
    application = TransactionalApplication(world)
    await application.run(until)
    await faults
    await pass_time(LAST_TIMEOUT_S)
    parts = [TopicPartition(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
    check(application, [await committed(world, each) for each in parts])
    for outcome in application.outcomes.values():
        world.count(outcome.name)
    return world.counts


def test_outcomes_are_what_readers_see(tmp_path: Path, simulations: int) -> None:
    runs = seeds(simulations, RUNS)
    totals = total(run(tmp_path, seed, scenario) for seed in runs)
    print(totals)
    assert totals["COMMITTED"] > 5 * len(runs)
