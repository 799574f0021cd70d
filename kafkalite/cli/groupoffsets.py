"""`kafkalite group offsets`: export and import of committed offsets, as JSON lines or as CSV.

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

from kafkalite.cli.client import bootstrap_option, command_runner, print_rows
from kafkalite.cli.failure import fail
from kafkalite.cli.groupmoves import COLUMNS, DRY_RUN, commit_moves, moves_to, must_rest, shortened, tried_moves
from kafkalite.cli.groups import Committed, Groups
from kafkalite.cli.leaders import Leaders
from kafkalite.cli.places import OFFSET_MAX
from kafkalite.model import TopicPartition

PARTITION_MAX = 2**31 - 1
FIELDS = ("group", "topic", "partition", "offset")
_WHOLE = re.compile(r"\s*(-?[0-9]{1,19})\s*", re.ASCII)

Wanted = dict[str, dict[TopicPartition, Committed]]


class Line(NamedTuple):
    """One committed offset; the group is None where a line does not say it."""

    group: str | None
    place: TopicPartition
    committed: Committed


@click.group(
    epilog="""\b
Examples:
  kafkalite group offsets export billing > billing.jsonl
  kafkalite group offsets export billing --csv > billing.csv
  kafkalite group offsets import billing.jsonl --dry-run
  kafkalite group offsets import billing.csv --group billing-2
"""
)
def offsets() -> None:
    """Save what groups have committed, and bring it back."""


@offsets.command(
    epilog="""\b
Examples:
  kafkalite group offsets export billing > billing.jsonl
  kafkalite group offsets export billing --csv > billing.csv
"""
)
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@click.option("--csv", "as_csv", is_flag=True, help="CSV as kafka-consumer-groups writes and reads it.")
@bootstrap_option
@command_runner
async def export(names: tuple[str, ...], as_csv: bool, bootstrap: str) -> None:
    """Print the committed offsets of groups, one line each."""
    async with Leaders(bootstrap) as leaders:
        groups = Groups(leaders)
        found = {name: await groups.committed(name) for name in names}
        for name in (name for name, offsets_of in found.items() if not offsets_of):
            await groups.described(name)  # it may be there and have committed nothing
            click.echo(f"{name} has committed nothing", err=True)
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
@click.option("-g", "--group", help="Take every line for this group, whatever group it names.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@bootstrap_option
@command_runner
async def import_(source: TextIO, group: str | None, dry_run: bool, bootstrap: str) -> None:
    """Commit the offsets that a file holds.

    From FILE or standard input, for groups without members.
    """
    wanted = by_group(read_lines(source), group)
    async with Leaders(bootstrap) as leaders:
        groups = Groups(leaders)
        for name in wanted:
            await must_rest(groups, name)
        rows: list[tuple[object, ...]] = []
        refused: list[str] = []
        for name, offsets_of in wanted.items():
            moves = moves_to(offsets_of, await groups.committed(name))
            moved = await (tried_moves(leaders, name, moves) if dry_run else commit_moves(groups, name, moves))
            rows += [(name, *move.place, move.before, move.after.offset) for move in moved.moves]
            refused += moved.refused
    if rows:
        print_rows(("group", *COLUMNS), rows, as_json=False)
    if refused:
        fail(shortened(refused))
    if dry_run:
        click.echo(DRY_RUN, err=True)


def json_lines(found: Mapping[str, Mapping[TopicPartition, Committed]]) -> Iterator[str]:
    """An object per offset."""
    for group, offsets_of in found.items():
        for place, committed in offsets_of.items():
            fields = dict(zip(FIELDS, (group, *place, committed.offset), strict=True))
            yield json.dumps({**fields, "metadata": committed.metadata}, ensure_ascii=False)


def csv_lines(found: Mapping[str, Mapping[TopicPartition, Committed]]) -> Iterator[str]:
    """A row per offset; the group stands in front where there are several."""
    for group, offsets_of in found.items():
        for place, committed in offsets_of.items():
            text = io.StringIO()
            row = (*place, committed.offset)
            csv.writer(text, lineterminator="").writerow(row if len(found) == 1 else (group, *row))
            yield text.getvalue()


def read_lines(source: Iterable[str]) -> Iterator[Line]:
    """The offsets in these lines, JSON or CSV; ends the command at one that is neither."""
    try:
        for number, text in enumerate(source, 1):
            if text.strip():
                yield read_line(number, text)
    except UnicodeDecodeError as error:  # text is decoded by the buffer, so nobody knows which line it is
        fail(f"what is imported is no text in UTF-8: {error.reason}")


def read_line(number: int, text: str) -> Line:
    """One line; ends the command if it is neither JSON nor CSV."""
    try:
        return json_line(text) if text.lstrip().startswith("{") else csv_line(text)
    except (ValueError, RecursionError, csv.Error) as error:
        fail(f"line {number} is no committed offset: {error}")


def json_line(text: str) -> Line:
    """Raises ValueError."""
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error.msg} at character {error.pos + 1}") from error
    if missing := {"topic", "partition", "offset"} - fields.keys():
        raise ValueError(f"it has no {', '.join(sorted(missing))}")
    group, topic, partition, offset = (fields.get(name) for name in FIELDS)
    return checked(group, topic, partition, offset, fields.get("metadata", ""))


def csv_line(text: str) -> Line:
    """Raises ValueError."""
    (cells,) = csv.reader([text])
    if not 3 <= len(cells) <= 4:
        raise ValueError(f"it has {len(cells)} column(s), not topic,partition,offset or group,topic,partition,offset")
    *group, topic, partition, offset = cells
    return checked(group[0] if group else None, topic, number(partition), number(offset), "")


def number(text: str) -> int | str:
    """The number that is written here, or the text where it is none, for `checked` to refuse."""
    found = _WHOLE.fullmatch(text)
    return int(found[1]) if found else text


def checked(group: Any, topic: Any, partition: Any, offset: Any, metadata: Any) -> Line:
    """Raises ValueError for what can be no committed offset."""
    if not isinstance(topic, str) or not topic or not isinstance(group, str | None) or not isinstance(metadata, str):
        raise ValueError("group, topic and metadata are texts")
    if type(partition) is not int or not 0 <= partition <= PARTITION_MAX:
        raise ValueError(f"its partition is {partition!r}, not a number from 0 to {PARTITION_MAX}")
    if type(offset) is not int or not 0 <= offset <= OFFSET_MAX:
        raise ValueError(f"its offset is {offset!r}, not a number from 0 to {OFFSET_MAX}")
    return Line(group, TopicPartition(topic, partition), Committed(offset, metadata))


def by_group(lines: Iterable[Line], group: str | None) -> Wanted:
    """What each group is to have; the last line for a partition holds. Ends the command where a group is missing."""
    wanted: Wanted = {}
    for line in lines:
        name = group or line.group
        if name is None:
            fail("the lines do not say which group: add --group")
        wanted.setdefault(name, {})[line.place] = line.committed
    if not wanted:
        fail("there is nothing to import: no line holds an offset")
    return wanted
