"""`kafkalite cluster`: brokers and log directories."""

from collections.abc import Iterator

import click
from kafkalite_sdk.admin import LogDirectory

from kafkalite.cli.client_options import Cluster, cluster_options, command_runner, fail_for, json_option, print_rows
from kafkalite.cli.connection import connect

BROKER_COLUMNS = ("BROKER", "HOST", "PORT", "RACK", "CONTROLLER")
DIRECTORY_COLUMNS = ("BROKER", "DIRECTORY", "STATE", "PARTITIONS", "BYTES", "TOTAL-BYTES", "USABLE-BYTES")
PARTITION_COLUMNS = ("BROKER", "DIRECTORY", "TOPIC", "PARTITION", "BYTES", "OFFSET-LAG", "FUTURE")
UNKNOWN = -1


@click.group(
    epilog="""\b
Examples:
  kafkalite cluster describe
  kafkalite cluster log-dirs
  kafkalite cluster log-dirs --partitions --broker 1
"""
)
def command() -> None:
    """Show the brokers of a cluster and their log directories."""


@command.command(
    epilog="""\b
Examples:
  kafkalite cluster describe
  kafkalite cluster describe --json
"""
)
@cluster_options
@json_option
@command_runner
async def describe(cluster: Cluster, as_json: bool) -> None:
    """Show the cluster id and the brokers."""
    async with connect(cluster) as admin:
        found = await admin.cluster.describe()
    brokers = sorted(found.brokers, key=lambda each: each.broker_id)
    rows = [(each.broker_id, each.host, each.port, each.rack, each.broker_id == found.controller) for each in brokers]
    if as_json:
        print_rows(BROKER_COLUMNS, rows, as_json)
        return
    click.echo(f"cluster {found.cluster_id}, {len(rows)} broker(s)")
    print_rows(BROKER_COLUMNS, [(*row[:-1], "yes" if row[-1] else "no") for row in rows], as_json)


@command.command(
    name="log-dirs",
    epilog="""\b
Examples:
  kafkalite cluster log-dirs
  kafkalite cluster log-dirs --broker 1 --broker 2 --json
  kafkalite cluster log-dirs --partitions
""",
)
@click.option("--broker", "brokers", type=int, multiple=True, metavar="ID", help="Only this broker; may be repeated.")
@click.option("--partitions", is_flag=True, help="Print a row for each partition.")
@cluster_options
@json_option
@command_runner
async def log_dirs(brokers: tuple[int, ...], partitions: bool, cluster: Cluster, as_json: bool) -> None:
    """Show the log directories of brokers, and their sizes."""
    async with connect(cluster) as admin:
        outcomes = await admin.cluster.log_directories(*brokers)
    directories = sorted(
        (broker, path, each) for broker, found in outcomes.results.items() for path, each in found.items()
    )
    if partitions:
        rows = [row for broker, path, each in directories for row in partition_rows(broker, path, each)]
        print_rows(PARTITION_COLUMNS, rows, as_json)
    else:
        print_rows(DIRECTORY_COLUMNS, [directory_row(*each) for each in directories], as_json)
    fail_for({f"broker {broker}": error for broker, error in outcomes.errors.items()})


def directory_row(broker: int, path: str, directory: LogDirectory) -> tuple[object, ...]:
    """A log directory in the order of DIRECTORY_COLUMNS; sizes that the broker does not report are absent."""
    state = "online" if directory.error is None else "offline"
    size = sum(each.size for each in directory.replicas.values())
    disk = (None if each == UNKNOWN else each for each in (directory.total_bytes, directory.usable_bytes))
    return (broker, path, state, len(directory.replicas), size, *disk)


def partition_rows(broker: int, path: str, directory: LogDirectory) -> Iterator[tuple[object, ...]]:
    """The replicas of a log directory in the order of PARTITION_COLUMNS."""
    for partition, each in sorted(directory.replicas.items()):
        yield (broker, path, *partition, each.size, each.offset_lag, each.future)
