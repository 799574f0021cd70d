"""`kafkalite log recover`: runs the recovery of an unclean start on the files of a stopped broker."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from kafkalite._speedups.storage.file import Disk
from kafkalite.cli.failure import fail
from kafkalite.cli.log.dirs import Target, bytes_of_logs, lock_directory, progress, target_of, warnings_of
from kafkalite.clock import LoopClock, SystemRandom, ThreadOffload
from kafkalite.cluster.metadata.store import MetadataStore
from kafkalite.config.topic import TopicConfig
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.coordination.errors import CoordinationError
from kafkalite.coordination.journal import JournalError
from kafkalite.coordination.znodes import ZnodeError
from kafkalite.server.process.resources import JOURNAL
from kafkalite.server.startup.epoch_bump import raise_leader_epochs
from kafkalite.storage import checkpoints
from kafkalite.storage.dirs.log_directory import FORMAT, DirectoryError
from kafkalite.storage.manager import LogManager
from kafkalite.storage.recovery.dry_run import DryDisk
from kafkalite.storage.recovery.load_logs import LoadedDirectory, load_directories
from kafkalite.storage.recovery.recover_log import RecoveryReport

REFUSED = 1


@click.command(
    short_help="Recover logs as a start after a crash does.",
    epilog="""\b
Examples:
  kafkalite log recover data --dry-run      list the changes that a start would make
  kafkalite log recover data                make them; the next start needs no recovery
  kafkalite log recover data --dry-run --json | jq 'select(.type == "change")'

