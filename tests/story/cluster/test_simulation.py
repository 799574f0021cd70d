"""Whole brokers, clients, groups and an administrator under random faults: what was acknowledged is kept.

`make simulate SEEDS=n` runs more seeds; KAFKALITE_SEED repeats one.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kafkalite_sdk.consumer.consumer import Consumer
from kafkalite_sdk.producer.producer import Producer

from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.administrator import Administrator
from tests.story.cluster.committer import Committer
from tests.story.cluster.faults import Faults
from tests.story.cluster.invariants import (
    check_answers,
    check_controllers,
    check_directories,
    check_images,
    check_producer_ids,
    check_sessions,
    check_topics,
)
from tests.story.cluster.world import ClusterWorld, run
from tests.story.sdk.log_checks import check_logs, check_outcomes
from tests.story.sdk.simulated_consumer import ConsumerApplication, GroupLedger, consumer_settings, until_handled
from tests.story.sdk.simulated_producer import ProducerApplication, producer_settings
from tests.story.sdk.world import seeds, total

RUNS = 50
SECONDS = 20.0
HEAL_S = 10.0
TOPICS = {"one": 2, "three": 3}
PROTOCOLS = ("classic", "consumer", "registered", "auto")


async def scenario(world: ClusterWorld, directory: Path) -> dict[str, int]:
    administrator = Administrator(world)
    for name, partitions in TOPICS.items():
        while not await administrator.create(name, partitions):
            await pass_time(0.1)
    until = world.loop.time() + SECONDS
    names = list(TOPICS)
    producer = ProducerApplication(world, "a", names, producer_settings(world), Producer)
    ledger = GroupLedger()
    members = [
        ConsumerApplication(world, ledger, names, settings, Consumer)
        for settings in [{**consumer_settings(world, "g", PROTOCOLS[world.seed % 4])}] * world.random.choice((1, 2))
    ]
    committer = Committer(world)
    consuming = [asyncio.ensure_future(each.run(until)) for each in members]
    faults = Faults(world)
    await asyncio.gather(faults.inject(until), administrator.run(until), producer.run(until), committer.run(until))
    healed = world.loop.time()
    await pass_time(max(0.0, until + HEAL_S - healed))
    check_controllers(world)
    check_sessions(world)
    check_topics(world, administrator)
    check_images(world)
    await check_answers(world)
    check_outcomes(producer.sent)
    logs = await world.logs(names)
    check_logs(producer.sent, logs)
    check_producer_ids(world)
    await committer.check()
    await until_handled(world, ledger, logs, consuming)
    for each in members:
        each.stopped = True
    await asyncio.gather(*consuming)
    check_directories(world, directory, {f"{topic}-{at}" for (topic, at), log in logs.items() if log})
    world.count("runs")
    world.counts["handled"] = sum(map(len, ledger.handled.values()))
    world.counts["acknowledged"] = sum(not each.cancelled and not each.awaitable.exception() for each in producer.sent)
    world.counts["controller writes"] = world.trace.writes
    world.counts["fenced writes"] = world.trace.fenced
    world.counts["rejected writes"] = world.trace.rejected
    world.counts["epochs"] = len(world.trace.winners)
    return world.counts


def run_seed(directory: Path, seed: int) -> dict[str, int]:
    return run(directory, seed, lambda world: scenario(world, directory / str(seed)))


@pytest.mark.torture
def test_acknowledged_changes_and_records_are_kept_under_random_faults(tmp_path: Path, simulations: int) -> None:
    totals = total(run_seed(tmp_path, seed) for seed in seeds(simulations, RUNS))
    print(totals)
    if totals["runs"] >= RUNS:
        for event in (
            "kill",
            "cut_power",
            "expire",
            "depose",
            "late transactions",
            "late requests",
            "ends while hosting",
            "fenced writes",
            "rejected writes",
            "disconnect",
            "slow_disk",
            "full_disk",
            "restore_counters",
            "older trees",
            "invalid nodes",
            "exceptions in effects",
            "skew_clocks",
            "copies that are refused",
            "deleted topics",
        ):
            assert totals[event] > 0, event


def test_a_seed_repeats_its_run_in_another_process(tmp_path: Path) -> None:
    """Also where strings have other hashes."""
    digests = [digest_in_a_process(tmp_path / name, seed=7, hash_seed=name) for name in ("1", "2")]
    assert digests[0] == digests[1]


def digest_in_a_process(directory: Path, seed: int, hash_seed: str) -> str:
    """The digest of all changes of the tree in a run, and the counts of its events."""
    command = [sys.executable, "-m", "tests.story.cluster.replay", str(directory), str(seed)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()[-1]
