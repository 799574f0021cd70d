"""Ctrl-C and SIGTERM: the first signal ends a command cleanly, a second one at once."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

from kafkalite.cli.standard_streams import ignore_at_exit

TERMINATED = 143  # exit code that a shell reports for a process ended by SIGTERM
SIGNALLED = 128  # such an exit code without the number of the signal
REPEATED_S = 0.1  # `timeout` signals the process and its group, a terminal and a wrapper do so too: that is one signal


class Interrupts:
    """Handles the signals of a command: it cancels the task that creates it, and ends the process at the second one.

    A Python handler, unlike one of the loop, runs also while the loop is blocked by a pipe that is not read.

    Attributes:
        received: the first signal; None = there was none.
        last_line: called at the second signal; returns a line for standard error, empty = none.
    """

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.received: signal.Signals | None = None
        self.last_line: Callable[[], str] = str
        self._loop, self._task = asyncio.get_running_loop(), task
        self._first_at: float | None = None

    @property
    def terminated(self) -> bool:
        """Whether SIGTERM was the first signal."""
        return self.received is signal.SIGTERM

    def handle(self, number: signal.Signals) -> None:
        """Handle this signal until the process ends; in a thread of a program nothing happens."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(number, self._received)
            ignore_at_exit(number)

    def _received(self, number: int, _frame: object) -> None:
        now = time.monotonic()
        if self._first_at is None:
            self._first_at, self.received = now, signal.Signals(number)
            self._loop.call_soon_threadsafe(self._task.cancel)
        elif now - self._first_at >= REPEATED_S:
            try:
                if line := self.last_line():
                    os.write(2, f"{line}\n".encode())  # the stream may be in use by what the signal interrupted
            finally:
                os._exit(SIGNALLED + number)


_CURRENT: ContextVar[Interrupts] = ContextVar("interrupts")


async def interruptible(work: Coroutine[Any, Any, None]) -> None:
    """Run the work of a command until Ctrl-C cancels it.

    After the first signal the handler stays: a repeated one must not interrupt the end of the process.
    """
    interrupts = Interrupts()
    _CURRENT.set(interrupts)
    before = signal.getsignal(signal.SIGINT)
    interrupts.handle(signal.SIGINT)
    try:
        await work
    finally:
        if interrupts.received is None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def cancel_on_sigterm(last_line: Callable[[], str] = str) -> Interrupts:
    """Let SIGTERM end the command as Ctrl-C does. Returns the signals of the command.

    Arguments:
        last_line: see `Interrupts`.
    """
    interrupts = _CURRENT.get(None) or Interrupts()
    interrupts.last_line = last_line
    interrupts.handle(signal.SIGTERM)
    return interrupts
