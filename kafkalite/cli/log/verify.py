"""`kafkalite log verify`: checks the files of a stopped broker. The exit code is 1 if there is a violation."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from kafkalite._speedups.storage.file import Disk
from kafkalite.cli.failure import fail
from kafkalite.cli.log.dirs import (
    Target,
    bytes_of_logs,
    is_log_directory,
    lock_directory,
    progress,
    target_of,
    warnings_of,
)
from kafkalite.server.startup.inventory import compacted_topics
from kafkalite.storage import names
from kafkalite.storage.verify.verify import verify_directory
from kafkalite.storage.verify.verify_segments import NO_GAPS, Violation

FOUND_WRONG = 1


@click.command(
    short_help="Verify the files of a stopped broker.",
    epilog="""\b
Examples:
  kafkalite log verify data                 every partition of a stopped broker
  kafkalite log verify data/orders-0        one partition
  kafkalite log verify data --json | jq .number

Each violation has the number of its invariant in kafkalite/storage/README.md. After a crash, the part of a log above
the recovery point may be torn: `log recover --dry-run` lists the repairs of the next start.""",
)
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@click.option("--compacted", is_flag=True, help="The topics are compacted: accept gaps between offsets.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
def verify(path: Path, compacted: bool, as_json: bool) -> None:
    """Verify every invariant of the log directory DIR, or of one partition in it, while no broker runs."""
    disk = Disk()
    try:
        target = target_of(path)
        with lock_directory(target.log_dir), progress(bytes_of_logs(target), "checking", beside=True) as advance:
            log_dir = str(target.log_dir)
            topics = compacted_topics(disk, log_dir)
            found = verify_directory(
                disk, log_dir, only=target.only, compacted=compacted, compacted_topics=topics, advance=advance
            )
            warnings = [] if target.only is not None else warnings_of(disk, target.log_dir)
    except OSError as error:
        fail(f"{error.filename or path}: {error.strerror or error}")
    for violation in found:
        click.echo(json.dumps(violation._asdict(), ensure_ascii=False) if as_json else violation_text(violation))
    for warning in warnings:
        click.echo(f"kafkalite: warning: {warning}", err=True)
    if found:
        count = f"{len(found):,} violation{'' if len(found) == 1 else 's'}"
        click.echo(f"kafkalite: {count}, the first: {violation_text(found[0])}{gap_hint(target, found)}", err=True)
        sys.exit(FOUND_WRONG)
    if not as_json:
        click.echo(f"every invariant holds in {extent(target)}")


def gap_hint(target: Target, found: Sequence[Violation]) -> str:
    """A hint at --compacted if gaps are reported in partitions outside a log directory.

    Outside a log directory it is unknown whether a topic is compacted.
    """
    outside = not is_log_directory(target.log_dir)
    gaps = outside and any(violation.number == NO_GAPS for violation in found)
    return "; if the topic is compacted, gaps are no defect: add --compacted" if gaps else ""


def extent(target: Target) -> str:
    """The checked files: `3 partitions, 4 segments, 1,200 bytes`."""
    logs = list(target.log_dir.glob(f"{target.only or '*'}/*{names.LOG}"))
    logs = [log for log in logs if names.parse_directory_name(log.parent.name) is not None]
    partitions, size = len({log.parent for log in logs}), sum(log.stat().st_size for log in logs)
    counts = ((partitions, "partition"), (len(logs), "segment"), (size, "byte"))
    return ", ".join(f"{count:,} {noun}{'' if count == 1 else 's'}" for count, noun in counts)


def violation_text(violation: Violation) -> str:
    """One line: number, path, position, reason."""
    location = violation.path if violation.position < 0 else f"{violation.path} at byte {violation.position}"
    return f"invariant {violation.number}: {location}: {violation.text}"
