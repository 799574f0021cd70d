"""Clients that know no rules, in random order against a whole shard.

KAFKALITE_SEED replays one history. They have the same seeds in each run, as the lives of `incarnations.py`.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.groups.shard import GroupShard
from tests.kit.weighted_choice import Doings, WeightedChoice, draw
from tests.story.groups.incarnations import FIRST, ONE, lived
from tests.story.groups.simulated_shard import Shard

__all__ = ["Allowed", "Chaos", "assert_all_is_answered"]

USUAL = 0.85
MORE = 10
Allowed = Mapping[type, set[Error]]
"""What each kind of answer may say."""


class Chaos(WeightedChoice, ABC):
    """A crowd of them; what they are told is in `seen`."""

    allowed: ClassVar[Allowed]
    requests: ClassVar[int]

    def __init__(self, seed: int) -> None:
        super().__init__(random.Random(seed), USUAL)
        self.shard = Shard(self._make)
        self.seen: set[tuple[type, int]] = set()

    @abstractmethod
    def _make(self) -> GroupShard: ...

    @abstractmethod
    def doings(self) -> Doings[object]: ...

    @abstractmethod
    def judge(self) -> None:
        """What must hold after each request."""

    def run(self) -> None:
        doings = self.doings()
        for _ in range(self.requests):
            draw(self.dice, doings)()
            self.judge()

    def receive(self) -> None:
        """All answers since the last time are such as may be given."""
        for answer in self.shard.answers.values():
            if type(answer) in self.allowed:
                received: Any = answer
                assert received.error in self.allowed[type(received)], received
                self.seen.add((type(received), received.error))
        self.shard.answers.clear()


def assert_all_is_answered(chaos: type[Chaos], histories: int) -> None:
    """Whatever may be answered is, in one of so many histories: more are lived until the rarest answers were given."""
    expected = {(kind, int(error)) for kind, errors in chaos.allowed.items() for error in errors}
    seen: set[tuple[type, int]] = set()

    def live(seed: int, _minutes: int) -> None:
        history = chaos(seed)
        history.run()
        seen.update(history.seen)

    for at in range(1 if ONE else MORE * histories):
        if at >= histories and seen >= expected:
            break
        lived(live, FIRST + at, 0)
    assert ONE or seen == expected, f"never answered: {expected - seen}; seeds from {FIRST}"
