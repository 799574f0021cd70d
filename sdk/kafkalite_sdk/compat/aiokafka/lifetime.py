"""The event loop of aiokafka's clients, and the warning about a client that was not stopped."""

import asyncio
import warnings
from collections.abc import Callable

from kafkalite_sdk.compat.aiokafka.util import get_running_loop


def loop_of(loop: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    """Return the loop that a client belongs to; warn of the argument `loop`, which aiokafka has deprecated.

    Raises: RuntimeError outside of a loop and without one.
    """
    if loop is None:
        return get_running_loop()
    warnings.warn("The `loop` parameter has been deprecated since 0.7.1", DeprecationWarning, stacklevel=4)
    return loop


class LoopClient:
    """The base of producer and consumer.

    Arguments:
        loop: argument of the constructor.
        name: aiokafka's name of the class.
    """

    _closed: bool | None = None
    _opened = False

    def __init__(self, loop: asyncio.AbstractEventLoop | None, name: str) -> None:
        self._loop = loop_of(loop)
        self._name = name

    def _open(self) -> None:
        """The client starts: it must be stopped from now on."""
        assert self._loop is get_running_loop(), "Please create objects with the same loop as running with"
        self._opened = True

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        if not self._opened or self._closed:
            return
        warn(f"Unclosed {self._name} {self!r}", ResourceWarning, source=self)
        role = self._name.removeprefix("AIOKafka").lower()
        self._loop.call_exception_handler({role: self, "message": f"Unclosed {self._name}"})
