"""`kafkalite log`: commands on the files of partitions; here `dump`, which shows their contents.

The exit code is 1 if a file is damaged.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import Any

import click

from kafkalite._speedups.storage.file import Disk
from kafkalite.cli.failure import fail
from kafkalite.cli.log.adopt import adopt
from kafkalite.cli.log.dirs import NOT_A_LOG_DIRECTORY, is_log_directory, progress
from kafkalite.cli.log.files import (
    BatchPositions,
    BatchSeen,
    Defect,
    EntrySeen,
    Event,
    FileSeen,
    LogReader,
    RecordSeen,
)
from kafkalite.cli.log.recover import recover
from kafkalite.cli.log.small_files import reader_of
from kafkalite.cli.log.stray import stray
from kafkalite.cli.log.truncate import truncate
from kafkalite.cli.log.verify import verify
from kafkalite.cli.records.lines import to_text
from kafkalite.cli.times import time_text
from kafkalite.model import TopicPartition
from kafkalite.records import BatchLocation
from kafkalite.server.startup.inventory import compacted_topics
from kafkalite.storage import checkpoints, names

FOUND_WRONG = 1
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FLAGS = ((0x08, "append-time"), (0x10, "transactional"), (0x20, "control"), (0x40, "delete-horizon"))
GAP_HINT = "; if the topic is compacted, gaps are no defect: add --compacted"
COMPACTED_TOPICS = ("__consumer_offsets", "__transaction_state")
SINGULAR = {"files": "file", "batches": "batch", "records": "record", "entries": "entry"}
HEAD = ("position", "offsets", "records", "bytes", "codec", "max timestamp", "epoch", "producer", "flags")
ROW = "  {:>10}  {:<21}  {:>7}  {:>8}  {:<6}  {:<24}  {:>5}  {:<14}  {}"


@click.group(
    epilog="""\b
Examples:
  kafkalite log dump data/orders-0
  kafkalite log dump data --summary
  kafkalite log dump data/orders-0/00000000000000000000.log --records
  kafkalite log verify data
  kafkalite log recover data --dry-run
  kafkalite log adopt /var/lib/kafka --data data
  kafkalite log stray data
  kafkalite log truncate data/orders-0
"""
)
def command() -> None:
    """Inspect, verify and repair the files of partitions, while no broker uses them."""


command.add_command(verify)
command.add_command(recover)
command.add_command(adopt)
command.add_command(stray)
command.add_command(truncate)


@command.command(
    short_help="Print the contents of the files and report defects.",
    epilog="""\b
Examples:
  kafkalite log dump data/orders-0                                     one partition
  kafkalite log dump data --summary                                    the defects of all partitions
  kafkalite log dump data/orders-0/00000000000000000000.log --records
  kafkalite log dump data/orders-0 --json | jq 'select(.type == "wrong")'

The files are only read. While a broker writes to them, an unfinished batch is reported as truncated.""",
)
@click.argument("path", type=click.Path(exists=True, path_type=Path), metavar="DIR|FILE")
@click.option("-r", "--records", is_flag=True, help="Print every record.")
@click.option("-s", "--summary", is_flag=True, help="Print one line per file, and the defects.")
@click.option("--compacted", is_flag=True, help="The topic is compacted: gaps between offsets are no defect.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
def dump(path: Path, records: bool, summary: bool, compacted: bool, as_json: bool) -> None:
    """Print the contents and the defects of FILE, or of the files in DIR (of a partition or of a broker)."""
    if records and summary:
        fail("--records and --summary exclude each other")
    disk = Disk()
    try:
        groups = list(groups_of(path))
        report = Report(JsonView() if as_json else TextView(summary=summary), summary=summary)
        topics = compacted_topics(disk, str(groups[-1][0].resolve().parent.parent))
        size = sum(file.stat().st_size for group in groups for file in group if file.suffix == names.LOG)
        with progress(size) as advance:
            for group in groups:
                kept = compacted or may_have_gaps(disk, group[0].resolve().parent, topics)
                for event in read_group(disk, group, compacted=kept, with_records=records, advance=advance):
                    report.add(event)
        report.end()
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(f"{error.filename or 'standard output'}: {error.strerror or error}")
    sys.exit(FOUND_WRONG if report.wrong else 0)


def groups_of(path: Path) -> Iterator[list[Path]]:
    """The files of each partition in reading order. Ends the command if there are none."""
    if path.is_file():
        if path.suffix != names.LOG and reader_of(path) is None:
            fail(f"{path}: not a file of a partition, such as 00000000000000000000.log")
        yield [path]
        return
    own = files_of(path)
    below = [files_of(each) for each in sorted(path.iterdir()) if each.is_dir() and not is_deleted(each.name)]
    found = [group for group in (own, *below) if group]
    if not found:
        fail(f"{path}: {NOT_A_LOG_DIRECTORY}")
    yield from found


def files_of(directory: Path) -> list[Path]:
    """The files of a partition by offset, each segment's log before its indexes; [] in any other directory."""
    known = [file for file in directory.iterdir() if file.suffix == names.LOG or reader_of(file) is not None]
    if not any(names.parse_file_name(file.name) or file.name == names.PARTITION_METADATA for file in known):
        return []

    def order(file: Path) -> tuple[bool, str, bool, str]:
        return names.parse_file_name(file.name) is not None, file.stem, file.suffix != names.LOG, file.name

    return sorted(known, key=order)


