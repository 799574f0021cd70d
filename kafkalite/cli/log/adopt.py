"""`kafkalite log adopt`: converts the partitions of a stopped Apache Kafka into topics of kafkalite."""

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click

from kafkalite._speedups.storage.file import Disk
from kafkalite.cli.client_options import join_names
from kafkalite.cli.failure import fail
from kafkalite.cli.log.dirs import held, progress, target_of
from kafkalite.clock import LoopClock, SystemRandom
from kafkalite.coordination.journal import JournalError
from kafkalite.coordination.znodes import ZnodeError
from kafkalite.server.adoption.topic_adoption import INTERNAL, AdoptedTopic, TopicAdoption
from kafkalite.server.requests.transactions.states import STATE_NAMES
from kafkalite.state.transactions.metadata import TransactionMetadata
from kafkalite.state.transactions.states import TransactionState
from kafkalite.storage.dirs.log_directory import DirectoryError, LogDirectory
from kafkalite.storage.partition_adoption import AdoptionError


@click.command(
    short_help="Adopt the topics of a stopped Apache Kafka broker.",
    epilog="""\b
Examples:
  kafkalite log adopt /var/lib/kafka/data --data ./data           copy
  kafkalite log adopt /mnt/kafka-copy --data /mnt/data --move     rename, within a file system
  kafkalite serve --data ./data

Topics keep their ids; leader epochs start above the last ones in the files. Topic configs are in the cluster metadata
(KRaft or ZooKeeper), which is not read: to delete no record, topics get retention.ms=-1 and retention.bytes=-1, and
cleanup.policy=compact if the cleaner has a checkpoint for them. Set the intended configs afterwards.
__consumer_offsets and __transaction_state are adopted, compacted; __cluster_metadata and __share_group_state are not.
Open transactions are listed: the start completes decided ones, and aborts the others at their timeout.
An interrupted command can be repeated. Without --move, DIR is only read.""",
)
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@click.option("-d", "--data", required=True, type=click.Path(file_okay=False, path_type=Path), help="Log directory.")
@click.option("--move", is_flag=True, help="Rename the partition directories instead of copying them.")
def adopt(path: Path, data: Path, move: bool) -> None:
    """Adopt the partitions in DIR: a log directory of a stopped Apache Kafka broker, or a copy of it."""
    target = target_of(path)
    if target.only is not None:
        fail(f"{path}: a partition directory; give the log directory that contains it")
    if os.path.realpath(path) == os.path.realpath(data):
        fail(f"{path}: DIR and --data are the same directory")
    disk, directory = Disk(), LogDirectory(Disk(), str(data))
    try:
        with held(disk, target.log_dir):
            directory.lock()
            found = asyncio.run(run_adoption(disk, str(target.log_dir), directory, move))
    except (AdoptionError, DirectoryError, JournalError, ZnodeError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or path}: {error.strerror or error}")
    finally:
        directory.unlock()
    print_adopted(found, data)


async def run_adoption(disk: Disk, source: str, directory: LogDirectory, move: bool) -> AdoptedTopic:
    """Run the adoption with a progress bar."""
    clock = LoopClock(asyncio.get_running_loop())
    with ExitStack() as stack:
        stack.callback(clock.close)

        def bar(size: int) -> Callable[[int], object]:
            return stack.enter_context(progress(size, "copying", beside=True))

        return await TopicAdoption(disk, clock, SystemRandom(), source, directory, move=move).run(bar)


def print_adopted(found: AdoptedTopic, data: Path) -> None:
    """Print the result."""
    for name, count in sorted(found.topics.items()):
        click.echo(f"{name}: {count} partition{'' if count == 1 else 's'}")
    for name in found.there_before:
        click.echo(f"{name}: skipped, it exists already")
    for name in found.left_out:
        click.echo(f"{name}: not adopted")
    for name in found.missing:
        click.secho(f"{name}: has no files in this directory and starts empty", fg="yellow")
    if found.bytes_dropped:
        click.secho(f"{found.bytes_dropped:,} bytes after the last valid batches were dropped", fg="yellow")
    for line in [*lines_of_configs(found), *map(transaction_text, found.open_transactions)]:
        click.echo(line)
    topics = f"{len(found.topics)} topic{'' if len(found.topics) == 1 else 's'}"
    partitions = f"{found.partitions} partition{'' if found.partitions == 1 else 's'}"
    click.echo(f"adopted {topics} with {partitions}; next: kafkalite serve --data {data}")


def transaction_text(transaction: TransactionMetadata) -> str:
    """An open transaction in one line, with what happens to it."""
    ends = {
        TransactionState.PREPARE_COMMIT: "it is decided, the start commits it",
        TransactionState.PREPARE_ABORT: "it is decided, the start aborts it",
    }.get(transaction.state, f"it is aborted {transaction.timeout_ms} ms after its begin, unless its producer ends it")
    where = join_names([str(each) for each in sorted(transaction.partitions)]) or "no partition"
    return f"transaction {transaction.transactional_id} in {where}: {STATE_NAMES[transaction.state]}, {ends}"


def lines_of_configs(found: AdoptedTopic) -> list[str]:
    """The configs of the created topics, whose own are unknown; one line per set of configs."""
    topics: dict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
    for name, configs in sorted(found.created.items()):
        if name not in INTERNAL:
            topics[tuple(configs.items())].append(name)
    return [
        f"{', '.join(names)}: the configs are unknown; to delete nothing they are set to "
        f"{', '.join(f'{key}={value}' for key, value in configs)}; change them with `kafkalite topic alter`"
        for configs, names in topics.items()
    ]
