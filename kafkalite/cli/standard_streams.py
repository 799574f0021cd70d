"""Handles standard streams that the caller closed (`<&-`, `>&-`), as cron and some daemons do, and repeated signals.

Python sets such a stream to None. The system assigns its number to the next socket or file, and code that uses the
standard stream would read and write there.
"""

import atexit
import os
import signal
import sys
from contextlib import suppress
from typing import Any

import click

from kafkalite.cli.failure import fail

STANDARD_FDS = (0, 1, 2)


def reserve_standard_fds() -> None:
    """Open /dev/null at the number of every closed standard stream, and discard the output to a closed stderr."""
    for fd in STANDARD_FDS:
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one
    if sys.stderr is None:
        sys.stderr = open(STANDARD_FDS[-1], "w", closefd=False)  # noqa: SIM115  (for the length of the process)


def require_stdout() -> None:
    """End the command when standard output is closed: its result would be lost."""
    if sys.stdout is None:
        fail("standard output is closed: redirect it to a file or to /dev/null")


class InputFile(click.File):
    """A file to read bytes from; `-` is standard input. A closed standard input ends the command with an error."""

    def __init__(self) -> None:
        super().__init__("rb")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-" and sys.stdin is None:
            fail("standard input is closed: give --file FILE")
        return super().convert(value, param, ctx)


def ignore_at_exit(number: int) -> None:
    """Ignore a signal once the handlers of `atexit` that are registered later have run.

    The interpreter then restores the default action, and a repeated signal would replace the exit code by its own.
    """
    atexit.register(_flush_and_ignore, number)


def _flush_and_ignore(number: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or there is none: the interpreter reports it
            stream.flush()  # into a pipe that is not read: a second signal still ends it
    signal.signal(number, signal.SIG_IGN)
