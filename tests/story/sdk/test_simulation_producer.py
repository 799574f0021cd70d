"""Producers in a simulation: no acknowledged record is lost, none is duplicated, order holds, one outcome per send."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk.producer.producer import Producer

from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.log_checks import check_logs, check_outcomes
from tests.story.sdk.simulated_producer import ProducerApplication, producer_settings
from tests.story.sdk.world import SECONDS, World, run, seeds, total

RUNS = 75


async def scenario(world: World, make: Any = Producer) -> dict[str, int]:
    await world.create_topics(one=1, three=3)
    until = world.loop.time() + SECONDS
    faults = asyncio.ensure_future(world.inject_faults(until))
    applications = [
        ProducerApplication(world, name, ["one", "three", "created"], producer_settings(world), make)
        for name in ("a", "b")
    ]
    running = [asyncio.ensure_future(each.run(until)) for each in applications]
    await pass_time(world.random.uniform(10.0, 50.0))
    await faults
    await asyncio.gather(*running)
    sent = [each for application in applications for each in application.sent]
    check_outcomes(sent)
    topics = [topic for topic in ("one", "three", "created") if topic in world.broker.running.image.topics]
    check_logs(sent, await world.logs(topics))
    for each in sent:
        if not each.cancelled:
            world.count("acknowledged" if each.awaitable.exception() is None else "failed")
    return world.counts


@pytest.mark.torture
def test_acknowledged_records_are_in_the_log_once_and_in_order(tmp_path: Path, simulations: int) -> None:
    runs = seeds(simulations, RUNS)
    totals = total(run(tmp_path, seed, scenario) for seed in runs)
    print(totals)
    assert totals["acknowledged"] > 100 * len(runs)
    if len(runs) > 1:
        assert totals["failed"] > len(runs)
        for fault in ("reset", "reset_some", "stall", "refuse", "kill", "cut_power"):
            assert totals[fault] > 0
