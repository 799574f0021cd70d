"""Seeds, operations and seeded bugs of the group simulations.

`--simulations` says how many there are, `--minutes` how long each is (of virtual time). Their seeds are those of
`tests.kit.seeds`. A simulation that fails prints its seed, and KAFKALITE_SEED runs that one alone. Seeded bugs are
searched for with the same seeds always: 200 other simulations may miss what one in 40 detects.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.state.groups.consumer.group_steps import TOPICS_AT_ONCE
from tests.kit.counted_table import CountedTable
from tests.kit.seeds import first_seed, replayed_seed, seeds_of
from tests.kit.weighted_choice import Operations, draw

ONE = replayed_seed() is not None
BUG_SEEDS = range(1, 201)
REPLAYS = 3

Simulate = Callable[[int, int], object]  # seed, minutes


def at_once(seed: int) -> int:
    """How many topics a consumer group reads at most whose heartbeats make the target assignment: in a third of the
    lives all of them, else a timer makes it for all groups, or for those that read two topics or more.
    """
    return (TOPICS_AT_ONCE, 0, 1)[seed % 3]


def simulate_all(simulate: Simulate, simulations: int, minutes: int) -> None:
    """Run all simulations, or the one of KAFKALITE_SEED."""
    for seed in seeds_of(simulations):
        simulate_seed(simulate, seed, minutes)


def simulate_seed(simulate: Simulate, seed: int, minutes: int) -> None:
    """Run one simulation; print its seed if it fails."""
    try:
        simulate(seed, minutes)
    except BaseException:
        print(f"KAFKALITE_SEED={seed}")
        raise


def run_operations(
    dice: random.Random,
    minutes: int,
    now_ms: Callable[[], int],
    operations: Operations[object],
    check: Callable[[], object],
    check_replay: Callable[[], object],
) -> None:
    """Run random operations. The invariants are checked after each, and a replay of the log three times."""
    moments = sorted(dice.randrange(minutes * 60_000) for _ in range(REPLAYS))
    while now_ms() < minutes * 60_000:
        draw(dice, operations)()
        check()
        while moments and moments[0] <= now_ms():
            moments.pop(0)
            check_replay()


def assert_finds(
    bug: Callable[[pytest.MonkeyPatch], None], simulate: Simulate, minutes: int, recorded: int = 1
) -> None:
    """A seeded bug violates an invariant in one of the first simulations.

    Arguments:
        bug: which is planted.
        simulate: runs a seed.
        minutes: length of a simulation.
        recorded: the seed that finds the bug; the search begins with it.
    """
    for seed in sorted(BUG_SEEDS, key=lambda seed: seed != recorded):
        try:
            simulate(seed, minutes)
        except (AssertionError, KeyError) as error:
            print(f"{bug.__name__}: seed {seed}: {error}".splitlines()[0])
            return
    pytest.fail(f"{bug.__name__} was not detected in {len(BUG_SEEDS)} simulations")


def replace_action(monkeypatch: pytest.MonkeyPatch, table: dict[Any, Any], action: Any, replacement: Any) -> None:
    """Run another action in all rows of a transition table that name `action`."""
    for key, row in table.items():
        if row.action is action:
            monkeypatch.setitem(table, key, row._replace(action=replacement))


class Taken(CountedTable[Any, Any]):
    """A transition table whose rows all must be taken by the simulations."""

    def assert_all(self) -> None:
        """Every row was taken, unless only one simulation was run."""
        never = self.keys() - self.used
        assert ONE or not never, f"never taken: {never}; seeds from {first_seed()}"
