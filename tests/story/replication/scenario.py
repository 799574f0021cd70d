"""Clients, a group, an administrator and faults in a cluster with several replicas, and what must hold after them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kafkalite_sdk.consumer.consumer import Consumer
from kafkalite_sdk.producer.producer import Producer

from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.administrator import Administrator
from tests.story.cluster.committer import Committer
from tests.story.cluster.invariants import (
    check_answers,
    check_controllers,
    check_images,
    check_producer_ids,
    check_sessions,
    check_topics,
)
from tests.story.cluster.world import run
from tests.story.replication.faults import ReplicaFaults
from tests.story.replication.final_checks import check_history, check_in_sync, check_replicas
from tests.story.replication.observer import Observer
from tests.story.replication.trimmed_topic import TrimmedTopic
from tests.story.replication.truncations import observed_truncations
from tests.story.replication.world import ReplicatedWorld, is_throttled
from tests.story.sdk.log_checks import check_logs, check_outcomes
from tests.story.sdk.simulated_consumer import ConsumerApplication, GroupLedger, consumer_settings, until_handled
from tests.story.sdk.simulated_producer import ProducerApplication, producer_settings

SECONDS = 20.0
HEAL_S = 10.0
FACTORS = (1, 2, 3, 3, 3)
PROTOCOLS = ("classic", "consumer", "registered", "auto")
TRIMMED_EVERY = 3  # in these seeds records are deleted
FLUSHED = {"flush_messages": "1"}
THROTTLED = {f"{side}_replication_throttled_replicas": "*" for side in ("leader", "follower")}


async def scenario(world: ReplicatedWorld) -> dict[str, int]:
    """One run; returns the number of each event."""
    observer = Observer(world)
    with observed_truncations(world, observer):
        return await _observed(world, observer)


async def _observed(world: ReplicatedWorld, observer: Observer) -> dict[str, int]:
    administrator = Administrator(world, FACTORS)
    topics = {"one": (2, world.random.choice(FACTORS)), "three": (3, 3)}
    for name, (partitions, factor) in topics.items():
        configs = {**(FLUSHED if factor == 1 else {}), **(THROTTLED if is_throttled(world.seed) else {})}
        while not await administrator.create(name, partitions, factor, **configs):
            await pass_time(0.1)
    trimmed = TrimmedTopic(world) if world.seed % TRIMMED_EVERY == 1 else None
    if trimmed is not None:
        await trimmed.create(administrator)
    until = world.loop.time() + SECONDS
    names = list(topics)
    producers = [
        ProducerApplication(world, name, names, producer_settings(world), Producer)
        for name in ("a", "b")[: world.random.choice((1, 2))]
    ]
    ledger = GroupLedger()
    members = [
        ConsumerApplication(world, ledger, names, settings, Consumer)
        for settings in [{**consumer_settings(world, "g", PROTOCOLS[world.seed % 4])}] * world.random.choice((1, 2))
    ]
    committer = Committer(world)
    consuming = [asyncio.ensure_future(each.run(until)) for each in members]
    faults = ReplicaFaults(world, observer)
    await asyncio.gather(
        *(faults.inject(until), administrator.run(until), committer.run(until), observer.run(until)),
        *(producer.run(until) for producer in producers),
        *([] if trimmed is None else [trimmed.run(until)]),
    )
    await observer.run(max(until, world.loop.time()) + HEAL_S)
    observer.check()
    check_controllers(world)
    check_sessions(world)
    check_in_sync(world)
    check_topics(world, administrator)
    check_images(world)
    await check_answers(world)
    sent = [each for producer in producers for each in producer.sent]
    check_outcomes(sent)
    logs = await world.logs(names)
    check_logs(sent, logs)
    check_history(sent, logs)
    check_producer_ids(world)
    await committer.check()
    if trimmed is not None:
        await trimmed.check()
    await until_handled(world, ledger, logs, consuming)
    for member in members:
        member.stopped = True
    await asyncio.gather(*consuming)
    await pass_time(1.0)
    await check_replicas(world)
    world.count("runs")
    world.counts["acknowledged"] = sum(not each.cancelled and not each.awaitable.exception() for each in sent)
    world.counts["handled"] = sum(map(len, ledger.handled.values()))
    world.counts["epochs"] = len(world.trace.winners)
    return world.counts


def run_seed(directory: Path, seed: int) -> dict[str, int]:
    """Run a seed; returns the number of each event."""
    return run(directory, seed, scenario, ReplicatedWorld)
