"""Defines how a command fails: one line on standard error and exit code 2."""

import sys
from typing import TYPE_CHECKING, NoReturn, Self

import click

if TYPE_CHECKING:
    from kafkalite.model import TopicPartition

EXIT_WRONG = 2
USER = "kafkalite.cli.user"  # of the login, in the context of the command: for errors


class Failure(click.ClickException):
    """Ends the command with one line on standard error."""

    exit_code = EXIT_WRONG


def fail(text: str) -> NoReturn:
    """End the command with one line on standard error and exit code 2."""
    raise Failure(text)


def confirm(question: str, *, yes: bool) -> None:
    """Ask; ends the command unless the answer is yes.

    Arguments:
        question: to print.
        yes: the answer is known.
    """
    if yes:
        return
    try:
        agreed = click.confirm(question)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        fail("nothing was changed: standard input has no answer; give --yes")
    if not agreed:
        fail("nothing was changed")


class PartitionSubject(str):
    """The text of a partition in an error, `orders-0`, or of a group's offset in it, `billing: orders-0`.

    Attributes:
        topic: of the partition, whose right the client may lack.
        group: that the error is about, "" = none.
    """

    topic: str
    group: str

    @classmethod
    def of(cls, partition: "TopicPartition", group: str = "") -> Self:
        """Return the subject of a partition, of a group or of none."""
        subject = cls(f"{group}: {partition}" if group else str(partition))
        subject.topic, subject.group = partition.topic, group
        return subject
