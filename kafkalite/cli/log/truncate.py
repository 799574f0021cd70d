"""`kafkalite log truncate`: removes the end of a damaged partition, so that the rest can be served again."""

from pathlib import Path

import click

from kafkalite._speedups.storage.file import Disk
from kafkalite.cli.failure import fail
from kafkalite.cli.log.dirs import Target, held, lock_directory, target_of
from kafkalite.config.topic import TopicConfig
from kafkalite.model import TopicPartition
from kafkalite.storage import checkpoints, names
from kafkalite.storage.log.log import Log
from kafkalite.storage.recovery.dry_run import DryDisk
from kafkalite.storage.recovery.recover_log import (
    OFFSET_MAX,
    PartitionDirectory,
    RecoveryError,
    RecoveryReport,
    recover,
)


@click.command(
    short_help="Drop the damaged end of a partition.",
    epilog="""\b
Examples:
  kafkalite log truncate data/orders-0              print the valid offsets; change nothing
  kafkalite log truncate data/orders-0 --to 1234    delete offset 1234 and all later ones

A partition with damage below its recovery point is offline, and its files are unchanged. If there is a backup, restore
it instead. The next start begins a new leader epoch, so that consumers detect the truncation.""",
)
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@click.option("--to", type=click.IntRange(0), metavar="OFFSET", help="The new log end offset.")
def truncate(path: Path, to: int | None) -> None:
    """Truncate the partition in directory DIR, while no broker runs."""
    target = target_of(path)
    if target.only is None:
        fail(f"{path}: not a partition directory, such as {path}/orders-0")
    try:
        with lock_directory(target.log_dir) if to is None else held(Disk(), target.log_dir):
            run(target, target.only, to)
    except (checkpoints.BadCheckpoint, RecoveryError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or path}: {error.strerror or error}")


def run(target: Target, name: str, to: int | None) -> None:
    """Recover on a disk that keeps changes in memory, then truncate. Raises BadCheckpoint, RecoveryError, OSError."""
    key = names.parse_directory_name(name)
    assert key is not None, "checked by target_of"
    found, progress = load_log(DryDisk(), target, key)
    if to is None:
        show(target.log_dir / name, found, progress)
        return
    end = end_of(name, found, to)
    disk = Disk()
    forget_end(disk, target, key, end)
    log, _ = load_log(disk, target, key)
    log.truncate_to(log.begin_truncation(end))
    log.close()
    click.echo(f"{name}: the log end offset is {log.log_end_offset}; the next start begins a new leader epoch")


def show(path: Path, found: Log, progress: RecoveryReport) -> None:
    """Print the valid offsets of a partition, and the bytes that its truncation would drop."""
    name, start, end = path.name, found.log_start_offset, found.log_end_offset
    click.echo(f"{name}: the batches from offset {start} to the log end offset {end} are valid")
    click.echo(f"`kafkalite log truncate {path} --to {end}` keeps them and deletes the rest of the log")
    if progress.bytes_dropped:
        dropped = f"{progress.bytes_dropped} bytes and {progress.segments_dropped} segments"
        click.echo(f"it would drop {dropped} from offset {end} on; nothing has been changed")
    for first, begin in progress.gaps:
        click.echo(f"offsets {first} to {begin - 1} are missing: a segment was lost; consumers skip them")
        click.echo(f"`kafkalite log truncate {path} --to {first}` also deletes the records after the gap")


def end_of(name: str, log: Log, to: int) -> int:
    """The log end offset after a truncation to offset `to`: the end of the last batch below it.

    Ends the command where `to` is outside the log or inside a batch. Raises OSError.
    """
    start, end = log.begin_truncation(log.log_start_offset), log.log_end_offset  # DeleteRecords may split a batch
    if not start <= to <= end:
        fail(f"{name}: --to {to} is outside the valid batches, from {start} to {end}")
    for segment in reversed([segment for segment in log.segments if segment.base_offset < to]):
        for batch in reversed(segment.batches()):
            first, last = batch.base_offset, batch.last_offset
            if last < to:
                return int(last) + 1
            if first < to:
                choice = f"`--to {first}` drops it, `--to {last + 1}` keeps it"
                fail(f"{name}: --to {to} is inside the batch {first}-{last}; {choice} (nothing has been changed)")
    return int(log.segments[0].base_offset)


def load_log(disk: Disk, target: Target, key: TopicPartition) -> tuple[Log, RecoveryReport]:
    """The log up to its first damaged batch, also below the recovery point, and the result of its recovery.

    Raises BadCheckpoint, RecoveryError, OSError.
    """
    starts = checkpoints.read_offsets(disk, str(target.log_dir / checkpoints.LOG_STARTS))
    directory = str(target.log_dir / names.directory_name(*key))
    partition_dir = PartitionDirectory(
        disk, directory, *key, TopicConfig(), log_start_offset=starts.get(key, 0), keep_gaps=True
    )
    partition_dir.gaps_until = cleaned_until(disk, target, key)
    return recover(partition_dir)


def cleaned_until(disk: Disk, target: Target, key: TopicPartition) -> int:
    """The offset below which the cleaner may have left gaps; OFFSET_MAX for a damaged checkpoint. Raises OSError."""
    try:
        cleaned = checkpoints.read_offsets(disk, str(target.log_dir / checkpoints.CLEANER_OFFSETS))
    except checkpoints.BadCheckpoint:
        return OFFSET_MAX
    return cleaned.get(key, 0)


def forget_end(disk: Disk, target: Target, key: TopicPartition, end: int) -> None:
    """Lower the recovery point and the log start before anything is removed, and make the next start check the log.

    Arguments:
        end: the log end offset after the truncation.

    Raises BadCheckpoint, OSError.
    """
    log_dir = str(target.log_dir)
    unclean = checkpoints.read_clean_shutdown(disk, log_dir)
    if unclean is not None:
        broker_epoch = checkpoints.read_broker_epoch(disk, log_dir)
        since = checkpoints.read_unclean_since(disk, log_dir)
        checkpoints.write_clean_shutdown(disk, log_dir, broker_epoch, {*unclean, key}, unclean_since=since)
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.LOG_STARTS):
        path = str(target.log_dir / name)
        offsets = checkpoints.read_offsets(disk, path)
        if offsets.get(key, 0) > end:
            checkpoints.write_offsets(disk, path, {**offsets, key: end})