def is_deleted(name: str) -> bool:
    """Whether a directory is deleted or stray, by its name."""
    return name.endswith((names.DELETE_DIRECTORY, names.STRAY_DIRECTORY))


def read_group(
    disk: Disk, files: list[Path], *, compacted: bool, with_records: bool, advance: Callable[[int], object]
) -> Iterator[Event]:
    """Yield all events of the files of one partition.

    Arguments:
        disk: holds the files.
        files: of one directory, in the order in which they are read.
        compacted: gaps between offsets are no defects.
        with_records: records are decoded, too.
        advance: called with the number of bytes read.
    """
    # Outside a log directory it is unknown whether the topic of a partition is compacted.
    hint = "" if is_log_directory(files[0].resolve().parent.parent) else GAP_HINT
    log = LogReader(disk, compacted=compacted, with_records=with_records, advance=advance, gap_hint=hint)
    logs = {file.stem for file in files if file.suffix == names.LOG}
    for file in files:
        read = reader_of(file)
        if read is None:
            yield from log.read(file)
            continue
        locations: BatchPositions | None = log.locations if file.stem in logs else None
        yield from read(disk, file, locations)
        if file.suffix in (names.INDEX, names.TIME_INDEX) and len(files) > 1 and file.stem not in logs:
            yield Defect(file, None, f"the index has no segment {file.stem}{names.LOG}")


def may_have_gaps(disk: Disk, directory: Path, topics: Set[str]) -> bool:
    """Whether a partition may have been compacted: by its topic, or by the cleaner's checkpoint."""
    named = names.parse_directory_name(directory.name)
    if named is None:
        return False
    return named[0] in COMPACTED_TOPICS or named[0] in topics or was_cleaned(disk, directory, named)


def was_cleaned(disk: Disk, directory: Path, named: TopicPartition) -> bool:
    """Whether the cleaner's checkpoint contains the partition: then gaps between its offsets are not a loss."""
    try:
        return named in checkpoints.read_offsets(disk, str(directory.parent / checkpoints.CLEANER_OFFSETS), empty=True)
    except checkpoints.BadCheckpoint:
        return False


class Report:
    """Counts and prints events; a summary only counts batches, records and entries."""

    def __init__(self, view: "TextView | JsonView", *, summary: bool) -> None:
        self.wrong: list[Defect] = []
        self._view = view
        self._summary = summary
        self._all: Counter[str] = Counter()
        self._file: Counter[str] = Counter()
        self._seen: FileSeen | None = None

    def add(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, FileSeen):
            self._end_of_file()
            self._seen = event
            self._all["files"] += 1
        elif isinstance(event, Defect):
            self.wrong.append(event)
        else:
            self._count(event)
            if self._summary:
                return
        self._view.show(event)

    def end(self) -> None:
        """All files are read: print the summary."""
        self._end_of_file()
        self._view.end(dict(self._all), self.wrong)

    def _count(self, event: Event) -> None:
        if isinstance(event, BatchSeen):
            self._file["batches"] += 1
            self._file["records"] += event.location.records_count
        elif isinstance(event, EntrySeen):
            self._file["entries"] += 1

    def _end_of_file(self) -> None:
        if self._seen is not None:
            self._view.end_of_file(self._seen, dict(self._file))
        self._all.update(self._file)
        self._file.clear()
        self._seen = None


