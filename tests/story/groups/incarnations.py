"""How the simulations of groups choose their lives: one way for all of them.

`--simulations` says how many there are, `--minutes` how long each is (of virtual time). They have the seeds from FIRST
on, the same in each run: KAFKALITE_FIRST_SEED looks for others, as `make torture` does. A life that breaks a law prints
its seed, and KAFKALITE_SEED lives that one alone. Planted bugs are looked for in the same lives in any case: what one
life in 40 meets, 200 may miss.
"""

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.state.groups.consumer.core import TOPICS_AT_ONCE
from tests.kit.weighted_choice import Doings, draw

FIRST = int(os.environ.get("KAFKALITE_SEED") or os.environ.get("KAFKALITE_FIRST_SEED") or 1)
ONE = "KAFKALITE_SEED" in os.environ
PLANTED_SEEDS = range(1, 201)
REPLAYS = 3

Live = Callable[[int, int], object]  # seed, minutes


def at_once(seed: int) -> int:
    """How many topics a consumer group reads at most whose heartbeats make the target assignment: in a third of the
    lives all of them, else a timer makes it for all groups, or for those that read two topics or more.
    """
    return (TOPICS_AT_ONCE, 0, 1)[seed % 3]


def live_all(live: Live, simulations: int, minutes: int) -> None:
    """Live through all lives, or the one that is asked for."""
    for seed in range(FIRST, FIRST + (1 if ONE else simulations)):
        lived(live, seed, minutes)


def lived(live: Live, seed: int, minutes: int) -> None:
    """One life; where it breaks a law, its seed is printed."""
    try:
        live(seed, minutes)
    except BaseException:
        print(f"KAFKALITE_SEED={seed}")
        raise


def live_through(
    dice: random.Random,
    minutes: int,
    now_ms: Callable[[], int],
    doings: Doings[object],
    judge: Callable[[], object],
    judge_replay: Callable[[], object],
) -> None:
    """A life: one thing is done after the other. All is judged after each, and the log is read again three times."""
    moments = sorted(dice.randrange(minutes * 60_000) for _ in range(REPLAYS))
    while now_ms() < minutes * 60_000:
        draw(dice, doings)()
        judge()
        while moments and moments[0] <= now_ms():
            moments.pop(0)
            judge_replay()


def assert_finds(plant: Callable[[pytest.MonkeyPatch], None], live: Live, minutes: int) -> None:
    """A bug that has been planted breaks a law in one of the first lives."""
    for seed in PLANTED_SEEDS:
        try:
            live(seed, minutes)
        except (AssertionError, KeyError) as error:
            print(f"{plant.__name__}: life {seed}: {error}".splitlines()[0])
            return
    pytest.fail(f"{plant.__name__} was not found in {len(PLANTED_SEEDS)} lives")


def replace_action(monkeypatch: pytest.MonkeyPatch, table: dict[Any, Any], action: Any, replacement: Any) -> None:
    """Run another action in all rows of a transition table that name `action`."""
    for key, row in table.items():
        if row.action is action:
            monkeypatch.setitem(table, key, row._replace(action=replacement))


class Taken(dict[Any, Any]):
    """A table of transitions that remembers which rows were taken."""

    def __init__(self, table: dict[Any, Any]) -> None:
        super().__init__(table)
        self.rows: set[Any] = set()

    def __getitem__(self, key: Any) -> Any:
        self.rows.add(key)
        return super().__getitem__(key)

    def assert_all(self) -> None:
        """Every row was taken, unless one life alone was lived."""
        never = set(self) - self.rows
        assert ONE or not never, f"never taken: {never}; seeds from {FIRST}"
