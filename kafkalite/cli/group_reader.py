"""Reads as a member of a group, and commits what was printed."""

import asyncio

import click
from kafkalite_sdk import Consumer

from kafkalite.cli.partition_reader import WAIT_S, print_records, reachable
from kafkalite.cli.record_output import Output
from kafkalite.cli.retry import Retry
from kafkalite.cli.signals import TERMINATED, cancel_on_sigterm
from kafkalite.errors import KafkaError


async def read_group(consumer: Consumer, output: Output, count: int | None) -> None:
    """Print records until there were `count` (None = forever), then commit. An interrupt commits, too.

    Every poll commits what the previous one has returned, at most every 5 s (`enable_auto_commit`).

    Arguments:
        consumer: subscribed.
        output: prints the records.
        count: the most records to print.
    """
    retries, left = Retry(), count
    interrupts = cancel_on_sigterm(lambda: "kafkalite: interrupted; the records printed last may not be committed")
    try:
        while left != 0:
            printed = await print_records(consumer, output, WAIT_S, left)
            left = None if left is None else left - printed
            if printed:
                retries.succeeded()
            else:
                await reachable(consumer, retries)
        await consumer.commit()
    except asyncio.CancelledError:
        await commit_at_end(consumer)
        interrupts.last_line = str
        if interrupts.terminated:
            raise click.exceptions.Exit(TERMINATED) from None
        raise


async def commit_at_end(consumer: Consumer) -> None:
    """Commit what was printed, and report if that fails: the group receives these records again."""
    try:
        if consumer.assignment():
            await consumer.commit()
    except KafkaError as error:
        click.echo(f"kafkalite: the printed records are not committed: {error}", err=True)
