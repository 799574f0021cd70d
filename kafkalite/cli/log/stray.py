"""`kafkalite log stray`: lists, adopts or deletes partitions of topics that the journal does not contain."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import click

from kafkalite._speedups.storage.file import Disk
from kafkalite.cli.failure import fail
from kafkalite.cli.log.adopt import lines_of_configs
from kafkalite.cli.log.dirs import lock_directory, target_of
from kafkalite.clock import LoopClock, SystemRandom
from kafkalite.coordination.journal import JournalError
from kafkalite.coordination.znodes import ZnodeError
from kafkalite.model import uuid_text
from kafkalite.server.adoption.stray_adoption import StrayAdoption
from kafkalite.server.adoption.topic_adoption import AdoptedTopic
from kafkalite.storage.dirs.log_directory import DirectoryError, LogDirectory
from kafkalite.storage.dirs.stray_partitions import Stray, find
from kafkalite.storage.partition_adoption import AdoptionError


@click.command(
    short_help="List, adopt and delete stray partitions.",
    epilog="""\b
Examples:
  kafkalite log stray data                      list the stray partitions
  kafkalite log stray data --adopt              adopt all of them
  kafkalite log stray data orders --adopt       adopt those of topic orders
  kafkalite log stray data orders --delete      delete their files

NAME is a topic or the name of a stray directory. A partition becomes stray at a start if its topic is not in
kafkalite.journal, for example because an older copy of the journal was restored. An adopted topic that is not in the
journal keeps its id, and gets retention.ms=-1 and retention.bytes=-1, as its configs are unknown.""",
)
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--adopt", is_flag=True, help="Return the partitions to their topics.")
@click.option("--delete", is_flag=True, help="Delete the files of the partitions; requires NAME.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
def stray(path: Path, names: tuple[str, ...], adopt: bool, delete: bool, as_json: bool) -> None:
    """List the stray partitions in the log directory DIR, adopt or delete them, while no broker runs."""
    if adopt and delete:
        fail("--adopt and --delete exclude each other")
    if delete and not names:
        fail("--delete requires a topic or directory; `kafkalite log stray DIR` lists them")
    if target_of(path).only is not None:
        fail(f"{path}: a partition directory; give the log directory that contains it")
    try:
        if adopt or delete:
            change(path, names, adopt=adopt)
        else:
            with lock_directory(path):
                show(chosen(path, names), as_json=as_json)
    except (AdoptionError, DirectoryError, JournalError, ZnodeError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or path}: {error.strerror or error}")


def chosen(path: Path, names: Sequence[str]) -> list[Stray]:
    """The strays with these names, all without names. Ends the command for a name that matches none."""
    found = find(Disk(), str(path))
    for name in names:
        if not any(name in (one.name, one.topic) for one in found):
            fail(f"{path}: no stray partition with the name or topic {name}; `kafkalite log stray {path}` lists all")
    return [one for one in found if not names or one.name in names or one.topic in names]


def change(path: Path, names: Sequence[str], *, adopt: bool) -> None:
    """Adopt or delete strays. Raises DirectoryError, OSError, and the errors of an adoption."""
    disk, directory = Disk(), LogDirectory(Disk(), str(path))
    directory.lock()
    try:
        found = chosen(path, names)
        if not found:
            click.echo(f"{path}: no stray partitions")
        elif adopt:
            say_adopted(asyncio.run(adopt_strays(disk, directory, found)), path)
        else:
            for one in found:
                disk.remove_tree(one.directory)
                click.echo(f"{one.name}: deleted, {one.size:,} bytes")
            disk.sync_dir(str(path))
    finally:
        directory.unlock()


async def adopt_strays(disk: Disk, directory: LogDirectory, found: Sequence[Stray]) -> AdoptedTopic:
    """Adopt strays in a new event loop."""
    clock = LoopClock(asyncio.get_running_loop())
    try:
        adoption = StrayAdoption(disk, clock, SystemRandom(), directory.path, directory, move=True)
        return await adoption.adopt(found)
    finally:
        clock.close()


def show(found: Sequence[Stray], *, as_json: bool) -> None:
    """Print one line for each stray, and their number."""
    for one in found:
        topic_id = "unknown" if one.topic_id is None else uuid_text(one.topic_id)
        if as_json:
            click.echo(json.dumps({**one._asdict(), "topic_id": topic_id}, ensure_ascii=False))
        else:
            click.echo(f"{one.name}  topic {one.topic}  id {topic_id}  {one.size:,} bytes")
    if not as_json:
        count = f"{len(found):,} stray partition{'' if len(found) == 1 else 's'}"
        click.echo(f"{count}, {sum(one.size for one in found):,} bytes" if found else "no stray partitions")


def say_adopted(result: AdoptedTopic, path: Path) -> None:
    """Print the adopted topics, and the configs that must be set now."""
    for name, count in sorted(result.topics.items()):
        click.echo(f"{name}: {count} partition{'' if count == 1 else 's'} in total")
    for name in result.missing:
        click.secho(f"{name}: has no files in this directory and starts empty", fg="yellow")
    if result.bytes_dropped:
        click.secho(f"{result.bytes_dropped:,} bytes after the last valid batches were dropped", fg="yellow")
    click.echo(f"{result.partitions} partition{'' if result.partitions == 1 else 's'} adopted")
    for line in lines_of_configs(result):
        click.echo(line)
    click.echo(f"kafkalite serve --data {path}")
