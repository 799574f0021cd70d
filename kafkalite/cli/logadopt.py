"""`kafkalite log adopt`: the partitions of a stopped Apache Kafka become topics of ours."""

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click

from kafkalite._speedups.file import Disk
from kafkalite.cli.failure import fail
from kafkalite.cli.logdirs import held, progress, target_of
from kafkalite.clock import LoopClock, SystemRandom
from kafkalite.coordination.journal import JournalError
from kafkalite.coordination.layout import LayoutError
from kafkalite.server.adoption import INTERNAL, Adopted, Adoption
from kafkalite.storage.adoption import AdoptionError
from kafkalite.storage.directories import DirectoryError, LogDirectory


@click.command(
    short_help="Take over the topics of a stopped Apache Kafka.",
    epilog="""\b
Examples:
  kafkalite log adopt /var/lib/kafka/data --data ./data           copy
  kafkalite log adopt /mnt/kafka-copy --data /mnt/data --move     rename, within a file system
  kafkalite serve --data ./data

Topics keep their ids; leader epochs begin above the last ones in the files. The configs of topics are in the metadata
of the cluster (KRaft or ZooKeeper), which is not read. So that no record is deleted, topics get retention.ms=-1 and
retention.bytes=-1, and cleanup.policy=compact where a cleaner worked on them: set your own configs afterwards.
__consumer_offsets and __transaction_state come along, compacted; __cluster_metadata and __share_group_state stay.
A call that was cut short can be repeated; without --move DIR is only read.""",
)
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@click.option("-d", "--data", required=True, type=click.Path(file_okay=False, path_type=Path), help="Our directory.")
@click.option("--move", is_flag=True, help="Rename the partitions' directories instead of copying them.")
def adopt(path: Path, data: Path, move: bool) -> None:
    """Take over the partitions in DIR, a log directory of a stopped Apache Kafka or a copy of one."""
    target = target_of(path)
    if target.only is not None:
        fail(f"{path}: the directory of a partition; give the log directory that holds it")
    if os.path.realpath(path) == os.path.realpath(data):
        fail(f"{path}: a directory cannot be adopted into itself")
    disk, directory = Disk(), LogDirectory(Disk(), str(data))
    try:
        with held(disk, target.log_dir):
            directory.lock()
            found = asyncio.run(adopted(disk, str(target.log_dir), directory, move))
    except (AdoptionError, DirectoryError, JournalError, LayoutError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or path}: {error.strerror or error}")
    finally:
        directory.unlock()
    say(found, data)


async def adopted(disk: Disk, source: str, directory: LogDirectory, move: bool) -> Adopted:
    """Run it with a bar for a person who waits."""
    clock = LoopClock(asyncio.get_running_loop())
    with ExitStack() as stack:
        stack.callback(clock.close)

        def bar(size: int) -> Callable[[int], object]:
            return stack.enter_context(progress(size, "copying", beside=True))

        return await Adoption(disk, clock, SystemRandom(), source, directory, move=move).run(bar)


def say(found: Adopted, data: Path) -> None:
    """What came of it."""
    for name, count in sorted(found.topics.items()):
        click.echo(f"{name}: {count} partition{'' if count == 1 else 's'}")
    for name in found.there_before:
        click.echo(f"{name}: was here before, left as it is")
    for name in found.left_out:
        click.echo(f"{name}: left where it is")
    for name in found.missing:
        click.secho(f"{name}: has no files in this directory and begins empty", fg="yellow")
    if found.bytes_dropped:
        click.secho(f"{found.bytes_dropped:,} bytes behind the last whole batches were dropped", fg="yellow")
    for line in lines_of_configs(found):
        click.echo(line)
    topics = f"{len(found.topics)} topic{'' if len(found.topics) == 1 else 's'}"
    partitions = f"{found.partitions} partition{'' if found.partitions == 1 else 's'}"
    click.echo(f"{topics} with {partitions} adopted; kafkalite serve --data {data}")


def lines_of_configs(found: Adopted) -> list[str]:
    """Which configs the created topics have now, as their own are unknown; one line per set of configs."""
    topics: dict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
    for name, configs in sorted(found.created.items()):
        if name not in INTERNAL:
            topics[tuple(configs.items())].append(name)
    return [
        f"{', '.join(names)}: the configs are unknown, so that nothing is deleted they are now "
        f"{', '.join(f'{key}={value}' for key, value in configs)}; change them with `kafkalite topic alter`"
        for configs, names in topics.items()
    ]
