"""A weighted random choice of actions, from a seed that replays it."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

__all__ = ["Doings", "WeightedChoice", "draw"]

T = TypeVar("T")
Doings = Mapping[Callable[[], T], int]
"""What may be done, with how often it is."""


def draw(dice: random.Random, doings: Doings[T]) -> Callable[[], T]:
    """One of these doings."""
    return dice.choices(list(doings), list(doings.values()))[0]


class WeightedChoice:
    """Mostly sensible; `usual` is how mostly, a share of 1."""

    def __init__(self, dice: random.Random, usual: float) -> None:
        self.dice = dice
        self._usual = usual

    def pick(self, values: Sequence[T]) -> T:
        return self.dice.choice(values)

    def mostly(self, usual: T, *odd: T) -> T:
        return usual if self.dice.random() < self._usual else self.dice.choice(odd)