class TextView:
    """Text output."""

    def __init__(self, *, summary: bool) -> None:
        self._headed: Path | None = None
        self._summary = summary
        self._held: list[Defect] = []

    def show(self, event: Event) -> None:
        match event:
            case Defect() if self._summary:
                self._held.append(event)
            case Defect():
                click.secho(f"  DEFECT {defect_text(event)}", fg="red")
            case FileSeen(path, size):
                click.echo(f"{path}  {size:,} bytes", nl=not self._summary)
            case BatchSeen(path, location):
                if self._headed != path:
                    click.echo(ROW.format(*HEAD))
                    self._headed = path
                click.echo(batch_row(location))
            case RecordSeen(_, record):
                key, value = (json.dumps(to_text(data), ensure_ascii=False) for data in (record.key, record.value))
                pairs = [[name, to_text(data)] for name, data in record.headers]
                headers = f"  headers {json.dumps(pairs, ensure_ascii=False)}" if pairs else ""
                click.echo(f"    {record.offset}  {time_text(record.timestamp)}  key {key}  value {value}{headers}")
            case EntrySeen(_, fields):
                click.echo("  " + "  ".join(f"{name.replace('_', ' ')} {value}" for name, value in fields.items()))

    def end_of_file(self, _seen: FileSeen, counts: dict[str, int]) -> None:
        if counts or self._summary:
            click.echo(f"  {count_text(counts)}".rstrip())
        for event in self._held:
            click.secho(f"  DEFECT {defect_text(event)}", fg="red")
        self._held.clear()

    def end(self, counts: dict[str, int], wrong: list[Defect]) -> None:
        click.echo(count_text(counts))
        if not wrong:
            click.echo("no defects")
            return
        click.secho(f"{len(wrong):,} defect{'' if len(wrong) == 1 else 's'}:", fg="red")
        for event in wrong:
            click.echo(f"  {event.path}: {defect_text(event)}")


class JsonView:
    """One object per line; `type` distinguishes them."""

    def show(self, event: Event) -> None:
        self._print(**json_fields(event), file=str(event.path))

    def end_of_file(self, _seen: FileSeen, _counts: dict[str, int]) -> None:
        """Print no totals in JSON."""

    def end(self, counts: dict[str, int], wrong: list[Defect]) -> None:
        self._print(type="summary", **counts, wrong=len(wrong))

    def _print(self, **fields: Any) -> None:
        click.echo(json.dumps(fields, ensure_ascii=False))


def json_fields(event: Event) -> dict[str, Any]:
    """The JSON fields of an event, without its file."""
    match event:
        case FileSeen(_, size):
            return {"type": "file", "bytes": size}
        case BatchSeen(_, location):
            about = location._asdict()
            return {"type": "batch", **about, "codec": codec_name(location), "flags": flags_of(location)}
        case RecordSeen(_, record):
            return {
                "type": "record",
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": to_text(record.key),
                "value": to_text(record.value),
                "headers": [[name, to_text(data)] for name, data in record.headers],
            }
        case EntrySeen(_, fields):
            return {"type": "entry", **fields}
        case Defect(_, position, text):
            return {"type": "wrong", "position": position, "text": text}


def batch_row(location: BatchLocation) -> str:
    """One line of the table."""
    last = location.base_offset + location.last_offset_delta
    producer = (
        "-"
        if location.producer_id < 0
        else f"{location.producer_id}/{location.producer_epoch}/{location.base_sequence}"
    )
    return ROW.format(
        location.position,
        f"{location.base_offset}-{last}",
        location.records_count,
        location.size,
        codec_name(location),
        time_text(location.max_timestamp),
        location.leader_epoch,
        producer,
        " ".join(flags_of(location)),
    ).rstrip()


def count_text(counts: dict[str, int]) -> str:
    """`1 batch, 20 records`."""
    return ", ".join(f"{count:,} {SINGULAR[name] if count == 1 else name}" for name, count in counts.items())


def codec_name(location: BatchLocation) -> str:
    number = location.attributes & 0x07
    return CODECS[number] if number < len(CODECS) else str(number)


def flags_of(location: BatchLocation) -> list[str]:
    return [name for bit, name in FLAGS if location.attributes & bit]


def defect_text(event: Defect) -> str:
    return event.text if event.position is None else f"at byte {event.position}: {event.text}"
