"""`kafkalite group offsets`: export, import and deletion of committed offsets, as JSON lines or as CSV.

CSV is that of kafka-consumer-groups: topic,partition,offset for one group, the group before them for several. JSON
lines carry the metadata too. What is imported may be either; an object begins with a brace.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TextIO

import click
from kafkalite_sdk.admin import Committed

from kafkalite.cli.client_options import Cluster, cluster_options, command_runner, fail_for, json_option, print_rows
from kafkalite.cli.completion import complete_groups, complete_topics
from kafkalite.cli.connection import connect
from kafkalite.cli.failure import fail
from kafkalite.cli.group.descriptions import describe_group
from kafkalite.cli.group.reset_offsets import (
    COLUMNS,
    DRY_RUN,
    commit_moves,
    moves_to,
    read_committed,
    require_empty,
    shorten_errors,
    tried_moves,
)
from kafkalite.cli.positions import OFFSET_MAX, parse_topics
from kafkalite.model import TopicPartition

PARTITION_MAX = 2**31 - 1
DELETED_COLUMNS = ("GROUP", "TOPIC", "PARTITION", "OFFSET")
FIELDS = ("group", "topic", "partition", "offset")
_WHOLE = re.compile(r"\s*(-?[0-9]{1,19})\s*", re.ASCII)

Wanted = dict[str, dict[TopicPartition, Committed]]


class OffsetLine(NamedTuple):
    """One committed offset; the group is None if the line does not contain it."""

    group: str | None
    topic_partition: TopicPartition
    committed: Committed


@click.group(
    epilog="""\b
Examples:
  kafkalite group offsets export billing > billing.jsonl
  kafkalite group offsets export billing --csv > billing.csv
  kafkalite group offsets import billing.jsonl --dry-run
  kafkalite group offsets import billing.csv --group billing-2
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
"""
)
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_groups)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV in the format of kafka-consumer-groups.")
@cluster_options
@command_runner
async def export(names: tuple[str, ...], as_csv: bool, cluster: Cluster) -> None:
    """Print the committed offsets of groups, one line each."""
    async with connect(cluster) as admin:
        found = {name: await read_committed(admin, name) for name in names}
        for name in (name for name, offsets_of in found.items() if not offsets_of):
            await describe_group(admin, name)  # the group may exist without committed offsets
            click.echo(f"{name} has no committed offsets", err=True)
    for line in csv_lines(found) if as_csv else json_lines(found):
        click.echo(line)


@offsets.command(
    name="import",
    epilog="""\b
Examples:
  kafkalite group offsets import billing.jsonl --dry-run
  kafkalite group offsets import billing.csv --group billing-2
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
@cluster_options
@command_runner
async def import_(source: TextIO, group: str | None, dry_run: bool, cluster: Cluster) -> None:
    """Commit the offsets in FILE or standard input.

    The groups must have no members.
    """
    wanted = by_group(read_lines(source), group)
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
    fail_for({f"{group}: {each}": error for each, error in errors.items()})
    if dry_run:
        click.echo(DRY_RUN, err=True)


def is_chosen(topic_partition: TopicPartition, numbers: list[int] | None) -> bool:
    """Whether a partition is one of these numbers, None = all."""
    return numbers is None or topic_partition.partition in numbers


def json_lines(found: Mapping[str, Mapping[TopicPartition, Committed]]) -> Iterator[str]:
    """An object per offset."""
    for group, offsets_of in found.items():
        for topic_partition, each in offsets_of.items():
            fields = dict(zip(FIELDS, (group, *topic_partition, each.offset), strict=True))
            yield json.dumps({**fields, "metadata": each.metadata}, ensure_ascii=False)


def csv_lines(found: Mapping[str, Mapping[TopicPartition, Committed]]) -> Iterator[str]:
    """A row per offset; the first column is the group if there are several."""
    for group, offsets_of in found.items():
        for topic_partition, each in offsets_of.items():
            text = io.StringIO()
            row = (*topic_partition, each.offset)
            csv.writer(text, lineterminator="").writerow(row if len(found) == 1 else (group, *row))
            yield text.getvalue()


def read_lines(source: Iterable[str]) -> Iterator[OffsetLine]:
    """Parse lines of JSON or CSV; ends the command at a line that is neither."""
    try:
        for number, text in enumerate(source, 1):
            if text.strip():
                yield read_line(number, text)
    except UnicodeDecodeError as error:  # the buffer decodes the text: the line number is unknown
        fail(f"the input is not UTF-8 text: {error.reason}")


def read_line(number: int, text: str) -> OffsetLine:
    """Parse one line; ends the command if it is neither JSON nor CSV."""
    try:
        return json_line(text) if text.lstrip().startswith("{") else csv_line(text)
    except (ValueError, RecursionError, csv.Error) as error:
        fail(f"line {number} is not a committed offset: {error}")


def json_line(text: str) -> OffsetLine:
    """Raises ValueError."""
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON: {error.msg} at character {error.pos + 1}") from error
    if missing := {"topic", "partition", "offset"} - fields.keys():
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    group, topic, partition, offset = (fields.get(name) for name in FIELDS)
    return validate_line(group, topic, partition, offset, fields.get("metadata", ""))


def csv_line(text: str) -> OffsetLine:
    """Raises ValueError."""
    (cells,) = csv.reader([text])
    if not 3 <= len(cells) <= 4:
        raise ValueError(
            f"it has {len(cells)} column(s), expected topic,partition,offset or group,topic,partition,offset"
        )
    *group, topic, partition, offset = cells
    return validate_line(group[0] if group else None, topic, number(partition), number(offset), "")


def number(text: str) -> int | str:
    """The number in a text, or the text itself if it is not a number, which `validate_line` rejects."""
    found = _WHOLE.fullmatch(text)
    return int(found[1]) if found else text


def validate_line(group: Any, topic: Any, partition: Any, offset: Any, metadata: Any) -> OffsetLine:
    """Return a valid committed offset, else raise ValueError.

    Arguments:
        group: the group id; None = the line names none.
        topic, partition: of the offset.
        offset: of the next record to read, 0 or more.
        metadata: text of the commit.
    """
    if not isinstance(topic, str) or not topic or not isinstance(group, str | None) or not isinstance(metadata, str):
        raise ValueError("group, topic and metadata must be strings")
    if type(partition) is not int or not 0 <= partition <= PARTITION_MAX:
        raise ValueError(f"its partition is {partition!r}, expected an integer from 0 to {PARTITION_MAX}")
    if type(offset) is not int or not 0 <= offset <= OFFSET_MAX:
        raise ValueError(f"its offset is {offset!r}, expected an integer from 0 to {OFFSET_MAX}")
    return OffsetLine(group, TopicPartition(topic, partition), Committed(offset, metadata))


def by_group(lines: Iterable[OffsetLine], group: str | None) -> Wanted:
    """The new offsets of each group; the last line for a partition is valid. Ends the command if a group is missing."""
    wanted: Wanted = {}
    for line in lines:
        name = group or line.group
        if name is None:
            fail("the lines do not name a group: add --group")
        wanted.setdefault(name, {})[line.topic_partition] = line.committed
    if not wanted:
        fail("nothing to import: no line has an offset")
    return wanted
