"""Closes clients that the application forgets: at the exit of the process, and when a client is garbage.

Invariants:
1. The exit closes all clients at the same time, and waits for them as `close` does: a producer until its records are
   acknowledged or have failed. Ctrl-C ends the wait.
2. It precedes the end of the thread pools: a client may still resolve a name or compress a batch.
3. A child process closes only clients that it has started.
"""

import atexit
import concurrent.futures.thread  # noqa: F401 - its exit function must be registered before ours, which is called first
import logging
import threading
import warnings
from collections.abc import Awaitable, Callable

from kafkalite_sdk.blocking.loop_thread import LoopThread
from kafkalite_sdk.blocking.operation import Operation

LOGGER = logging.getLogger("kafkalite_sdk.blocking.closing")

_open: dict[LoopThread, Callable[[], Awaitable[object]]] = {}


def register(thread: LoopThread, close: Callable[[], Awaitable[object]]) -> None:
    """A client has started.

    Arguments:
        thread: of the client.
        close: closes it; called in the loop, unless `unregister` was called before.
    """
    _open[thread] = close


def unregister(thread: LoopThread) -> None:
    """The application has closed a client."""
    _open.pop(thread, None)


def close_forgotten(thread: LoopThread, name: str) -> None:
    """A client is garbage, and was not closed: its thread closes it, and ends. Called in any thread."""
    close = _open.pop(thread, None)
    if close is None or thread.forked or thread.ended:
        return

    async def close_and_stop() -> None:
        try:
            await close()
        finally:
            thread.stop()

    thread.begin(Operation(close_and_stop))
    warnings.warn(f"a {name} was not closed; use it inside `with`, or call close()", ResourceWarning, stacklevel=2)


def _close_all() -> None:
    """Close the clients of this process."""
    usable = [(thread, close) for thread, close in _open.items() if not (thread.forked or thread.ended)]
    closing = [(thread, Operation(close)) for thread, close in usable]
    _open.clear()
    for thread, operation in closing:
        thread.begin(operation)
    for thread, operation in closing:
        operation.wait()
        try:
            operation.raise_error()
        except Exception as error:
            LOGGER.error("a client that was not closed has ended with an error: %s", error)
        thread.end()


# Functions of `atexit` run after the end of the thread pools.
_register: Callable[[Callable[[], object]], object] = getattr(threading, "_register_atexit", atexit.register)
_register(_close_all)
