"""`kafkalite log verify`: what cannot be in files that are whole. Exit code 1 where something is."""

import json
import sys
from pathlib import Path

import click

from kafkalite._speedups.file import Disk
from kafkalite.cli.failure import fail
from kafkalite.cli.logdirs import bytes_of_logs, held, progress, target_of
from kafkalite.storage.verify import Violation, verify_directory

FOUND_WRONG = 1


@click.command(
    short_help="Check every invariant of a stopped broker's files.",
    epilog="""\b
Examples:
  kafkalite log verify data                 every partition of a stopped broker
  kafkalite log verify data/orders-0        one partition
  kafkalite log verify data --json | jq .number

The numbers are those of the invariants in kafkalite/storage/README.md. After a crash, what lies above the recovery
point may be torn: `log recover --dry-run` says what a start would mend.""",
)
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@click.option("--compacted", is_flag=True, help="Gaps between offsets are not wrong, even where no cleaner was noted.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
def verify(path: Path, compacted: bool, as_json: bool) -> None:
    """Check every invariant of the log directory DIR, or of one partition in it, while no broker runs."""
    disk = Disk()
    try:
        target = target_of(path)
        with held(disk, target.log_dir), progress(bytes_of_logs(target), "checking", beside=True) as advance:
            found = verify_directory(disk, str(target.log_dir), only=target.only, compacted=compacted, advance=advance)
    except OSError as error:
        fail(f"{error.filename or path}: {error.strerror or error}")
    for violation in found:
        click.echo(json.dumps(violation._asdict(), ensure_ascii=False) if as_json else said(violation))
    if found:
        count = f"{len(found):,} violation{'' if len(found) == 1 else 's'}"
        click.echo(f"kafkalite: {count}, the first: {said(found[0])}", err=True)
        sys.exit(FOUND_WRONG)
    if not as_json:
        click.echo("every invariant holds")


def said(violation: Violation) -> str:
    """One line: number, place, reason."""
    place = violation.path if violation.position < 0 else f"{violation.path} at byte {violation.position}"
    return f"invariant {violation.number}: {place}: {violation.text}"
