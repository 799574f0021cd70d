"""SIGTERM ends a command as Ctrl-C does, with another exit code."""

import asyncio
import signal
import threading

TERMINATED = 143  # exit code that a shell reports for a process ended by SIGTERM


def cancel_on_sigterm() -> asyncio.Event:
    """Cancel the current task at SIGTERM. Returns an event that is set then."""
    terminated, task = asyncio.Event(), asyncio.current_task()
    assert task is not None

    def cancel() -> None:
        terminated.set()
        task.cancel()

    if threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, cancel)
    return terminated
