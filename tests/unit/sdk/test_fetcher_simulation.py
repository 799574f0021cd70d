"""The fetcher against simulated brokers: lost responses, moved leaders, truncation, evicted sessions, seeks, pauses.

Each run prints its seed. `KAFKALITE_SEED` repeats one run.
"""

import math
from typing import Any

import pytest
from kafkalite_sdk.consumer.fetch.fetcher import Fetcher

from kafkalite.errors import KafkaError
from tests.kit.seeds import chosen_seed
from tests.unit.sdk.fetch_world import BROKERS, World

STEPS = 400
RUNS = 60
RUNS_OF_A_BUG = 100
VERSIONS = (4, 11, 12, 15, 18)


def step(world: World) -> None:
    """One random event."""
    rng = world.rng
    world.now += rng.choice((0.0, 0.001, 0.05, 0.3))
    names = list(world.logs)
    log = world.logs[rng.choice(names)]
    event = rng.random()
    if event < 0.25:
        log.append(rng)
    elif event < 0.50:
        if world.open:
            world.deliver(rng.randrange(len(world.open)))
    elif event < 0.75:
        world.take(rng.choice((1, 3, 20, 500)))
    elif event < 0.78:
        if world.open:
            world.lose(rng.randrange(len(world.open)))
    elif event < 0.81:
        log.elect(rng.choice(BROKERS), rng.choice((0, 0, 1, 3)))
    elif event < 0.86:
        world.refresh()
    elif event < 0.92:
        world.resolve()
        if world.jobs:
            world.end_job()
    else:
        rare(world)
    world.send(lambda node: rng.random() < 0.9)


def rare(world: World) -> None:
    rng = world.rng
    log = world.logs[rng.choice(list(world.logs))]
    assigned = list(world.positions.states)
    event = rng.randrange(7)
    if event == 0:
        for session in list(world.sessions[rng.choice(BROKERS)]):
            world.sessions[rng.choice(BROKERS)].close(session.id)
    elif event == 1:
        log.compact(rng)
    elif event == 2 and rng.random() < 0.3:
        log.retain(rng)
    elif event == 3:
        world.assign(rng.sample(list(world.logs), rng.randrange(1, 7)))
    elif event == 4 and assigned:
        name = rng.choice(assigned)
        if world.positions.states[name].position >= 0:
            world.seek(name, rng.randrange(world.logs[name].start, world.logs[name].end + 1))
    elif event == 5 and assigned:
        world.positions.pause(world.positions.states[rng.choice(assigned)])
    elif assigned:
        world.positions.resume(world.positions.states[rng.choice(assigned)])


def finish(world: World) -> None:
    """No more events: everything must be read to the end."""
    world.assign(list(world.logs))
    for state in world.positions.states.values():
        world.positions.resume(state)
    for _ in range(3000):
        world.now += 0.05
        world.resolve()
        if world.fetcher.stale_topics:
            world.refresh()
        while world.jobs:
            world.end_job()
        if world.open:
            world.deliver(0)
        world.take(100)
        world.send()
        if all(state.position == world.logs[name].end for name, state in world.positions.states.items()):
            break
    behind = {
        name: (state.position, world.logs[name].end)
        for name, state in world.positions.states.items()
        if state.position != world.logs[name].end
    }
    assert not behind, f"not read to the end: {behind}"
    while world.open:
        world.deliver(0)
    assert world.fetcher.buffered_bytes == sum(buffer.size for buffer in world.fetcher._buffers.values())
    world.take(10_000)
    assert world.fetcher.buffered_bytes == 0 and world.fetcher._reserved == 0


def run(seed: int, fetcher: type[Fetcher] = Fetcher) -> World:
    world = World(seed, VERSIONS[seed % len(VERSIONS)], fetcher)
    world.assign(list(world.logs))
    for _ in range(STEPS):
        step(world)
    finish(world)
    return world


@pytest.mark.parametrize("offset", range(RUNS))
def test_no_record_is_lost_returned_twice_or_out_of_order(offset):
    seed = chosen_seed() + offset
    print(f"KAFKALITE_SEED={seed}")
    world = run(seed)
    assert world.taken > 50
    assert world.version < 7 or world.incremental > 20


# ---- planted bugs ---------------------------------------------------------------------------------------------------


class AcceptsLateResponses(Fetcher[Any, Any]):
    """A response counts although the partition has changed since its request."""

    def _expected(self, call, name):
        return self._buffers.get(name) if name in call.partitions else None


class IgnoresSeeks(Fetcher[Any, Any]):
    """Prefetched records survive a seek."""

    def _follow_positions(self) -> None:
        for buffer in self._buffers.values():
            if buffer.state.position >= 0:
                buffer._expected = buffer.state.position
        super()._follow_positions()


class KeepsSessionAfterLoss(Fetcher[Any, Any]):
    """A session continues after a request without a response, as if the broker had its partitions."""

    def lost(self, call, error, now):
        session = self._plan.nodes[call.node].session
        epoch = session._epoch
        super().lost(call, error, now)
        session._epoch = epoch


class ForgetsPartitions(Fetcher[Any, Any]):
    """A partition without its own error is not asked for again after a failed request."""

    def _request_failed(self, call, node, error, now):
        super()._request_failed(call, node, error, now)
        for name in list(call.partitions)[:1]:
            if name in self._positions.states:
                self._positions.states[name].retry_at = math.inf
                self._positions.changed(self._positions.states[name])


class ReturnsNewestFirst(Fetcher[Any, Any]):
    """The records of two responses change places."""

    def _receive(self, buffer, *arguments):
        super()._receive(buffer, *arguments)
        buffer._fetched.reverse()


PLANTED = [
    AcceptsLateResponses,
    IgnoresSeeks,
    KeepsSessionAfterLoss,
    ForgetsPartitions,
    ReturnsNewestFirst,
]


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_bug_is_found(planted):
    for seed in range(1, RUNS_OF_A_BUG):
        try:
            run(seed, planted)
        except (AssertionError, KafkaError):
            print(f"found by seed {seed}")
            return
    raise AssertionError(f"no run of {RUNS_OF_A_BUG} finds: {planted.__doc__}")
