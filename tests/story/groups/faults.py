"""Random invalid requests to a shard.

KAFKALITE_SEED replays one history. They have the same seeds in each run, as the lives of `simulations.py`.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.groups.machine import GroupMachine
from tests.kit.seeds import seeds_of
from tests.kit.weighted_choice import Operations, WeightedChoice, draw
from tests.story.groups.simulated_shard import Shard
from tests.story.groups.simulations import ONE, simulate_seed

__all__ = ["Allowed", "Chaos", "assert_all_is_answered"]

USUAL = 0.85
MORE = 10
Allowed = Mapping[type, set[Error]]
"""The errors that each type of result may have."""


class Chaos(WeightedChoice, ABC):
    """A simulation of such clients; `seen` has the results and their errors."""

    allowed: ClassVar[Allowed]
    requests: ClassVar[int]

    def __init__(self, seed: int) -> None:
        super().__init__(random.Random(seed), USUAL)
        self.shard = Shard(self._make)
        self.seen: set[tuple[type, int]] = set()

    @abstractmethod
    def _make(self) -> GroupMachine: ...

    @abstractmethod
    def operations(self) -> Operations[object]: ...

    @abstractmethod
    def check(self) -> None:
        """Check the invariants after each request."""

    def run(self) -> None:
        operations = self.operations()
        for _ in range(self.requests):
            draw(self.dice, operations)()
            self.check()

    def receive(self) -> None:
        """Check that all results since the last call have allowed errors."""
        for answer in self.shard.answers.values():
            if type(answer) in self.allowed:
                received: Any = answer
                assert received.error in self.allowed[type(received)], received
                self.seen.add((type(received), received.error))
        self.shard.answers.clear()


def assert_all_is_answered(chaos: type[Chaos], histories: int) -> None:
    """Every allowed error occurs in one of the simulations; more are run until the rarest have occurred."""
    expected = {(kind, int(error)) for kind, errors in chaos.allowed.items() for error in errors}
    seen: set[tuple[type, int]] = set()

    def simulate(seed: int, _minutes: int) -> None:
        history = chaos(seed)
        history.run()
        seen.update(history.seen)

    tried = seeds_of(MORE * histories)
    for seed in tried:
        if seed >= tried.start + histories and seen >= expected:
            break
        simulate_seed(simulate, seed, 0)
    assert ONE or seen == expected, f"never occurred: {expected - seen}; seeds from {tried.start}"
