"""Prints the records of topics as lines, as JSON or in a format: `kafkalite consume`.

Without a group it reads partitions from a position; with one it is a member of the group and commits what it has
printed. By default only committed records are printed; those of aborted transactions are skipped, as in every client.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import click
from kafkalite_sdk import Admin, Consumer, TopicPartition
from kafkalite_sdk.admin.topic_types import TopicDescription

from kafkalite.cli.client_options import (
    BASE64_HELP,
    POSITIONS,
    Cluster,
    cluster_options,
    command_runner,
    explain_error,
    fail_for,
)
from kafkalite.cli.completion import complete_groups, complete_topics
from kafkalite.cli.connection import connect, open_client
from kafkalite.cli.failure import fail
from kafkalite.cli.positions import COMMITTED, EARLIEST, LATEST, UNCOMMITTED, Position, offsets, parse_to
from kafkalite.cli.records.open_transactions import report_open_transactions
from kafkalite.cli.records.output import FORMAT_HELP, Output, new_output, write, write_in_thread
from kafkalite.cli.records.partition_reader import PartitionReader, check_leaders, partitions_of, without_leader

BYTES_MAX = 8 * 1024 * 1024
PARTITION_BYTES = 4 * 1024 * 1024
FETCH_SETTINGS: dict[str, Any] = {"fetch_max_bytes": BYTES_MAX, "max_partition_fetch_bytes": PARTITION_BYTES}
ANSWER_S = 15.0  # for the answer of each leader, before the records of the others are printed


class Selection(NamedTuple):
    """The records to print.

    Attributes:
        topics: names.
        pattern: RE2 text of names, instead of topics.
        partition: the only partition to read, None = all.
        position: where to start; None = new records only.
        limit: the most records, None = all.
        follow: wait for new records.
        isolation: level of isolation.
    """

    topics: tuple[str, ...]
    pattern: str | None
    partition: int | None
    position: Position | None
    limit: int | None
    follow: bool
    isolation: str


@click.command(
    epilog="""\b
Examples:
  kafkalite consume orders                            wait for new records, until Ctrl-C
  kafkalite consume orders --from-beginning           print the existing records
  kafkalite consume orders --from-beginning --follow  print the existing records and wait for new ones
  kafkalite consume orders --from-beginning -n 10 --json
  kafkalite consume orders --partition 0 --offset 42 -n 1
  kafkalite consume orders --offset -5                the last five records of each partition
  kafkalite consume orders --offset 2013-07-01T12:00:00Z --timestamps --headers
  kafkalite consume orders payments --from-beginning --format '%t %p %o %k: %s\\n'
  kafkalite consume --pattern 'orders-.*' --group billing
  kafkalite consume orders --group billing -e         from the committed offsets to the end of the log

If the broker restarts, the command retries for up to 120 s and continues after the last printed record. With --group
it reads as a member of the group from the committed offsets, and commits what it has printed every 5 s, at the end, and
at Ctrl-C, when it leaves the group. A second Ctrl-C ends the command at once."""
)
@click.argument("topics", nargs=-1, metavar="TOPIC...", shell_complete=complete_topics)
@click.option(
    "--pattern",
    metavar="REGEX",
    help="Read the topics whose names match (RE2), instead of TOPIC; without --group those that exist at the start.",
)
@click.option(
    "-e",
    "--from-beginning",
    is_flag=True,
    help="Start at the earliest record, with --group at the committed offset, and end at the end of the log. Default: "
    "only new records.",
)
@click.option("-o", "--offset", metavar="POSITION", help=f"Start of each partition: {POSITIONS}.")
@click.option("-p", "--partition", type=int, help="Read only this partition.")
@click.option("-n", "--count", type=click.IntRange(1, 2**63 - 1), help="Stop after N records.", metavar="N")
@click.option("-f", "--follow", is_flag=True, help="Wait for new records, also in new partitions.")
@click.option(
    "-g",
    "--group",
    metavar="GROUP",
    shell_complete=complete_groups,
    help="Read as a member of this group, from its committed offsets.",
)
@click.option(
    "--isolation",
    type=click.Choice((COMMITTED, UNCOMMITTED)),
    default=COMMITTED,
    show_default=True,
    help="Whether records of open and aborted transactions are printed.",
)
@click.option("-k", "--key-separator", metavar="TEXT", help="Print the key, TEXT and the value of each record.")
@click.option("--timestamps", is_flag=True, help="Print the time of each record before it, and a tab.")
@click.option("--headers", is_flag=True, help="Print the headers of each record before it, and a tab.")
@click.option("--format", "text", metavar="FORMAT", help=FORMAT_HELP)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help=f"Print one object per record: topic, partition, offset, timestamp, key, value, headers. {BASE64_HELP}",
)
@cluster_options
def command(
    cluster: Cluster,
    group: str | None,
    key_separator: str | None,
    timestamps: bool,
    headers: bool,
    text: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the records of TOPIC: the existing ones with --from-beginning or --offset, else only new ones."""
    selection = select_records(options)
    check_formats(as_json=as_json, text=text, key_separator=key_separator, lines=timestamps or headers)
    output = new_output(
        write if group is None else write_in_thread,
        as_json=as_json,
        text=text,
        key_separator=key_separator,
        timestamps=timestamps,
        headers=headers,
    )
    if group is None:
        consume(cluster, selection, output)
        return
    if options["offset"] is not None or selection.partition is not None:
        fail("--group reads from the committed offsets: leave out --offset and --partition")
    consume_in_group(cluster, selection, output, group)


