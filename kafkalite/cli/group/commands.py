"""`kafkalite group`: list, describe, create, delete, rewind and reset groups, export and import their offsets."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import click

from kafkalite.cli.client_options import (
    bootstrap_option,
    check,
    column_key,
    command_runner,
    json_option,
    next_steps,
    print_rows,
    refusal,
)
from kafkalite.cli.connection import connect
from kafkalite.cli.failure import fail
from kafkalite.cli.group.client import EMPTY, DescribedGroup, GroupClient, GroupMember
from kafkalite.cli.group.lag import ConsumerLag, consumer_lags
from kafkalite.cli.group.moves import Moved, commit_moves, planned, print_moves, require_empty, rewind_with_members
from kafkalite.cli.group.offsets import offsets
from kafkalite.cli.group.positions import TO_HELP
from kafkalite.cli.leader_connections import LeaderConnections
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.extensions.create_group import CreateGroupRequest
from kafkalite.protocol.messages.delete_groups import DeleteGroupsRequest

# The columns of kafka-consumer-groups --describe in its order; ours is the last one.
LAG_COLUMNS = (
    *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
    *("CONSUMER-ID", "HOST", "CLIENT-ID", "LAG-SECONDS"),
)
LIST_COLUMNS = ("GROUP", "TYPE", "STATE", "PROTOCOL-TYPE", "COORDINATOR")
MEMBER_KEYS = ("consumer_id", "instance_id", "client_id", "host", "assignment")
# Group states and types that ListGroups filters by, without regard to case.
STATES = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Stable",
    "NotReady",
    "Dead",
)
TYPES = ("classic", "consumer", "registered", "share", "streams")
ASSIGNORS = ("range", "roundrobin", "sticky", "uniform")
choice = partial(click.Choice, case_sensitive=False)

dry_run_option = click.option("--dry-run", is_flag=True, help="Print the changes without making them.")
topics_option = click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P,P...]",
    help="A topic, or some of its partitions; may be repeated. Default: all that the group has committed or owns.",
)
to_option = click.option("--to", required=True, metavar="POSITION", help=TO_HELP)


@click.group(
    epilog="""\b
Examples:
  kafkalite group list
  kafkalite group describe billing
  kafkalite group rewind billing --to 2013-07-01 --topic orders --dry-run
  kafkalite group rewind billing --to earliest --topic orders:0,2
  kafkalite group reset billing --to latest
  kafkalite group offsets export billing > billing.jsonl
  kafkalite group delete billing
"""
)
def command() -> None:
    """List, inspect, create, reset and delete consumer groups."""


command.add_command(offsets)


@asynccontextmanager
async def cluster(bootstrap: str) -> AsyncIterator[tuple[LeaderConnections, GroupClient]]:
    """Connect to the cluster: its leaders and its groups."""
    async with LeaderConnections(bootstrap) as leaders:
        yield leaders, GroupClient(leaders)


@command.command(
    name="list",
    epilog="""\b
Examples:
  kafkalite group list
  kafkalite group list --state Stable --type consumer --json
""",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=choice(STATES),
    metavar="STATE",
    help=f"List only groups in this state; may be repeated: {', '.join(STATES)}.",
)
@click.option(
    "--type",
    "group_types",
    multiple=True,
    type=choice(TYPES),
    metavar="TYPE",
    help=f"List only groups of this type; may be repeated: {', '.join(TYPES)}.",
)
@bootstrap_option
@json_option
@command_runner
async def list_(states: tuple[str, ...], group_types: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """List all groups."""
    async with cluster(bootstrap) as (_, groups):
        rows = await groups.listed(states, group_types)
    print_rows(LIST_COLUMNS, rows, as_json)


@command.command(
    epilog="""\b
Examples:
  kafkalite group describe billing
  kafkalite group describe billing --json
"""
)
@click.argument("group")
@bootstrap_option
@json_option
@command_runner
async def describe(group: str, bootstrap: str, as_json: bool) -> None:
    """Show the members of GROUP, its committed offsets and its lag.

    LAG counts records. LAG-SECONDS is the age of the first record after the committed offset.
    """
    async with cluster(bootstrap) as (leaders, groups):
        found = await groups.described(group)
        rows = await consumer_lags(leaders, found, await groups.committed(group))
    if as_json:
        click.echo(json.dumps(as_object(found, rows)))
        return
    click.echo(said_of(found))
    table = [lag_row(group, each) for each in rows]
    table += [(group, *(None,) * 5, *member_cells(each), None) for each in found.members if not each.assignment]
    if table:
        print_rows(LAG_COLUMNS, table, as_json=False)
    else:
        click.echo("the group has no committed offsets")


def said_of(group: DescribedGroup) -> str:
    """A group in one line of text."""
    assignor = f", assignor {group.assignor}" if group.assignor else ""
    return f"{group.name}: type {group.kind}, state {group.state}, {len(group.members)} member(s){assignor}"


def lag_row(group: str, each: ConsumerLag) -> tuple[object, ...]:
    """The row of a partition, in the order of LAG_COLUMNS."""
    return (
        group,
        *each.topic_partition,
        each.committed,
        each.log_end,
        each.lag,
        *member_cells(each.member),
        each.lag_s,
    )


def member_cells(member: GroupMember | None) -> tuple[str | None, str | None, str | None]:
    """CONSUMER-ID, HOST and CLIENT-ID of a partition's owner, or of none."""
    return (None, None, None) if member is None else (member.member_id, member.host, member.client)


