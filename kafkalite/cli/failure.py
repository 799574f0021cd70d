"""Defines how a command fails: one line on standard error and exit code 2."""

from typing import NoReturn

import click

EXIT_WRONG = 2


class Failure(click.ClickException):
    """Ends the command with one line on standard error."""

    exit_code = EXIT_WRONG


def fail(text: str) -> NoReturn:
    """End the command with one line on standard error and exit code 2."""
    raise Failure(text)