def select_records(options: dict[str, Any]) -> Selection:
    """Return the records that the options select; ends the command if options exclude each other."""
    topics, offset, from_beginning = options["topics"], options["offset"], options["from_beginning"]
    if not topics and options["pattern"] is None:
        raise click.UsageError("Missing argument 'TOPIC'.", click.get_current_context())
    if topics and options["pattern"] is not None:
        fail("give TOPIC or --pattern, not both")
    if options["pattern"] is not None:
        check_regex(options["pattern"])
    if offset is not None and from_beginning:
        fail("--offset and --from-beginning exclude each other: give one of them")
    position = Position(None, EARLIEST) if from_beginning else None if offset is None else parse_to(offset)
    if position is not None and position.offset is not None and options["partition"] is None:
        fail("--offset is an offset of one partition: add --partition")
    return Selection(
        topics,
        options["pattern"],
        options["partition"],
        position,
        options["count"],
        options["follow"] or position is None,
        options["isolation"],
    )


def check_regex(pattern: str) -> None:
    """End the command if RE2 rejects a pattern."""
    from kafkalite_sdk.membership.patterns import check_pattern

    try:
        check_pattern(pattern)
    except ValueError as error:
        fail(f"--{error}")  # it begins with "pattern"


def check_formats(*, as_json: bool, text: str | None, key_separator: str | None, lines: bool) -> None:
    """End the command if options of the output exclude each other."""
    if as_json and key_separator is not None:
        fail("--key-separator and --json exclude each other: a JSON object has its own key")
    if as_json and (text is not None or lines):
        fail("--json excludes --format, --timestamps and --headers: a JSON object has all of them")
    if text is not None and (key_separator is not None or lines):
        fail("--format excludes --key-separator, --timestamps and --headers: use %k, %T and %h")


@command_runner
async def consume(cluster: Cluster, selection: Selection, output: Output) -> None:
    """Read partitions without a group."""
    settings = {"auto_offset_reset": "none", "isolation_level": selection.isolation, **FETCH_SETTINGS}
    async with connect(cluster) as admin:
        topics = await chosen_topics(admin, selection)
        chosen, missing = chosen_partitions(topics, selection.partition), dict[TopicPartition, str]()
        if selection.follow:
            check_leaders(topics, chosen)
            ends = await offsets(admin, chosen, LATEST, selection.isolation)
        else:
            ends, missing = await available_ends(admin, topics, chosen, selection.isolation)
            chosen = list(ends)
        starts = await first_offsets(admin, selection, chosen, ends)
        report_end(selection, starts, ends)
        async with open_client(cluster, Consumer, **settings) as consumer:
            by_name = {each.name: each for each in topics}
            reader = PartitionReader(admin, consumer, output, by_name, selection.partition, selection.limit)
            await reader.run(starts, ends, follow=selection.follow)
        if selection.isolation == COMMITTED and selection.limit is None and not selection.follow:
            await report_open_transactions(admin, ends)
    if missing:
        fail(f"not all records are printed; {'; '.join(missing.values())}")


