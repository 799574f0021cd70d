"""A weighted random choice of actions, from a seed that replays it."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

__all__ = ["Operations", "WeightedChoice", "draw"]

T = TypeVar("T")
Operations = Mapping[Callable[[], T], int]
"""Operations with their weights."""


def draw(dice: random.Random, operations: Operations[T]) -> Callable[[], T]:
    """One of these operations."""
    return dice.choices(list(operations), list(operations.values()))[0]


class WeightedChoice:
    """Random values that are usual with a probability of `usual`."""

    def __init__(self, dice: random.Random, usual: float) -> None:
        self.dice = dice
        self._usual = usual

    def pick(self, values: Sequence[T]) -> T:
        return self.dice.choice(values)

    def mostly(self, usual: T, *odd: T) -> T:
        return usual if self.dice.random() < self._usual else self.dice.choice(odd)
