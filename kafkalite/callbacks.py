"""Callbacks for results that arrive later: calls that must all be made, fan-in, completions, serial execution by key.

The event loop continues an operation by callbacks where a future would cost another loop iteration. `slicing` is for
long work on the loop; it needs a clock, this module does not.

Invariants:
1. A callback that raises does not prevent the other calls. The first exception is raised after the last call.
2. Nothing is deferred: a callback runs inside the call that provides the last result, perhaps before the caller that
   registered it continues.
"""

import operator
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
End: TypeAlias = Callable[[], None]
Step: TypeAlias = Callable[[End], object]


def call_each(function: Callable[[Item], object], items: Iterable[Item]) -> None:
    """Call `function` with every item, also after an exception; raises the first exception after the last call."""
    failure: Exception | None = None
    for item in items:
        try:
            function(item)
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


def call_all(*functions: Callable[[], object]) -> None:
    """Call every function, also after an exception; raises the first exception after the last call."""
    call_each(operator.call, functions)


def once(callback: Callable[[Result], object]) -> Callable[[Result], None]:
    """Return a callback that passes its first call to `callback` and ignores all later calls.

    An operation that fails after its completion, for example because the completion itself raised, may then be
    completed again on every level through which the exception propagates.
    """
    called = False

    def complete(result: Result) -> None:
        nonlocal called
        if not called:
            called = True
            callback(result)

    return complete


def fail_on_exception(step: Callable[Arguments, object], fail: Callable[[], object]) -> Callable[Arguments, None]:
    """Return `step`, the continuation of an operation; when it raises, `fail()` is called before the exception
    propagates.
    """

    def guarded(*args: Arguments.args, **named: Arguments.kwargs) -> None:
        try:
            step(*args, **named)
        except Exception:
            fail()
            raise

    return guarded


class Completion(Generic[Result]):
    """The pending end of an operation: exactly one of the two callbacks is called, once.

    Arguments:
        answer: called with the result.
        fail: called with a Kafka error code where there is no result.
    """

    __slots__ = ("answer", "fail")

    def __init__(self, answer: Callable[[Result], object], fail: Callable[[int], object]) -> None:
        self.answer = answer
        self.fail = fail


class FanIn(Generic[Result]):
    """Collects a known number of results.

    `FanIn[Result](...)` takes seven times as long as `FanIn(...)`: hot paths annotate the variable.

    Arguments:
        count: number of results; with 0, `done` is called by the constructor.
        done: called with all results, in the order of their indexes, when the last one is put.
    """

    __slots__ = ("_done", "_missing", "_results")

    def __init__(self, count: int, done: Callable[[list[Result]], object]) -> None:
        self._results: list[Any] = [None] * count
        self._missing = count
        self._done = done
        if not count:
            done([])

    def put(self, index: int, result: Result) -> None:
        """Store the result at `index`, from 0 on; once per index."""
        self._results[index] = result
        self._missing -= 1
        if not self._missing:
            self._done(self._results)


def gather(
    calls: Sequence[Callable[[Callable[[Result], None]], object]], done: Callable[[list[Result]], object]
) -> None:
    """Start several operations and collect their results.

    Arguments:
        calls: the operations; each calls its argument once, with its result.
        done: called with all results, in the order of the calls.
    """
    results = FanIn(len(calls), done)
    call_each(lambda each: each[1](partial(results.put, each[0])), enumerate(calls))


class SerialExecutor:
    """Runs the steps of a key one after another; keys are independent of each other.

    A step decides on the state (existing topics, their configs) that the step before it left.
    """

    def __init__(self) -> None:
        self._queues: dict[Hashable, deque[Step]] = {}

    def run(self, key: Hashable, step: Step) -> None:
        """Call `step(end)` when all earlier steps of `key` have ended.

        Arguments:
            key: of the object that the step changes.
            step: calls its argument exactly once, now or later. A step that raises before has ended.
        """
        queue = self._queues.get(key)
        if queue is not None:
            queue.append(step)
            return
        self._queues[key] = queue = deque((step,))
        self._continue(key, queue)

    def _continue(self, key: Hashable, queue: deque[Step]) -> None:
        """Run steps until one of them ends later or none is left. A loop: thousands may end at once."""
        while queue:
            running = RunningStep(partial(self._continue, key, queue))
            try:
                queue.popleft()(running.end)
            except BaseException:
                running.inside = False
                if running.ended:
                    self._continue(key, queue)
                else:
                    running.end()  # the others must not wait for a step that failed
                raise
            if not running.ended:
                running.inside = False
                return
        del self._queues[key]


class Window:
    """Runs at most `limit` operations at the same time, in the order of their calls.

    Thousands of requests that are encoded at once, and whose responses arrive at once, are long loop iterations.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queue: deque[Step] = deque()
        self._running = 0
        self._beginning = False

    def run(self, step: Step) -> None:
        """Call `step(end)` when fewer than `limit` earlier steps have not ended.

        Arguments:
            step: calls its argument exactly once, now or later.
        """
        self._queue.append(step)
        self._begin()

    def close(self) -> None:
        """Forget the steps that have not begun."""
        self._queue.clear()

    def _begin(self) -> None:
        if self._beginning:  # steps that end at once: the loop below goes on
            return
        self._beginning = True
        failure: Exception | None = None
        while self._queue and self._running < self._limit:
            self._running += 1
            try:
                self._queue.popleft()(self._end)
            except Exception as error:
                failure = failure or error
        self._beginning = False
        if failure is not None:
            raise failure

    def _end(self) -> None:
        self._running -= 1
        self._begin()


class RunningStep:
    """A step that has begun.

    Attributes:
        inside: its call has not returned yet.
        ended: it has called `end`.
    """

    __slots__ = ("_next", "ended", "inside")

    def __init__(self, run_next: Callable[[], None]) -> None:
        self._next = run_next
        self.ended = False
        self.inside = True

    def end(self) -> None:
        """End the step; once."""
        assert not self.ended, "a step ends once"
        self.ended = True
        if not self.inside:
            self._next()