async def chosen_topics(admin: Admin, selection: Selection) -> Sequence[TopicDescription]:
    """The topics to read; ends the command if one does not exist, or none matches."""
    if selection.pattern is None:
        described = await admin.topics.describe(*selection.topics)
        fail_for(described.errors)
        return list(described.values())
    from kafkalite_sdk.membership.patterns import matching

    listed = await admin.topics.list(internal=False)
    names = matching(selection.pattern, None, [each.name for each in listed])
    found = [each for each in listed if each.name in names]
    if not found:
        fail(f"no topic matches {selection.pattern!r}; `kafkalite topic list` lists the topics")
    return found


def chosen_partitions(topics: Iterable[TopicDescription], partition: int | None) -> list[TopicPartition]:
    """The partitions to read; ends the command if one does not exist."""
    if partition is None:
        return partitions_of(topics)
    for topic in topics:
        if not 0 <= partition < len(topic.partitions):
            fail(f"{topic.name} has partitions 0 to {len(topic.partitions) - 1}, not {partition}")
    return [TopicPartition(topic.name, partition) for topic in topics]


async def available_ends(
    admin: Admin, topics: Sequence[TopicDescription], chosen: Sequence[TopicPartition], isolation: str
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
    """Return the log ends of partitions, and of the others why their brokers do not answer; ends the command if all are
    such.
    """
    missing = {
        TopicPartition(topic.name, each.partition): without_leader(topic.name, each)
        for topic in topics
        for each in topic.partitions
        if each.leader is None
    }
    missing = {each: missing[each] for each in chosen if each in missing}
    asked = dict.fromkeys((each for each in chosen if each not in missing), LATEST)
    outcomes = await admin.partitions.offsets(asked, isolation_level=isolation, timeout=ANSWER_S)
    missing |= {each: explain_error(error, str(each)) for each, error in outcomes.errors.items()}
    if len(missing) == len(chosen):
        fail("; ".join(missing.values()))
    return {each: found.offset for each, found in outcomes.results.items()}, missing


async def first_offsets(
    admin: Admin, selection: Selection, chosen: Sequence[TopicPartition], ends: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offset at which each partition begins; ends the command if a given one is outside the log."""
    position = selection.position
    if position is None:
        return ends
    if position == Position(None, EARLIEST):
        return await offsets(admin, chosen, EARLIEST)
    if position.offset is None:
        return await position.found(admin, chosen)
    starts = await offsets(admin, chosen, EARLIEST)
    for each in chosen:
        check_offset(each, position.offset, starts[each], ends[each])
    return dict.fromkeys(chosen, position.offset)


def check_offset(partition: TopicPartition, offset: int, start: int, end: int) -> None:
    """End the command if an offset is outside the log of the partition, whose next offset is `end`.

    Other consumers apply auto.offset.reset and read from another offset: a script would not notice.
    """
    if start <= offset <= end:
        return
    first, new = f"--offset {start} starts at the first record", f"--offset {end} --follow waits for new records"
    step = first if offset < start < end else new
    fail(f"{partition}: offset {offset} is outside the log (log start offset {start}, log end offset {end}); {step}")


def report_end(selection: Selection, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> None:
    """Say what the command waits for, or that it has nothing to print."""
    if selection.position is None:
        if sys.stderr.isatty():
            click.echo("waiting for new records; Ctrl-C stops, --from-beginning prints existing records", err=True)
    elif selection.position.offset is not None and not selection.follow:
        for each in (each for each, offset in starts.items() if offset == ends[each]):
            click.echo(f"{each} ends at offset {ends[each]}: --follow waits for new records", err=True)


@command_runner
async def consume_in_group(cluster: Cluster, selection: Selection, output: Output, group: str) -> None:
    """Read as a member of a group."""
    from kafkalite.cli.records.group_reader import read_group

    if selection.pattern is None:
        async with connect(cluster) as admin:
            await chosen_topics(admin, selection)
    reset = "latest" if selection.position is None else "earliest"
    settings = {"group": group, "auto_offset_reset": reset, "isolation_level": selection.isolation, **FETCH_SETTINGS}
    async with open_client(cluster, Consumer, **settings) as consumer:
        consumer.subscribe(selection.topics, pattern=selection.pattern)
        await read_group(consumer, output, selection.limit, follow=selection.follow)
