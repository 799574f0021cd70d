"""Steps of one key follow each other, whether they end at once, later, or with an exception."""

from collections.abc import Callable

import pytest

from kafkalite.cluster.turns import Turns


def test_a_step_begins_when_the_one_before_it_has_ended() -> None:
    turns, begun, ends = Turns(), [], []

    def step(name: str) -> Callable[[Callable[[], None]], None]:
        def begin(end: Callable[[], None]) -> None:
            begun.append(name)
            ends.append(end)

        return begin

    for name in ("a", "b"):
        turns.take("key", step(name))
    turns.take("other", step("c"))
    assert begun == ["a", "c"]
    ends[0]()
    assert begun == ["a", "c", "b"]
    ends[2]()
    turns.take("key", step("d"))
    assert begun == ["a", "c", "b", "d"]


def test_thousands_of_steps_may_end_at_once() -> None:
    turns, ends, done = Turns(), [], []
    turns.take("key", ends.append)
    for at in range(5000):
        turns.take("key", lambda end, at=at: (done.append(at), end()))
    ends[0]()
    assert done == list(range(5000))


def test_a_step_that_fails_does_not_hold_up_the_next() -> None:
    turns, ends, done = Turns(), [], []
    turns.take("key", ends.append)
    turns.take("key", lambda end: 1 // 0)
    turns.take("key", lambda end: (done.append(1), end()))
    with pytest.raises(ZeroDivisionError):
        ends[0]()
    assert done == [1]


def test_a_turn_ends_once() -> None:
    ends: list[Callable[[], None]] = []
    Turns().take("key", ends.append)
    ends[0]()
    with pytest.raises(AssertionError, match="ends once"):
        ends[0]()
