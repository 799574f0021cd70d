"""A foreign program writes invalid nodes, and effects of controllers raise, by seeds: later topics get their leaders.

`make simulate SEEDS=n` runs more seeds; KAFKALITE_SEED repeats one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkalite.cluster.controller import invalid_nodes
from kafkalite.cluster.controller.runtime import RunningTerm
from kafkalite.coordination.znodes import TOPICS, brokers, fields
from kafkalite.errors import KafkaError
from kafkalite.slicing import Steps
from kafkalite.state.controller.effects import Connect, Effect, Write
from kafkalite.testing.simulated_cluster import SimulatedCluster
from kafkalite.testing.virtual_loop import VirtualTimeError, pass_time
from tests.story.cluster.foreign_program import CASES, FOREIGN, ForeignProgram
from tests.story.cluster.test_invalid_nodes import create_everywhere
from tests.story.cluster.test_three_brokers import Client, led, run
from tests.story.sdk.world import seeds

RUNS = 10
STEPS = 6
HEAL_S = 8.0  # more than the pauses after the exceptions of a run
BUG_SEEDS = range(1, 201)


class FailingEffects:
    """Effects of controllers that raise, when the test has armed them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.armed = 0
        self.raised = 0
        handle = RunningTerm._handle
        outer = self

        def failing(term: RunningTerm, event: Any) -> Steps:
            execute = term._execute
            for kind in (Write, Connect):
                execute[kind] = outer._wrapped(execute[kind])
            return handle(term, event)

        patch.setattr(RunningTerm, "_handle", failing)

    def _wrapped(self, execute: Callable[[Any], object]) -> Callable[[Any], object]:
        if getattr(execute, "failing", False):
            return execute

        def run_effect(effect: Effect) -> object:
            if self.armed:
                self.armed -= 1
                self.raised += 1
                raise IndexError("planted")
            return execute(effect)

        run_effect.failing = True  # type: ignore[attr-defined]
        return run_effect


def run_seed(directory: Path, seed: int, patch: pytest.MonkeyPatch) -> None:
    """Run a seed; all topics that are created after each change must get their leaders on every broker."""
    print(f"KAFKALITE_SEED={seed}")
    random = Random(seed)
    failing = FailingEffects(patch)

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        foreign = ForeignProgram(cluster)
        for step in range(STEPS):
            fault = random.choice(("field", "node", "exception", "depose"))
            if fault == "field":
                case = random.choice(CASES)
                print(case.node.path, case.field)
                foreign.write(case.node.path, case.data)
            elif fault == "node":
                foreign.write(*random.choice(FOREIGN))
            elif fault == "exception":
                failing.armed = 1
                foreign.write(f"{TOPICS}/new{step}", b'{"version":1,"partitions":{"0":[1]}}')
                await pass_time(HEAL_S)
                failing.armed = 0
                for broker_id in cluster.brokers:
                    await led(client, broker_id, f"new{step}", 1)
            else:
                foreign.depose()
            await create_everywhere(client, f"after{step}")

    run(directory / str(seed), scenario, seed=seed, settings={"broker.rack": "rack"})


def test_later_topics_get_their_leaders_after_foreign_writes_and_exceptions(
    tmp_path: Path, simulations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in seeds(min(simulations, RUNS), RUNS):
        with monkeypatch.context() as patch:
            run_seed(tmp_path, seed, patch)


def half_executed_event_continues(patch: pytest.MonkeyPatch) -> None:
    """An exception is dropped, with the rest of the event; the term goes on."""
    patch.setattr(RunningTerm, "_fail", lambda self, error: None)


def broker_without_address(patch: pytest.MonkeyPatch) -> None:
    """A registration without endpoints is a broker; its connection raises, and the term goes on."""
    decode = brokers.decode_registration

    def lenient(broker_id: int, data: bytes) -> brokers.BrokerRegistration:
        if b'"endpoints":[]' in data:
            return brokers.BrokerRegistration((), 0, "rack")
        return decode(broker_id, data)

    patch.setattr(brokers, "decode_registration", lenient)
    half_executed_event_continues(patch)


def ranges_unchecked(patch: pytest.MonkeyPatch) -> None:
    """Numbers of nodes are read whatever their size; the other repairs of invalid nodes are active."""
    patch.setattr(invalid_nodes, "is_number", str.isdecimal)
    patch.setattr(fields, "are_partitions", lambda texts: all(map(str.isdecimal, texts)))
    patch.setattr(fields, "INT32_MAX", 2**70)
    whole = fields.ZnodeReader.whole

    def any_size(self: fields.ZnodeReader, name: str, default: int | None = None, **_range: int) -> int:
        return whole(self, name, default, minimum=-(2**70), maximum=2**70)

    patch.setattr(fields.ZnodeReader, "whole", any_size)


@pytest.mark.torture
@pytest.mark.parametrize("bug", [half_executed_event_continues, broker_without_address, ranges_unchecked])
def test_planted_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], tmp_path: Path) -> None:
    for seed in BUG_SEEDS:
        with pytest.MonkeyPatch.context() as patch:
            bug(patch)
            try:
                run_seed(tmp_path, seed, patch)
            except (AssertionError, VirtualTimeError, KafkaError) as error:
                print(f"{bug.__name__}: seed {seed}: {error}".splitlines()[0])
                return
    raise AssertionError(f"{bug.__name__} was not found in {len(BUG_SEEDS)} runs")
