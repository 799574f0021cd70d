"""Producers against three scripted brokers: moved and lost leaders, errors, false frames, stopped brokers."""

import asyncio
from typing import Any

import pytest
from kafkalite_sdk.producer.producer import Producer

from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.log_checks import check_logs, check_outcomes
from tests.story.sdk.scripted_world import ScriptedWorld, run_scripted
from tests.story.sdk.simulated_producer import ProducerApplication, producer_settings
from tests.story.sdk.world import SECONDS, seeds, total

RUNS = 100


async def scenario(world: ScriptedWorld, make: Any = Producer) -> dict[str, int]:
    world.cluster.create_topic("one", 1)
    world.cluster.create_topic("three", 3)
    until = world.loop.time() + SECONDS
    faults = asyncio.ensure_future(world.inject_faults(until))
    applications = [
        ProducerApplication(world, name, ["one", "three"], producer_settings(world), make) for name in ("a", "b")
    ]
    await asyncio.gather(faults, *(each.run(until) for each in applications))
    await pass_time(1.0)
    sent = [each for application in applications for each in application.sent]
    check_outcomes(sent)
    check_logs(sent, world.logs())
    for each in sent:
        if not each.cancelled:
            world.count("acknowledged" if each.awaitable.exception() is None else "failed")
    world.counts["duplicates"] = world.cluster.duplicates
    return world.counts


@pytest.mark.torture
def test_acknowledged_records_are_in_the_log_once_and_in_order(simulations: int) -> None:
    runs = seeds(simulations, RUNS)
    totals = total(run_scripted(seed, scenario) for seed in runs)
    print(totals)
    assert totals["acknowledged"] > 100 * len(runs)
    if len(runs) > 1:
        assert totals["failed"] > len(runs) and totals["duplicates"] > len(runs)
