"""Rejects calls that would wait for a poll or a close, in functions of the application that these wait for.

Pure. Tasks that such a function starts belong to it until it has returned, as it may await them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from kafkalite.errors import ClientUseError


class _Call:
    """A call; `runs` until the function has returned, inside of the call `outer`."""

    __slots__ = ("consumer", "outer", "runs")

    def __init__(self, consumer: object, outer: "_Call | None") -> None:
        self.consumer = consumer
        self.outer = outer
        self.runs = True


_current: ContextVar[_Call | None] = ContextVar("kafkalite_application_call", default=None)


@contextmanager
def application_call(consumer: object) -> Iterator[None]:
    """Call a listener or another function inside this block; `consumer`: the object that waits for it."""
    call = _Call(consumer, _current.get())
    token = _current.set(call)
    try:
        yield
    finally:
        call.runs = False
        _current.reset(token)


def check_not_inside(consumer: object) -> None:
    """Raise ClientUseError in a function of the application that `consumer` waits for."""
    call = _current.get()
    while call is not None:
        if call.runs and call.consumer is consumer:
            raise ClientUseError(
                "a listener runs, or another function that poll() or close() waits for; call unsubscribe() or close() "
                "when it has returned"
            )
        call = call.outer