Indexes are rebuilt with default topic configs. Exit code 1 if a partition cannot be recovered.""",
)
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@click.option("-n", "--dry-run", is_flag=True, help="List every change without making it.")
@click.option(
    "-t",
    "--threads",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Number of partitions recovered in parallel.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
def recover(path: Path, dry_run: bool, threads: int, as_json: bool) -> None:
    """Recover the log directory DIR as a start of its broker does, while no broker runs."""
    target = target_of(path)
    if target.only is not None:
        needed = f"recovery needs the checkpoints of the log directory; give {target.log_dir}"
        fail(f"{path}: a partition directory; {needed}")
    try:
        loaded, changes = dry(target, threads) if dry_run else (asyncio.run(real(target, threads)), [])
    except (CoordinationError, DirectoryError, JournalError, ZnodeError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or path}: {error.strerror or error}")
    if loaded.error is not None:
        fail(f"{loaded.error.filename or path}: {loaded.error.strerror or loaded.error}")
    report = report_json if as_json else report_text
    report(loaded, changes)
    for warning in warnings_of(Disk(), target.log_dir):
        click.echo(f"kafkalite: warning: {warning}", err=True)
    sys.exit(REFUSED if loaded.rejected else 0)


def dry(target: Target, threads: int) -> tuple[LoadedDirectory, list[dict[str, str]]]:
    """Recover on a disk that keeps its changes in memory."""
    disk = DryDisk()
    with lock_directory(target.log_dir), progress(bytes_of_logs(target), "checking", beside=True) as advance:
        loaded = load_directories(disk, [str(target.log_dir)], lambda topic: TopicConfig(), threads, advance=advance)[0]
    for directory in loaded.to_delete:
        disk.remove_tree(directory)
    return loaded, [change._asdict() for change in disk.changes]


async def real(target: Target, threads: int) -> LoadedDirectory:
    """Recover, raise the leader epochs that a start would raise, and leave the directory as after a clean shutdown.

    If the journal with the epochs is in another log directory, the next start has to raise them: the directory gets no
    mark of a clean shutdown. The mark of a directory that had none says so: the power may have failed, and the
    next start as a broker of a cluster counts as unclean.
    """
    loop = asyncio.get_running_loop()
    clock, offload = LoopClock(loop), ThreadOffload(loop)
    logs = LogManager(Disk(), [str(target.log_dir)], clock, offload, SystemRandom())
    logs.lock()
    try:
        unclean_since = checkpoints.read_unclean_since(Disk(), str(target.log_dir))
        (loaded,) = logs.load(lambda topic: TopicConfig(), threads)
        removed = asyncio.Event()
        logs.when_removed(removed.set)
        await removed.wait()
        offload.close()
        if loaded.error is None:
            raised = not loaded.unclean or await raise_epochs(target, clock, logs, loaded)
            logs.close(unclean_since=unclean_since if loaded.clean else 0)
            if not raised:
                checkpoints.take_clean_shutdown(Disk(), str(target.log_dir))
    finally:
        logs.unlock()
        clock.close()
    return loaded


async def raise_epochs(target: Target, clock: LoopClock, logs: LogManager, loaded: LoadedDirectory) -> bool:
    """Raise the leader epochs in the journal of this log directory; False if it is in another one. Raises OSError.

    A directory of Apache Kafka has no journal: its controller elects a leader in any case.
    """
    path = target.log_dir / JOURNAL
    if not path.exists():
        return not (target.log_dir / FORMAT).exists()
    service = EmbeddedCoordination.open(Disk(), str(path), clock)
    try:
        session = service.connect()
        store = MetadataStore(session, clock)
        await raise_leader_epochs(store, await store.topics(), logs, [loaded], session.multi_later)
        await store.close()
    finally:
        service.close()
    return True


def report_text(loaded: LoadedDirectory, changes: list[dict[str, str]]) -> None:
    """Print the result as text."""
    for directory, found in sorted(loaded.progress.items()):
        if found.segments_scanned or found.segments_dropped:
            click.echo(f"{directory}: {work_of(found)}")
        for first, begin in found.gaps:
            click.secho(f"{directory}: offsets {first} to {begin - 1} are missing: a segment was lost", fg="red")
            click.echo("  restore it from a backup, or drop the records after it with `kafkalite log truncate`")
    for directory, reason in sorted(loaded.rejected.items()):
        click.secho(f"{directory}: cannot be recovered: {reason}", fg="red")
        click.echo(
            f"  restore it from a backup; without one, `kafkalite log truncate {directory}` lists what can be kept"
        )
    for change in changes:
        click.echo(f"would {change['verb']} {change['path']} {change['text']}".rstrip())
    dropped, count = loaded.bytes_dropped, partitions_of(loaded)
    state = "shut down cleanly" if loaded.clean else "not shut down cleanly"
    partitions = f"{count:,} partition{'' if count == 1 else 's'}"
    click.echo(f"{loaded.path} was {state}: {partitions}, {dropped:,} byte{'' if dropped == 1 else 's'} dropped")


def partitions_of(loaded: LoadedDirectory) -> int:
    """How many partitions can be served, with those that never had a record."""
    return len(loaded.progress) + len(loaded.created)


def work_of(found: RecoveryReport) -> str:
    """`2 segments scanned and indexed (310 batches), 120 bytes in 0 whole segments dropped`."""
    scanned, batches, dropped = found.segments_scanned, found.batches_checked, found.segments_dropped
    parts = [
        f"{scanned:,} segment{'' if scanned == 1 else 's'} scanned and indexed "
        f"({batches:,} batch{'' if batches == 1 else 'es'})"
    ]
    if found.bytes_dropped:
        whole = f"{dropped:,} whole segment{'' if dropped == 1 else 's'}"
        parts.append(f"{found.bytes_dropped:,} bytes dropped, among them {whole}")
    if found.set_aside:
        parts.append(f"set aside: {', '.join(map(os.path.basename, found.set_aside))}")
    return ", ".join(parts)


def report_json(loaded: LoadedDirectory, changes: list[dict[str, str]]) -> None:
    """One object per line; `type` distinguishes them."""

    def line(**fields: Any) -> None:
        click.echo(json.dumps(fields, ensure_ascii=False))

    for directory, found in sorted(loaded.progress.items()):
        line(
            type="partition",
            directory=directory,
            segments_scanned=found.segments_scanned,
            batches_checked=found.batches_checked,
            bytes_dropped=found.bytes_dropped,
            segments_dropped=found.segments_dropped,
            set_aside=found.set_aside,
            gaps=found.gaps,
        )
    for directory, reason in sorted(loaded.rejected.items()):
        line(type="refused", directory=directory, reason=reason)
    for change in changes:
        line(type="change", **change)
    line(type="summary", clean=loaded.clean, partitions=partitions_of(loaded), bytes_dropped=loaded.bytes_dropped)
