"""`kafkalite.callbacks`: every callback is called, once, in order, also after an exception."""

from collections.abc import Callable
from functools import partial

import pytest

from kafkalite.callbacks import FanIn, SerialExecutor, Window, call_all, call_each, fail_on_exception, gather, once


def test_step_begins_when_previous_step_of_its_key_has_ended() -> None:
    executor, begun, ends = SerialExecutor(), [], []

    def step(name: str) -> Callable[[Callable[[], None]], None]:
        def begin(end: Callable[[], None]) -> None:
            begun.append(name)
            ends.append(end)

        return begin

    for name in ("a", "b"):
        executor.run("key", step(name))
    executor.run("other", step("c"))
    assert begun == ["a", "c"]
    ends[0]()
    assert begun == ["a", "c", "b"]
    ends[2]()
    executor.run("key", step("d"))
    assert begun == ["a", "c", "b", "d"]


def test_thousands_of_steps_end_without_recursion() -> None:
    executor, ends, done = SerialExecutor(), [], []
    executor.run("key", ends.append)
    for at in range(5000):
        executor.run("key", lambda end, at=at: (done.append(at), end()))
    ends[0]()
    assert done == list(range(5000))


def test_step_that_raises_does_not_block_the_next() -> None:
    executor, ends, done = SerialExecutor(), [], []
    executor.run("key", ends.append)
    executor.run("key", lambda end: 1 // 0)
    executor.run("key", lambda end: (done.append(1), end()))
    with pytest.raises(ZeroDivisionError):
        ends[0]()
    assert done == [1]


def test_step_ends_once() -> None:
    ends: list[Callable[[], None]] = []
    SerialExecutor().run("key", ends.append)
    ends[0]()
    with pytest.raises(AssertionError, match="ends once"):
        ends[0]()


def test_remaining_calls_are_made_after_an_exception_and_the_first_is_raised() -> None:
    called: list[int] = []

    def call(item: int) -> None:
        called.append(item)
        if item % 2:
            raise ValueError(item)

    with pytest.raises(ValueError, match="1"):
        call_each(call, range(4))
    with pytest.raises(ValueError, match="3"):
        call_all(lambda: call(3), lambda: call(5), lambda: call(6))
    assert called == [0, 1, 2, 3, 3, 5, 6]


def test_completion_is_called_once_also_when_it_raises() -> None:
    results: list[int] = []

    def fail(result: int) -> None:
        results.append(result)
        raise ValueError("completion failed")

    complete = once(fail)
    with pytest.raises(ValueError, match="completion failed"):
        complete(1)
    complete(2)
    assert results == [1]


def test_continuation_that_raises_fails_the_operation_and_the_exception_propagates() -> None:
    failures: list[str] = []
    guarded = fail_on_exception(lambda divisor: 1 // divisor, lambda: failures.append("failed"))
    guarded(1)
    assert not failures
    with pytest.raises(ZeroDivisionError):
        guarded(0)
    assert failures == ["failed"]


def test_fan_in_returns_results_in_order_of_their_indexes() -> None:
    done: list[list[str]] = []
    results = FanIn[str](3, done.append)
    for index, result in ((2, "c"), (0, "a")):
        results.put(index, result)
    assert not done
    results.put(1, "b")
    assert done == [["a", "b", "c"]]


def test_fan_in_of_no_results_is_done_at_once() -> None:
    done: list[list[str]] = []
    FanIn(0, done.append)
    gather([], done.append)
    assert done == [[], []]


def test_gather_collects_results_that_arrive_at_once_and_later() -> None:
    pending: list[Callable[[int], None]] = []
    done: list[list[int]] = []
    gather([pending.append, lambda put: put(2), pending.append], done.append)
    pending[1](3)
    assert not done
    pending[0](1)
    assert done == [[1, 2, 3]]


def test_window_limits_the_steps_that_have_not_ended_and_keeps_their_order() -> None:
    window, begun, ends = Window(2), list[int](), list[Callable[[], None]]()

    def begin(number: int, end: Callable[[], None]) -> None:
        begun.append(number)
        ends.append(end)

    for number in range(5):
        window.run(partial(begin, number))
    assert begun == [0, 1]
    ends[1]()
    assert begun == [0, 1, 2]
    ends[0]()
    ends[2]()
    assert begun == [0, 1, 2, 3, 4]
    window.close()


def test_thousands_of_steps_of_a_window_end_at_once_without_recursion() -> None:
    window, count = Window(1), 0

    def step(end: Callable[[], None]) -> None:
        nonlocal count
        count += 1
        end()

    first: list[Callable[[], None]] = []
    window.run(first.append)
    for _ in range(5_000):
        window.run(step)
    first[0]()
    assert count == 5_000
