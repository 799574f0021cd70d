"""Reads as a member of a group, and commits what was printed."""

import asyncio
from collections.abc import Mapping

import click
from kafkalite_sdk import Consumer, TopicPartition

from kafkalite.cli.records.output import Output
from kafkalite.cli.records.partition_reader import EMPTY_POLL_S, WAIT_S, print_records, reachable
from kafkalite.cli.retry import Retry
from kafkalite.cli.signals import TERMINATED, cancel_on_sigterm
from kafkalite.errors import KafkaError


async def read_group(consumer: Consumer, output: Output, count: int | None, *, follow: bool) -> None:
    """Print records until there were `count` or the log ends, then commit. An interrupt commits, too.

    Every poll commits what the previous one has returned, at most every 5 s (`enable_auto_commit`).

    Arguments:
        consumer: subscribed.
        output: prints the records.
        count: the most records to print, None = any number.
        follow: wait for new records at the end of the log. Otherwise each partition is read to the end that it had when
            it was assigned; a member without partitions waits for its share.
    """
    retries, left, ends = Retry(), count, dict[TopicPartition, int]()
    interrupts = cancel_on_sigterm(lambda: "kafkalite: interrupted; the records printed last may not be committed")
    try:
        while left != 0 and (follow or not await at_end(consumer, ends)):
            printed = await print_records(consumer, output, WAIT_S, left)
            if printed:
                retries.succeeded()
            elif await reachable(consumer, retries) and not follow and is_positioned(consumer, ends):
                await consumer.end_offsets(ends)  # an answer: the leaders are there to send records
                printed = await print_records(consumer, output, EMPTY_POLL_S, left)
                if not printed and is_positioned(consumer, ends):
                    break  # compaction has removed the last records
            left = None if left is None else left - printed
        await consumer.commit()
    except asyncio.CancelledError:
        await commit_at_end(consumer)
        interrupts.last_line = str
        if interrupts.terminated:
            raise click.exceptions.Exit(TERMINATED) from None
        raise


async def at_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    """Return whether all assigned partitions are read to their ends.

    Arguments:
        consumer: the member.
        ends: of the partitions that were assigned before; the ends of others are added.
    """
    assigned = consumer.assignment()
    if new := [each for each in assigned if each not in ends]:
        ends.update(await consumer.end_offsets(new))
    positions = consumer.positions()
    return bool(assigned) and all(positions.get(each, -1) >= ends[each] for each in assigned)


def is_positioned(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> bool:
    """Whether the member has partitions, knows the ends and its position in each of them."""
    assigned = consumer.assignment()
    return bool(assigned) and assigned <= ends.keys() and assigned <= consumer.positions().keys()


async def commit_at_end(consumer: Consumer) -> None:
    """Commit what was printed, and report if that fails: the group receives these records again."""
    try:
        if consumer.assignment():
            await consumer.commit()
    except KafkaError as error:
        click.echo(f"kafkalite: the printed records are not committed: {error}", err=True)
