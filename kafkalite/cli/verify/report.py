"""Prints the results of `topic verify`, and ends the command with its exit code."""

import json
import sys
from collections.abc import Sequence

import click

from kafkalite.cli.client_options import fail_for_unknown
from kafkalite.cli.verify.verification import PartitionResult

EXIT_DIFFERENT = 1


def report(results: Sequence[PartitionResult], as_json: bool) -> None:
    """Print a line for each difference, or an object for each partition; ends the command unless all is equal."""
    for each in results:
        if as_json:
            click.echo(json.dumps(object_of(each)))
        else:
            print_differences(each)
    different = sum(bool(each.difference_count) for each in results)
    if not as_json:
        few = "" if results else ": those with one replica have nothing to compare"
        click.echo(f"{len(results)} partition(s) compared, replicas of {different} differ{few}")
    unread = {f"{each.partition} on broker {broker}": why for each in results for broker, why in each.unread.items()}
    if different:
        for subject, error in unread.items():
            click.echo(f"kafkalite: {subject} was not compared: {error}", err=True)
        sys.exit(EXIT_DIFFERENT)
    fail_for_unknown(unread, "the content")


def print_differences(result: PartitionResult) -> None:
    """Print the differences of one partition."""
    for each in result.differences:
        click.echo(f"{result.partition}: broker {each.broker}: {each.text}")
    if more := result.difference_count - len(result.differences):
        click.echo(f"{result.partition}: and {more} more")


def object_of(result: PartitionResult) -> dict[str, object]:
    """The result of one partition as JSON."""
    return {
        "topic": result.partition.topic,
        "partition": result.partition.partition,
        "brokers": result.brokers,
        "start_offset": result.start,
        "end_offset": result.end,
        "keys" if result.compacted else "batches": result.compared,
        "difference_count": result.difference_count,
        "differences": [each._asdict() for each in result.differences],
        "not_compared": {str(broker): str(error) for broker, error in result.unread.items()},
    }
