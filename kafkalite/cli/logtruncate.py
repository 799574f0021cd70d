"""`kafkalite log truncate`: give up the end of a damaged partition, so that the rest of it is served again."""

from pathlib import Path

import click

from kafkalite._speedups.file import Disk
from kafkalite.cli.failure import fail
from kafkalite.cli.logdirs import Target, held, target_of, unused
from kafkalite.config.topic import TopicConfig
from kafkalite.storage import checkpoints, names
from kafkalite.storage.dryrun import DryDisk
from kafkalite.storage.log import Log
from kafkalite.storage.recovery import OFFSET_MAX, Place, RecoveryError, recover


@click.command(
    short_help="Give up the end of a damaged partition.",
    epilog="""\b
Examples:
  kafkalite log truncate data/orders-0              show up to where its batches are whole; change nothing
  kafkalite log truncate data/orders-0 --to 1234    remove offset 1234 and everything behind it

A partition with damage below its recovery point is offline, and its files are left unchanged. Restore it from a backup
if there is one. The next start begins a new leader epoch, so that consumers notice the truncation.""",
)
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@click.option("--to", type=click.IntRange(0), metavar="OFFSET", help="The new log end offset.")
def truncate(path: Path, to: int | None) -> None:
    """Truncate the partition in directory DIR, while no broker runs."""
    target = target_of(path)
    if target.only is None:
        fail(f"{path}: not the directory of a partition, for example {path}/orders-0")
    try:
        with unused(target.log_dir) if to is None else held(Disk(), target.log_dir):
            run(target, target.only, to)
    except (checkpoints.BadCheckpoint, RecoveryError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or path}: {error.strerror or error}")


def run(target: Target, name: str, to: int | None) -> None:
    """Look on a disk that keeps changes to itself, then truncate. Raises BadCheckpoint, RecoveryError, OSError."""
    key = names.parse_directory_name(name)
    assert key is not None, "checked by target_of"
    found, gaps = loaded(DryDisk(), target, key)
    start, end = found.log_start_offset, found.log_end_offset
    if to is None:
        path = target.log_dir / name
        click.echo(f"{name}: the batches from offset {start} to the log end offset {end} are whole")
        click.echo(f"`kafkalite log truncate {path} --to {end}` keeps them and removes everything behind them")
        for first, begin in gaps:
            click.echo(f"offsets {first} to {begin - 1} are missing among them: a segment was lost, readers skip it")
            click.echo(f"`kafkalite log truncate {path} --to {first}` removes what is behind them, too")
        return
    if not start <= to <= end:
        fail(f"{name}: --to {to} is not between {start} and {end}, the offsets of its whole batches")
    disk = Disk()
    forget_end(disk, target, key, to)
    log, _ = loaded(disk, target, key)
    log.truncate_to(log.expect_cut(to))
    log.close()
    click.echo(f"{name}: the log end offset is {log.log_end_offset}; the next start begins a new leader epoch")


def loaded(disk: Disk, target: Target, key: tuple[str, int]) -> tuple[Log, list[tuple[int, int]]]:
    """The log up to its first damaged batch, whatever the recovery point says, and its `Progress.gaps`.

    Raises BadCheckpoint, RecoveryError, OSError.
    """
    starts = checkpoints.read_offsets(disk, str(target.log_dir / checkpoints.LOG_STARTS))
    directory = str(target.log_dir / names.directory_name(*key))
    place = Place(disk, directory, *key, TopicConfig(), log_start_offset=starts.get(key, 0), keep_gaps=True)
    place.gaps_until = cleaned_until(disk, target, key)
    log, progress = recover(place)
    return log, progress.gaps


def cleaned_until(disk: Disk, target: Target, key: tuple[str, int]) -> int:
    """Up to where the cleaner may have left gaps: anywhere, where its checkpoint does not read. Raises OSError."""
    try:
        cleaned = checkpoints.read_offsets(disk, str(target.log_dir / checkpoints.CLEANER_OFFSETS))
    except checkpoints.BadCheckpoint:
        return OFFSET_MAX
    return cleaned.get(key, 0)


def forget_end(disk: Disk, target: Target, key: tuple[str, int], to: int) -> None:
    """Lower the recovery point before anything is removed, and have the next start check the directory."""
    checkpoints.take_clean_shutdown(disk, str(target.log_dir))
    path = str(target.log_dir / checkpoints.RECOVERY_POINTS)
    points = checkpoints.read_offsets(disk, path)
    if points.get(key, 0) > to:
        checkpoints.write_offsets(disk, path, {**points, key: to})
