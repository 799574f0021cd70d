"""`kafkalite log recover`: what a start does to the files of a broker that did not end cleanly."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from kafkalite._speedups.file import Disk
from kafkalite.cli.failure import fail
from kafkalite.cli.logdirs import Target, bytes_of_logs, progress, target_of, unused, warnings_of
from kafkalite.clock import LoopClock, SystemRandom, ThreadOffload
from kafkalite.cluster.store import ClusterStore
from kafkalite.config.topic import TopicConfig
from kafkalite.coordination.embedded import Embedded
from kafkalite.coordination.errors import CoordinationError
from kafkalite.coordination.journal import JournalError
from kafkalite.coordination.layout import LayoutError
from kafkalite.server.broker import JOURNAL
from kafkalite.server.leader_epochs import raise_leader_epochs
from kafkalite.storage import checkpoints
from kafkalite.storage.directories import FORMAT, DirectoryError
from kafkalite.storage.dryrun import DryDisk
from kafkalite.storage.loading import Loaded, load_directories
from kafkalite.storage.manager import LogManager
from kafkalite.storage.recovery import Progress

REFUSED = 1


@click.command(
    short_help="Do what a start after a crash would do, or show it.",
    epilog="""\b
Examples:
  kafkalite log recover data --dry-run      what would a start do?
  kafkalite log recover data                do it; the next start is a clean one
  kafkalite log recover data --dry-run --json | jq 'select(.type == "change")'

Indexes are built with the default settings of topics. Exit code 1 when a partition cannot be recovered.""",
)
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@click.option("-n", "--dry-run", is_flag=True, help="Change nothing, not even a time; show every change instead.")
@click.option("-t", "--threads", type=click.IntRange(1, 64), default=2, show_default=True, help="Partitions at once.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
def recover(path: Path, dry_run: bool, threads: int, as_json: bool) -> None:
    """Recover the log directory DIR as a start of its broker would, while none runs."""
    target = target_of(path)
    if target.only is not None:
        fail(f"{path}: the directory of a partition; recovery needs the checkpoints of {target.log_dir}")
    try:
        loaded, changes = dry(target, threads) if dry_run else (asyncio.run(real(target, threads)), [])
    except (CoordinationError, DirectoryError, JournalError, LayoutError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or path}: {error.strerror or error}")
    if loaded.error is not None:
        fail(f"{loaded.error.filename or path}: {loaded.error.strerror or loaded.error}")
    say = say_json if as_json else say_text
    say(loaded, changes)
    for warning in warnings_of(Disk(), target.log_dir):
        click.echo(f"kafkalite: warning: {warning}", err=True)
    sys.exit(REFUSED if loaded.refused else 0)


def dry(target: Target, threads: int) -> tuple[Loaded, list[dict[str, str]]]:
    """Recover on a disk that keeps its changes to itself."""
    disk = DryDisk()
    with unused(target.log_dir), progress(bytes_of_logs(target), "checking", beside=True) as advance:
        loaded = load_directories(disk, [str(target.log_dir)], lambda topic: TopicConfig(), threads, advance=advance)[0]
    for directory in loaded.to_delete:
        disk.remove_tree(directory)
    return loaded, [change._asdict() for change in disk.changes]


async def real(target: Target, threads: int) -> Loaded:
    """Recover, raise the leader epochs that a start would raise, and leave the directory as after a clean end.

    Where the journal with the epochs is in another log directory, the next start has to raise them: the directory is
    left without the mark of a clean end.
    """
    loop = asyncio.get_running_loop()
    clock, offload = LoopClock(loop), ThreadOffload(loop)
    logs = LogManager(Disk(), [str(target.log_dir)], clock, offload, SystemRandom())
    logs.lock()
    try:
        (loaded,) = logs.load(lambda topic: TopicConfig(), threads)
        removed = asyncio.Event()
        logs.when_removed(removed.set)
        await removed.wait()
        offload.close()
        if loaded.error is None:
            raised = not loaded.unclean or await raise_epochs(target, clock, logs, loaded)
            logs.close()
            if not raised:
                checkpoints.take_clean_shutdown(Disk(), str(target.log_dir))
    finally:
        logs.unlock()
        clock.close()
    return loaded


async def raise_epochs(target: Target, clock: LoopClock, logs: LogManager, loaded: Loaded) -> bool:
    """Raise the leader epochs in the journal of this log directory; False where another one has it. Raises OSError.

    A directory of Apache Kafka has none: its controller elects a leader in any case.
    """
    path = target.log_dir / JOURNAL
    if not path.exists():
        return not (target.log_dir / FORMAT).exists()
    service = Embedded.open(Disk(), str(path), clock)
    try:
        session = service.connect()
        store = ClusterStore(session, clock)
        await raise_leader_epochs(store, await store.topics(), logs, [loaded], session.multi_later)
        await store.close()
    finally:
        service.close()
    return True


def say_text(loaded: Loaded, changes: list[dict[str, str]]) -> None:
    """For people."""
    for directory, found in sorted(loaded.progress.items()):
        if found.segments_scanned or found.segments_dropped:
            click.echo(f"{directory}: {work_of(found)}")
        for first, begin in found.gaps:
            click.secho(f"{directory}: offsets {first} to {begin - 1} are missing, a segment was lost", fg="red")
            click.echo("  restore it from a backup, or give up what follows with `kafkalite log truncate`")
    for directory, reason in sorted(loaded.refused.items()):
        click.secho(f"{directory}: cannot be recovered: {reason}", fg="red")
        click.echo(
            f"  restore it from a backup; `kafkalite log truncate {directory}` shows what can be kept without one"
        )
    for change in changes:
        click.echo(f"would {change['verb']} {change['path']} {change['text']}".rstrip())
    dropped, count = loaded.bytes_dropped, len(loaded.progress)
    state = "left cleanly" if loaded.clean else "not left cleanly"
    partitions = f"{count:,} partition{'' if count == 1 else 's'}"
    click.echo(f"{loaded.path} was {state}: {partitions}, {dropped:,} byte{'' if dropped == 1 else 's'} dropped")


def work_of(found: Progress) -> str:
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


def say_json(loaded: Loaded, changes: list[dict[str, str]]) -> None:
    """One object per line, told apart by `type`."""

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
    for directory, reason in sorted(loaded.refused.items()):
        line(type="refused", directory=directory, reason=reason)
    for change in changes:
        line(type="change", **change)
    line(type="summary", clean=loaded.clean, partitions=len(loaded.progress), bytes_dropped=loaded.bytes_dropped)
