"""Handles standard streams that the caller closed (`<&-`, `>&-`), as cron and some daemons do.

Python sets such a stream to None. The system assigns its number to the next socket or file, and code that uses the
standard stream would read and write there.
"""

import os
import sys
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
