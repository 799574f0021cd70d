"""Groups of each protocol in a simulation: every record is handled, commits cover handled records of own partitions."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk.consumer.consumer import Consumer
from kafkalite_sdk.producer.producer import Producer

from tests.story.sdk.log_checks import check_logs, check_outcomes
from tests.story.sdk.simulated_consumer import ConsumerApplication, GroupLedger, consumer_settings, until_handled
from tests.story.sdk.simulated_producer import ProducerApplication, producer_settings
from tests.story.sdk.simulated_streams import StreamsApplication
from tests.story.sdk.world import SECONDS, World, run, seeds, total

RUNS = 75

PROTOCOLS = ("classic", "consumer", "registered", "auto")
TOPICS = ["one", "three"]


async def scenario(world: World, make_consumer: Any = Consumer) -> dict[str, int]:
    await world.create_topics(one=1, three=3)
    until = world.loop.time() + SECONDS
    faults = asyncio.ensure_future(world.inject_faults(until))
    producer = ProducerApplication(world, "a", TOPICS, {**producer_settings(world), "buffer_memory": 20_000}, Producer)
    protocol = PROTOCOLS[world.seed % len(PROTOCOLS)]
    ledger = GroupLedger()
    strategy = consumer_settings(world, "g", protocol)
    members = [
        world.random.choice((ConsumerApplication, StreamsApplication))(
            world,
            ledger,
            TOPICS,
            {
                **consumer_settings(world, "g", protocol),
                **_shared(strategy),
                "max_poll_records": world.random.choice((2, 20, 500)),
            },
            make_consumer,
        )
        for _ in range(world.random.choice((1, 2, 3)))
    ]
    consuming = [asyncio.ensure_future(each.run(until)) for each in members]
    await asyncio.gather(faults, producer.run(until))
    check_outcomes(producer.sent)
    logs = await world.logs(TOPICS)
    check_logs(producer.sent, logs)
    await until_handled(world, ledger, logs, consuming)
    for each in members:
        each.stopped = True
    await asyncio.gather(*consuming)
    world.counts["handled"] = sum(map(len, ledger.handled.values()))
    world.counts["repeated"] = ledger.repeated
    world.count(protocol)
    return world.counts


def _shared(settings: dict[str, Any]) -> dict[str, Any]:
    """What all members of a group have in common."""
    return {name: settings[name] for name in ("partition_assignment_strategy",) if name in settings}


@pytest.mark.torture
def test_every_record_is_handled_and_commits_cover_handled_records_of_own_partitions(
    tmp_path: Path, simulations: int
) -> None:
    runs = seeds(simulations, RUNS)
    totals = total(run(tmp_path, seed, scenario) for seed in runs)
    print(totals)
    if len(runs) > len(PROTOCOLS):
        assert all(
            totals[name]
            for name in (*PROTOCOLS, "commits", "revoked", "lost", "repeated", "handled by streams", "worker is killed")
        )
