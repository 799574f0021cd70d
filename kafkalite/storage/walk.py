"""Work over all logs in slices: thousands of them in one go would hold up the loop (law 5 of the design)."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from kafkalite.clock import Clock

SLICE_ITEMS, SLICE_S = 64, 0.0005  # what is done at most before the loop goes on

Item = TypeVar("Item")


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
