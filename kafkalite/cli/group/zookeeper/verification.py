"""`group verify`: whether each partition of the subscribed topics has one live owner."""

import json
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click
from kafkalite_sdk.zk.ownership import OwnershipReport, check_owners

from kafkalite.cli.client_options import shorten_errors
from kafkalite.cli.failure import fail
from kafkalite.cli.group.zookeeper.connection import open_groups
from kafkalite.cli.group.zookeeper.options import Tree

EXIT_WRONG_OWNERS = 1


class GroupReport(NamedTuple):
    """The result of a group: the number of its consumers, and what the check has found."""

    group: str
    consumers: int
    report: OwnershipReport

    @property
    def lines(self) -> list[str]:
        """The problems in text."""
        found = [f"{self.group}: {each.partition}: {each.reason}" for each in self.report.problems]
        return found if self.consumers else [f"{self.group}: no consumer is registered", *found]


async def verify_groups(names: Sequence[str], tree: Tree, as_json: bool) -> None:
    """Check groups; ends the command with EXIT_WRONG_OWNERS if a partition does not have one live owner.

    Arguments:
        names: ids of the groups; empty = all with registered consumers or owners.
        tree: where they are.
        as_json: print an object for each group.
    """
    async with open_groups(tree) as groups:
        topics, invalid_topics = await groups.partitions()
        found = [await groups.read(name) for name in dict.fromkeys(names or await groups.names())]
    reports = [
        GroupReport(each.group, len(each.consumers), check_owners(each, topics))
        for each in found
        if names or each.consumers or each.owners
    ]
    print_reports(reports, as_json)
    invalid = {**invalid_topics, **{path: why for each in reports for path, why in each.report.invalid.items()}}
    texts = [f"{path}: {reason}" for path, reason in invalid.items()]
    if any(each.lines for each in reports):
        for text in texts:
            click.echo(f"kafkalite: {text}", err=True)
        sys.exit(EXIT_WRONG_OWNERS)
    if texts:
        fail(shorten_errors(texts))


def print_reports(reports: Sequence[GroupReport], as_json: bool) -> None:
    """Print a line for each problem, or an object for each group."""
    if as_json:
        for each in reports:
            click.echo(json.dumps(as_object(each)))
        return
    for each in reports:
        for line in each.lines:
            click.echo(line)
    partitions = sum(each.report.partitions for each in reports)
    wrong = len({problem.partition for each in reports for problem in each.report.problems})
    click.echo(f"{partitions} partition(s) of {len(reports)} group(s) verified, {wrong} without exactly one live owner")


def as_object(each: GroupReport) -> dict[str, object]:
    """The result of one group as JSON."""
    return {
        "group": each.group,
        "consumers": each.consumers,
        "partitions": each.report.partitions,
        "problems": [
            {"topic": one.partition.topic, "partition": one.partition.partition, "reason": one.reason}
            for one in each.report.problems
        ],
        "invalid_nodes": each.report.invalid,
    }
