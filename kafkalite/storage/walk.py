"""Work over many things, of which one that raises does not keep the others from their turn; over all logs in slices:
thousands of them in one go would hold up the loop (law 5 of the design)."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from kafkalite.clock import Clock

SLICE_ITEMS, SLICE_S = 64, 0.0005  # what is done at most before the loop goes on

Item = TypeVar("Item")


def each(do: Callable[[Item], object], items: Iterable[Item]) -> None:
    """Call `do` with every item, whatever it raises for another one; the first exception is raised after the last."""
    failure: Exception | None = None
    for item in items:
        try:
            do(item)
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


def nothing() -> None:
    """What follows a walk that nothing follows."""


def walk(
    clock: Clock, items: Sequence[Item], visit: Callable[[Item], object], then: Callable[[], object] = nothing
) -> None:
    """Visit every item, the first slice at once and each further one by a timer, then call `then`.

    What a visit raises goes to the caller of its slice; the others are visited all the same.
    """

    def go(at: int) -> None:
        until = clock.monotonic() + SLICE_S
        end = min(at + SLICE_ITEMS, len(items))
        try:
            while at < end:
                at += 1
                visit(items[at - 1])
                if clock.monotonic() > until:
                    break
        finally:
            if at < len(items):
                clock.call_at(clock.monotonic(), go, at)
            else:
                then()

    go(0)
