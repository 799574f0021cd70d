"""`kafkalite group offsets`: export, import and deletion of committed offsets, in the formats of `offset_lines`."""

from typing import TextIO

import click

from kafkalite.cli.client_options import (
    Cluster,
    cluster_options,
    command_runner,
    fail_for,
    json_option,
    print_rows,
    shorten_errors,
)
from kafkalite.cli.completion import complete_groups, complete_topics
from kafkalite.cli.connection import connect
from kafkalite.cli.failure import PartitionSubject, fail
from kafkalite.cli.group.descriptions import describe_group
from kafkalite.cli.group.offset_lines import by_group, csv_lines, json_lines, read_lines, znode_lines
from kafkalite.cli.group.reset_offsets import (
    COLUMNS,
    DRY_RUN,
    commit_moves,
    moves_to,
    read_committed,
    require_empty,
    tried_moves,
)
from kafkalite.cli.group.zookeeper.options import Tree, tree_options
from kafkalite.cli.positions import parse_topics
from kafkalite.model import TopicPartition

DELETED_COLUMNS = ("GROUP", "TOPIC", "PARTITION", "OFFSET")


@click.group(
    epilog="""\b
Examples:
  kafkalite group offsets export billing > billing.jsonl
  kafkalite group offsets export billing --csv > billing.csv
  kafkalite group offsets import billing.jsonl --dry-run
  kafkalite group offsets import billing.csv --group billing-2
  kafkalite group offsets export billing --zookeeper zk1:2181/kafka > billing.txt
  kafkalite group offsets delete billing --topic payments
"""
)
def offsets() -> None:
    """Export, import and delete the committed offsets of groups."""


@offsets.command(
    epilog="""\b
Examples:
  kafkalite group offsets export billing > billing.jsonl
  kafkalite group offsets export billing --csv > billing.csv
  kafkalite group offsets export billing --znodes > billing.txt
  kafkalite group offsets export --zookeeper zk1:2181/kafka > all.txt
  kafkalite group offsets export billing --zookeeper zk1:2181/kafka --csv > billing.csv
"""
)
@click.argument("names", nargs=-1, metavar="GROUP...", shell_complete=complete_groups)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV in the format of kafka-consumer-groups.")
@click.option("--znodes", "as_znodes", is_flag=True, help="Print the lines of ExportZkOffsets, as with --zookeeper.")
@tree_options()
@cluster_options
@command_runner
async def export(names: tuple[str, ...], as_csv: bool, as_znodes: bool, tree: Tree | None, cluster: Cluster) -> None:
    """Print the committed offsets of groups, one line each.

    With --zookeeper the lines are those of ExportZkOffsets, and without GROUP of all groups.
    """
    if as_csv and as_znodes:
        fail("give --csv or --znodes, not both")
    if tree is not None:
        from kafkalite.cli.group.zookeeper.changes import export_offsets

        await export_offsets(names, tree, as_csv)
        return
    if not names:
        fail("name the groups to export; `kafkalite group list` lists them")
    async with connect(cluster) as admin:
        found = {name: await read_committed(admin, name) for name in names}
        for name in (name for name, offsets_of in found.items() if not offsets_of):
            await describe_group(admin, name)  # the group may exist without committed offsets
            click.echo(f"{name} has no committed offsets", err=True)
    for line in (csv_lines if as_csv else znode_lines if as_znodes else json_lines)(found):
        click.echo(line)


@offsets.command(
    name="import",
    epilog="""\b
Examples:
  kafkalite group offsets import billing.jsonl --dry-run
  kafkalite group offsets import billing.csv --group billing-2
  kafkalite group offsets import billing.txt --zookeeper zk1:2181/kafka
""",
)
@click.argument("source", type=click.File("r", encoding="utf-8-sig"), default="-", metavar="[FILE]")
@click.option(
    "-g",
    "--group",
    shell_complete=complete_groups,
    help="Commit every line for this group, also lines that name another one.",
)
@click.option("--dry-run", is_flag=True, help="Print the changes without making them.")
@tree_options()
@cluster_options
@command_runner
async def import_(source: TextIO, group: str | None, dry_run: bool, tree: Tree | None, cluster: Cluster) -> None:
    """Commit the offsets in FILE or standard input.

    Lines are JSON, CSV or those of ExportZkOffsets. Nothing is written unless all lines are valid. The groups must have
    no members; with --zookeeper, no registered consumers.
    """
    wanted = by_group(read_lines(source), group)
    if tree is not None:
        from kafkalite.cli.group.zookeeper.changes import import_offsets

        await import_offsets(wanted, tree, dry_run)
        return
    async with connect(cluster) as admin:
        for name in wanted:
            await require_empty(admin, name)
        rows: list[tuple[object, ...]] = []
        refused: list[str] = []
        for name, offsets_of in wanted.items():
            moves = moves_to(offsets_of, await read_committed(admin, name))
            moved = await (tried_moves if dry_run else commit_moves)(admin, name, moves)
            rows += [(name, *move.topic_partition, move.before, move.after.offset) for move in moved.moves]
            refused += moved.refused
    if rows:
        print_rows(COLUMNS, rows, as_json=False)
    if refused:
        fail(shorten_errors(refused))
    if dry_run:
        click.echo(DRY_RUN, err=True)


@offsets.command(
    epilog="""\b
Examples:
  kafkalite group offsets delete billing --topic payments --dry-run
  kafkalite group offsets delete billing --topic orders:0,2
"""
)
@click.argument("group", shell_complete=complete_groups)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="TOPIC[:P,P...]",
    shell_complete=complete_topics,
    help="A topic, or some of its partitions; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Print the offsets without deleting them.")
@cluster_options
@json_option
@command_runner
async def delete(group: str, topics: tuple[str, ...], dry_run: bool, cluster: Cluster, as_json: bool) -> None:
    """Delete committed offsets of GROUP, of topics that no member reads.

    A group without offsets and members is deleted, too.
    """
    wanted = parse_topics(topics)
    async with connect(cluster) as admin:
        before = await read_committed(admin, group)
        if not before:
            await describe_group(admin, group)
        chosen = [each for each in before if each.topic in wanted and is_chosen(each, wanted[each.topic])]
        if not chosen:
            fail(f"{group} has no committed offsets of {', '.join(topics)}")
        deleted, errors = chosen, {}
        if not dry_run:
            outcomes = await admin.group_offsets.delete(group, chosen)
            deleted, errors = list(outcomes.results), outcomes.errors
    if deleted:
        print_rows(DELETED_COLUMNS, [(group, *each, before[each].offset) for each in deleted], as_json)
    fail_for({PartitionSubject.of(each, group): error for each, error in errors.items()})
    if dry_run:
        click.echo(DRY_RUN, err=True)


def is_chosen(topic_partition: TopicPartition, numbers: list[int] | None) -> bool:
    """Whether a partition is one of these numbers, None = all."""
    return numbers is None or topic_partition.partition in numbers
