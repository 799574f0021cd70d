"""Configs that many administrators change through any broker, under random faults: none is lost, all are applied.

`make simulate SEEDS=n` runs more seeds; KAFKALITE_SEED repeats one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.clock import Outcome
from kafkalite.cluster.configs.notifications import ConfigWatcher
from kafkalite.cluster.configs.writes import NodeChange
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.planted_bugs import Report, assert_found
from tests.story.cluster.administrator import Administrator
from tests.story.cluster.config_setters import TOPIC_NAMES, ConfigSetter, check_applied, owned_keys
from tests.story.cluster.faults import Faults
from tests.story.cluster.world import ClusterWorld, run
from tests.story.sdk.world import seeds, total

RUNS = 10
SECONDS = 6.0
HEAL_S = 10.0
MINUTE_MS = 60_000
SKEWS_MS = (0, 0, -20 * MINUTE_MS, -3 * MINUTE_MS, 3 * MINUTE_MS, 20 * MINUTE_MS)


async def scenario(world: ClusterWorld) -> dict[str, int]:
    for broker in world.brokers.values():
        broker.jump_wall(world.random.choice(SKEWS_MS))
    administrator = Administrator(world)
    for name in TOPIC_NAMES:
        while not await administrator.create(name, len(world.brokers)):
            await pass_time(0.1)
    until = world.loop.time() + SECONDS
    setters = [ConfigSetter(world, owned) for owned in owned_keys(world)]
    faults = Faults(world)
    faults.keep_tree()  # an older tree has older configs
    await asyncio.gather(faults.inject(until), administrator.run(until), *(each.run(until) for each in setters))
    await pass_time(HEAL_S)
    for each in setters:
        each.check()
    check_applied(world)
    world.count("runs")
    return world.counts


def run_seed(directory: Path, seed: int) -> dict[str, int]:
    return run(directory, seed, scenario)


@pytest.mark.torture
def test_acknowledged_configs_are_kept_and_reach_every_broker(tmp_path: Path, simulations: int) -> None:
    totals = total(run_seed(tmp_path, seed) for seed in seeds(simulations, RUNS))
    print(totals)
    assert totals["changes of configs"] > 50 * totals["runs"]


def writes_without_a_version(patch: pytest.MonkeyPatch) -> None:
    """A change replaces the node, also where another broker has changed it since it was read."""
    write = NodeChange._write

    def unchecked(self: NodeChange, version: int | None) -> None:
        write(self, None if version is None else -1)

    patch.setattr(NodeChange, "_write", unchecked)


def lost_responses_are_successes(patch: pytest.MonkeyPatch) -> None:
    """A change whose response is lost is acknowledged."""
    patch.setattr(NodeChange, "_read_back", lambda self, error: self._end(0))


def missing_notifications_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """A broker deletes notifications by its own clock, and no broker notices that one is missing."""
    patch.setattr(ConfigWatcher, "_reload_soon", lambda self: None)
    read = ConfigWatcher._read

    def deleting(self: ConfigWatcher, name: str, last: int | None, number: int, outcome: Outcome) -> None:
        read(self, name, last, number, outcome)
        if outcome.error is None and outcome.value[1].ctime < self._clock.wall_ms() - 15 * MINUTE_MS:
            self._session.delete(f"{self._of.path}/{name}", lambda _outcome: None)

    patch.setattr(ConfigWatcher, "_read", deleting)


@pytest.mark.torture
@pytest.mark.parametrize(
    ("bug", "recorded"),
    [
        (writes_without_a_version, 5),
        (lost_responses_are_successes, 105),
        (missing_notifications_are_ignored, 5),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None],
    recorded: int,
    simulations: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    record_property: Report,
) -> None:
    bug(monkeypatch)
    assert_found(
        bug.__name__,
        lambda seed: run_seed(tmp_path, seed),
        (AssertionError,),
        recorded=recorded,
        simulations=simulations,
        report=record_property,
    )