def as_object(group: DescribedGroup, rows: Sequence[ConsumerLag]) -> dict[str, Any]:
    """The group as one JSON object."""
    members = [
        dict(zip(MEMBER_KEYS, (*each[:4], list(map(list, each.assignment))), strict=True)) for each in group.members
    ]
    keys = [column_key(column) for column in LAG_COLUMNS[1:]]
    partitions = [dict(zip(keys, lag_row(group.name, row)[1:], strict=True)) for row in rows]
    return {
        "group": group.name,
        "type": group.kind,
        "state": group.state,
        "assignor": group.assignor,
        "members": members,
        "partitions": partitions,
    }


@command.command(
    epilog="""\b
Examples:
  kafkalite group create billing --topic orders --topic payments
  kafkalite group create audit --pattern '^orders.*' --assignor sticky --ephemeral
"""
)
@click.argument("group")
@click.option("-t", "--topic", "topics", multiple=True, help="Topic that the group subscribes to; may be repeated.")
@click.option("--pattern", help="Regular expression (RE2) of topic names to subscribe to, instead of --topic.")
@click.option("--assignor", type=choice(ASSIGNORS), default="range", show_default=True, help="Partition assignor.")
@click.option(
    "--session-timeout-ms",
    type=click.IntRange(0, 2**31 - 1),
    default=45_000,
    show_default=True,
    help="Session timeout of members, in ms; the broker allows 6000 to 1800000 by default.",
)
@click.option("--ephemeral", is_flag=True, help="Delete the group when its last member leaves.")
@bootstrap_option
@command_runner
async def create(
    group: str,
    topics: tuple[str, ...],
    pattern: str | None,
    assignor: str,
    session_timeout_ms: int,
    ephemeral: bool,
    bootstrap: str,
) -> None:
    """Create GROUP as a registered group, before it has members.

    The broker assigns the partitions of such a group.
    """
    if bool(topics) == (pattern is not None):
        fail("a group subscribes to topics or to a pattern: give --topic or --pattern, not both")
    request = CreateGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        topics=list(topics) or None,
        topic_pattern=pattern,
        assignor=assignor,
        ephemeral=ephemeral,
    )
    async with connect(bootstrap) as peer:
        response = await peer.call(request)
    other_type = response.error_code == KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL
    check(response.error_code, "the group has another type and has members" if other_type else None, group)
    click.echo(f"created {group}, coordinated by broker {response.controller_id}")


@command.command(
    epilog="""\b
Examples:
  kafkalite group delete billing
  kafkalite group delete billing audit
"""
)
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@bootstrap_option
@command_runner
async def delete(names: tuple[str, ...], bootstrap: str) -> None:
    """Delete groups without members, and their committed offsets."""
    wrong: dict[str, int] = {}
    async with cluster(bootstrap) as (_, groups):
        for name in names:
            request = DeleteGroupsRequest(groups_names=[name])
            (result,) = (await (await groups.coordinator(name)).call(request)).results
            if result.error_code:
                wrong[name] = result.error_code
            else:
                click.echo(f"deleted {name}")
    if wrong:
        fail("; ".join(refusal(code, None, name) for name, code in wrong.items()) + next_steps(wrong.values()))


@command.command(
    epilog="""\b
Examples:
  kafkalite group rewind billing --to 2013-07-01 --topic orders --dry-run
  kafkalite group rewind billing --to earliest --topic orders:0,2
  kafkalite group rewind billing --to -100                           the last 100 offsets of each partition
  kafkalite group rewind billing --to @1372636800000
"""
)
@click.argument("group")
@to_option
@topics_option
@dry_run_option
@bootstrap_option
@json_option
@command_runner
async def rewind(group: str, to: str, topics: tuple[str, ...], dry_run: bool, bootstrap: str, as_json: bool) -> None:
    """Move the committed offsets of GROUP, also while it has members.

    Only kafkalite moves a group with members: after their next heartbeats
    they read from the new position, without a restart.
    """
    async with cluster(bootstrap) as (leaders, groups):
        if (found := await groups.find(group)) is None:
            fail(f"{group}: the group does not exist (GROUP_ID_NOT_FOUND); kafkalite group reset creates one")
        owned = [topic_partition for member in found.members for topic_partition in member.assignment]
        moves = await planned(leaders, groups, group, to, topics, owned)
        moved = Moved(moves, [])
        if not dry_run:
            moved = await (commit_moves if found.state == EMPTY else rewind_with_members)(groups, group, moves)
    print_moves(group, moved, as_json, dry_run)


@command.command(
    epilog="""\b
Examples:
  kafkalite group reset billing --to latest --topic orders
  kafkalite group reset billing --to 42 --topic orders:0
"""
)
@click.argument("group")
@to_option
@topics_option
@dry_run_option
@bootstrap_option
@json_option
@command_runner
async def reset(group: str, to: str, topics: tuple[str, ...], dry_run: bool, bootstrap: str, as_json: bool) -> None:
    """Set the committed offsets of GROUP, which must have no members.

    Creates the group if it does not exist.
    """
    async with cluster(bootstrap) as (leaders, groups):
        await require_empty(groups, group)
        moves = await planned(leaders, groups, group, to, topics)
        moved = Moved(moves, []) if dry_run else await commit_moves(groups, group, moves)
    print_moves(group, moved, as_json, dry_run)
