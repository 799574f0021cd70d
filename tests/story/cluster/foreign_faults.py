"""Faults of foreign programs and of this program: invalid nodes, effects of a controller that raise, wrong clocks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

from kafkalite.coordination.znodes import CLUSTER_ID, TOPICS, parents
from kafkalite.server.running.registered_broker import RegisteredBroker
from kafkalite.slicing import finish
from kafkalite.state.controller import effects
from kafkalite.state.effects import SetTimer
from tests.story.cluster.foreign_program import CASES, FOREIGN, ForeignProgram
from tests.story.cluster.world import ClusterWorld

MINUTE_MS = 60_000
SKEWS_MS = (-20 * MINUTE_MS, -3 * MINUTE_MS, 0, 3 * MINUTE_MS, 20 * MINUTE_MS)
RAISING = (effects.Write, effects.SendLeaderAndIsr, effects.SendUpdateMetadata, effects.Connect, SetTimer)
# No broker starts while the cluster id cannot be read, which is an error of the operator.
NODES = [*((case.node.path, case.data) for case in CASES if case.node.path != CLUSTER_ID), *FOREIGN]


class PlantedError(Exception):
    """An exception that no code expects."""


class ForeignFaults:
    """The faults of one run.

    Arguments:
        world: the cluster.
    """

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._foreign = ForeignProgram(world.cluster)
        self._raised: set[int] = set()
        world.trace.foreign.add(self._foreign.session_id)

    def write_node(self) -> Callable[[], object]:
        """Write an invalid node; returns what an administrator does who repairs it."""
        path, data = self._world.random.choice(NODES)
        found = self._foreign.tree.find(path)
        before = None if found is None else found.data
        # The nodes above it that are created are invalid, too: while there is such a topic, no log becomes a stray.
        above = [each for each in parents(path) if self._foreign.tree.find(each) is None]
        created = above[0] if above and above[0].startswith(f"{TOPICS}/") else path
        self._foreign.write(path, data)
        self._world.count("invalid nodes")
        return lambda: self._repair(path, data, before, created)

    def _repair(self, path: str, data: bytes, before: bytes | None, created: str) -> None:
        found = self._foreign.tree.find(path)
        if found is None or found.data != data:  # a broker has replaced it, or another fault
            return
        if before is None:
            self._foreign.delete(created)
        else:
            self._foreign.write(path, before)

    def raise_in_effect(self, controller: int) -> None:
        """The next effect of a type raises, once per broker: the pause after it doubles each time."""
        running = self._world.brokers[controller].running
        assert isinstance(running, RegisteredBroker)
        runtime = running.participant.controller._runtime
        term = None if runtime is None else runtime._running
        if term is None or controller in self._raised:
            return
        kind, executed = self._world.random.choice(RAISING), self._world.random.random() < 0.5
        execute = term._execute[kind]

        def raising(effect: Any) -> None:
            term._execute[kind] = execute
            if executed and isinstance(steps := execute(effect), Generator):
                finish(steps)
            self._raised.add(controller)
            self._world.count("exceptions in effects")
            raise PlantedError(kind.__name__)

        term._execute[kind] = raising

    def skew_clocks(self, broker_ids: Iterable[int]) -> None:
        """The clocks of all machines differ by minutes from now on."""
        for broker_id in broker_ids:
            self._world.brokers[broker_id].jump_wall(self._world.random.choice(SKEWS_MS))
