"""`group verify`: whether each partition of the subscribed topics has one live owner."""

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click
from kafkalite_sdk.zk.groups import ZooKeeperGroups
from kafkalite_sdk.zk.owner_check import OwnershipReport, check_owners

from kafkalite.cli.client_options import shorten_errors
from kafkalite.cli.failure import fail
from kafkalite.cli.group.zookeeper.connection import open_groups
from kafkalite.cli.group.zookeeper.options import Tree
from kafkalite.coordination.errors import NoNodeError

EXIT_WRONG_OWNERS = 1
PAUSE_S = 0.5  # between two checks


class Expected(NamedTuple):
    """What a check waits for.

    Attributes:
        consumers: number of registered consumers of each group; None = any above 0.
        wait_s: how long the check is repeated, in seconds.
    """

    consumers: int | None = None
    wait_s: float = 0.0


class GroupReport(NamedTuple):
    """The result of a group: the number of its consumers and the expected one, and what the check has found."""

    group: str
    consumers: int
    expected: int | None
    report: OwnershipReport

    @property
    def lines(self) -> list[str]:
        """The problems in text."""
        found = [f"{self.group}: {each.partition}: {each.reason}" for each in self.report.problems]
        if not self.consumers:
            return [f"{self.group}: no consumer is registered", *found]
        if self.expected not in (None, self.consumers):
            found.insert(0, f"{self.group}: {self.consumers} consumer(s) are registered, expected {self.expected}")
        return found


class Verification(NamedTuple):
    """The results of all groups, and the invalid nodes of topics, by path."""

    reports: list[GroupReport]
    invalid_topics: dict[str, str]

    @property
    def wrong(self) -> bool:
        """Whether a partition of any group does not have one live owner, or a number of consumers is another one."""
        return any(each.lines for each in self.reports)


async def verify_groups(names: Sequence[str], expected: Expected, tree: Tree, as_json: bool) -> None:
    """Check groups; ends the command with EXIT_WRONG_OWNERS if a partition does not have one live owner.

    Arguments:
        names: ids of the groups; empty = all with registered consumers or owners.
        expected: consumers, and how long the check is repeated.
        tree: where they are.
        as_json: print an object for each group.
    """
    async with open_groups(tree) as groups:
        found = await wait_for_owners(groups, names, expected)
    print_reports(found.reports, as_json)
    invalid = {
        **found.invalid_topics,
        **{path: why for each in found.reports for path, why in each.report.invalid.items()},
    }
    texts = [f"{path}: {reason}" for path, reason in invalid.items()]
    if found.wrong:
        for text in texts:
            click.echo(f"kafkalite: {text}", err=True)
        sys.exit(EXIT_WRONG_OWNERS)
    if texts:
        fail(shorten_errors(texts))


async def wait_for_owners(groups: ZooKeeperGroups, names: Sequence[str], expected: Expected) -> Verification:
    """Check groups until all partitions have one live owner, or the time is over; returns the last result.

    A group that does not exist yet may come in this time.
    """
    now = asyncio.get_running_loop().time
    deadline = now() + expected.wait_s
    while True:
        try:
            found = await check_groups(groups, names, expected.consumers)
        except NoNodeError:
            if now() >= deadline:
                raise
        else:
            if not found.wrong or now() >= deadline:
                return found
        await asyncio.sleep(PAUSE_S)


async def check_groups(groups: ZooKeeperGroups, names: Sequence[str], consumers: int | None) -> Verification:
    """Check groups once. Raises NoNodeError: one does not exist."""
    topics, invalid_topics = await groups.partitions()
    found = [await groups.read(name) for name in dict.fromkeys(names or await groups.names())]
    reports = [
        GroupReport(each.group, len(each.consumers), consumers, check_owners(each, topics))
        for each in found
        if names or each.consumers or each.owners
    ]
    return Verification(reports, invalid_topics)


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
