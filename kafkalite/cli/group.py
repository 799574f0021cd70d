"""`kafkalite group`: list, describe, create, delete, rewind and reset groups; export and import their offsets."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import click

from kafkalite.cli.client import (
    bootstrap_option,
    check,
    column_key,
    command_runner,
    json_option,
    next_steps,
    print_rows,
    refusal,
)
from kafkalite.cli.connecting import connect
from kafkalite.cli.failure import fail
from kafkalite.cli.groupmoves import Moved, commit_moves, must_rest, planned, print_moves, rewind_living
from kafkalite.cli.groupoffsets import offsets
from kafkalite.cli.groups import EMPTY, Group, Groups
from kafkalite.cli.lag import Standing, standings
from kafkalite.cli.leaders import Leaders
from kafkalite.cli.places import TO_HELP
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.extensions.create_group import CreateGroupRequest
from kafkalite.protocol.messages.delete_groups import DeleteGroupsRequest

STANDING = ("topic", "partition", "committed", "log end", "lag", "lag seconds", "member", "client", "host")
MEMBER = ("member", "instance", "client", "host", "assignment")
# What ListGroups knows by name, in whatever case it is written.
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

dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
topics_option = click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P,P...]",
    help="A topic, or some of its partitions; may be repeated. All that the group has committed or reads if not given.",
)
to_option = click.option("--to", required=True, metavar="PLACE", help=TO_HELP)


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
    """See groups, move them and end them."""


command.add_command(offsets)


@asynccontextmanager
async def cluster(bootstrap: str) -> AsyncIterator[tuple[Leaders, Groups]]:
    """The cluster behind an address, and its groups."""
    async with Leaders(bootstrap) as leaders:
        yield leaders, Groups(leaders)


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
    help=f"Only groups in such a state: {', '.join(STATES)}.",
)
@click.option(
    "--type", "kinds", multiple=True, type=choice(TYPES), metavar="TYPE", help=f"Only such a type: {', '.join(TYPES)}."
)
@bootstrap_option
@json_option
@command_runner
async def list_(states: tuple[str, ...], kinds: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """List all groups."""
    async with cluster(bootstrap) as (_, groups):
        rows = await groups.listed(states, kinds)
    print_rows(("group", "state", "type", "protocol type", "coordinator"), rows, as_json)


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
    """Show GROUP's members and how far they are.

    The lag is counted in records; in seconds it is the age of the first record that the group has not read.
    """
    async with cluster(bootstrap) as (leaders, groups):
        found = await groups.described(group)
        rows = await standings(leaders, found, await groups.committed(group))
    if as_json:
        click.echo(json.dumps(as_object(found, rows)))
        return
    click.echo(said_of(found))
    table = [standing_row(each) for each in rows]
    table += [(None,) * 6 + (each.member_id, each.client, each.host) for each in found.members if not each.assignment]
    if table:
        print_rows(STANDING, table, as_json=False)
    else:
        click.echo("nothing is committed yet")


def said_of(group: Group) -> str:
    """A group in one line, for people."""
    assigned = f", assigned by {group.assignor}" if group.assignor else ""
    return f"{group.name}: {group.kind} group, {group.state}, {len(group.members)} member(s){assigned}"


def standing_row(each: Standing) -> tuple[object, ...]:
    member = each.member
    who = (member.member_id, member.client, member.host) if member is not None else (None, None, None)
    return (*each.place, each.committed, each.log_end, each.lag, each.lag_s, *who)


def as_object(group: Group, rows: Sequence[Standing]) -> dict[str, Any]:
    """A group as JSON shows it."""
    members = [dict(zip(MEMBER, (*each[:4], list(map(list, each.assignment))), strict=True)) for each in group.members]
    keys = [column_key(column) for column in STANDING[:6]]
    values = [(*row.place, row.committed, row.log_end, row.lag, row.lag_s) for row in rows]
    partitions = [dict(zip(keys, value, strict=True)) for value in values]
    owners = [row.member.member_id if row.member is not None else None for row in rows]
    return {
        "group": group.name,
        "type": group.kind,
        "state": group.state,
        "assignor": group.assignor,
        "members": members,
        "partitions": [{**each, "member": owner} for each, owner in zip(partitions, owners, strict=True)],
    }


@command.command(
    epilog="""\b
Examples:
  kafkalite group create billing --topic orders --topic payments
  kafkalite group create audit --pattern '^orders.*' --assignor sticky --ephemeral
"""
)
@click.argument("group")
@click.option("-t", "--topic", "topics", multiple=True, help="A topic that the group reads; may be repeated.")
@click.option("--pattern", help="Or a regular expression (RE2) for the topics that it reads.")
@click.option(
    "--assignor", type=choice(ASSIGNORS), default="range", show_default=True, help="How partitions are dealt out."
)
@click.option(
    "--session-timeout-ms",
    type=click.IntRange(0, 2**31 - 1),
    default=45_000,
    show_default=True,
    help="How long members may be silent; the broker takes 6000 to 1800000 unless configured otherwise.",
)
@click.option("--ephemeral", is_flag=True, help="The group ends with its last member.")
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
    """Define GROUP before it has members.

    The broker deals out the partitions of such a group.
    """
    if bool(topics) == (pattern is not None):
        fail("a group reads topics or what a pattern matches: give --topic or --pattern, not both")
    request = CreateGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        topics=list(topics) or None,
        topic_pattern=pattern,
        assignor=assignor,
        ephemeral=ephemeral,
    )
    async with connect(bootstrap) as peer:
        answer = await peer.call(request)
    other_kind = answer.error_code == KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL
    check(answer.error_code, "it is a group of another kind, and has members" if other_kind else None, group)
    click.echo(f"created {group}, coordinated by broker {answer.controller_id}")


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
    """Delete groups that have no members, with their offsets."""
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
    """Let GROUP go on from another place.

    Also while its members read, which only kafkalite can do: from their
    next heartbeats on they read from there, with nobody restarted.
    """
    async with cluster(bootstrap) as (leaders, groups):
        if (found := await groups.find(group)) is None:
            fail(f"{group}: there is no such group (GROUP_ID_NOT_FOUND); kafkalite group reset makes one")
        owned = [place for member in found.members for place in member.assignment]
        moves = await planned(leaders, groups, group, to, topics, owned)
        moved = Moved(moves, [])
        if not dry_run:
            moved = await (commit_moves if found.state == EMPTY else rewind_living)(groups, group, moves)
    print_moves(moved, as_json, dry_run)


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
    """Set where GROUP begins, while it has no members.

    A group that is not there yet is made.
    """
    async with cluster(bootstrap) as (leaders, groups):
        await must_rest(groups, group)
        moves = await planned(leaders, groups, group, to, topics)
        moved = Moved(moves, []) if dry_run else await commit_moves(groups, group, moves)
    print_moves(moved, as_json, dry_run)
