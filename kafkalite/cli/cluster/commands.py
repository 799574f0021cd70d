"""`kafkalite cluster`: status, brokers and log directories."""

import asyncio
import json
import signal
import sys
from collections.abc import Iterator

import click
from kafkalite_sdk import Admin, Environment
from kafkalite_sdk.admin import LogDirectory

from kafkalite.cli.client_options import (
    Cluster,
    Seconds,
    cluster_options,
    command_runner,
    fail_for,
    json_option,
    print_rows,
    servers_timeout_option,
    zookeeper_config_option,
)
from kafkalite.cli.cluster.invalid_tree_nodes import one_line
from kafkalite.cli.cluster.replica_counts import ReplicaCounts
from kafkalite.cli.cluster.status import BrokerStatus, ClusterStatus, read_status
from kafkalite.cli.cluster.up import ClusterProcesses
from kafkalite.cli.connection import connect, open_client, require_brokers
from kafkalite.cli.failure import fail
from kafkalite.cli.signals import cancel_on_sigterm

BROKER_COLUMNS = ("BROKER", "HOST", "PORT", "RACK", "CONTROLLER")
DIRECTORY_COLUMNS = ("BROKER", "DIRECTORY", "STATE", "PARTITIONS", "BYTES", "TOTAL-BYTES", "USABLE-BYTES")
PARTITION_COLUMNS = ("BROKER", "DIRECTORY", "TOPIC", "PARTITION", "BYTES", "OFFSET-LAG", "FUTURE")
REPLICA_COLUMNS = ("IMBALANCE", "LAG", "ISR-CHANGES")
STATUS_COLUMNS = ("BROKER", "HOST", "PORT", "RACK", "CONTROLLER", "STATE", *REPLICA_COLUMNS, "COORDINATION")
LEADERLESS_COLUMNS = ("TOPIC", "PARTITION", "REPLICAS", "ISR")
LEADERLESS_MAX = 50
NODE_COLUMNS = ("PATH", "REASON", "ACTION")
NODES_MAX = 50
EXIT_INCOMPLETE = 1
UP_COLUMNS = ("BROKER", "ADDRESS", "PID", "LOG")
BROKERS_MAX = 100
UNKNOWN = -1


@click.group(
    epilog="""\b
Examples:
  kafkalite cluster up --brokers 3
  kafkalite cluster status
  kafkalite cluster adopt --data ./data --zookeeper zk1:2181/kafka
  kafkalite cluster describe
  kafkalite cluster log-dirs
  kafkalite cluster log-dirs --partitions --broker 1
"""
)
def command() -> None:
    """Run a cluster; show its status, its brokers and their log directories; make a broker its first one."""


@command.command(
    epilog="""\b
Examples:
  kafkalite cluster up
  kafkalite cluster up --brokers 5 --data /var/lib/kafkalite --port 19092
  kafkalite cluster up --brokers 2 --set num.partitions=6 --restart

If a broker ends, the others continue, and a line names the broker and the reason. `kill -USR1 PID`, with the process id
of this command, starts it again; --restart does so after a second. Ctrl-C, SIGTERM or a closed terminal (SIGHUP) stops
all brokers, a second signal kills them; with `nohup` they continue when the terminal is closed.
The exit code is 1 if a broker has ended meanwhile, else 0; 2 if the start has failed, or no broker is left."""
)
@click.option("--brokers", type=click.IntRange(1, BROKERS_MAX), default=3, show_default=True, help="Number of brokers.")
@click.option("-d", "--data", default="./cluster", show_default=True, metavar="DIR", help="Directory of the cluster.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535 - BROKERS_MAX),
    default=9092,
    show_default=True,
    metavar="PORT",
    help="Port of the first broker, the others have the next ones; 0: free ports.",
)
@click.option(
    "-s", "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Config of all brokers; may be repeated."
)
@click.option("--restart", is_flag=True, help="Start a broker again that has ended.")
@command_runner
async def up(brokers: int, data: str, port: int, settings: tuple[str, ...], restart: bool) -> None:
    """Run brokers on this machine until Ctrl-C.

    They need no ZooKeeper: one of them serves the coordination of all, from DIR/coordination. Each broker has its log
    directory and its log in DIR. Clients on this machine connect to 127.0.0.1. With three brokers or more, topics have
    three replicas, and acks=all needs two of them; with two, two replicas.
    """
    cluster = ClusterProcesses(brokers, data, port, settings, restart=restart)
    interrupts = cancel_on_sigterm(cluster.kill)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
        interrupts.handle(signal.SIGHUP)
    try:
        async with cluster:
            rows = [(each.broker_id, each.address, each.pid, each.log) for each in cluster.brokers]
            print_rows(UP_COLUMNS, rows, False)
            click.echo(f"kafkalite cluster ready on {','.join(each.address for each in cluster.brokers)}")
            await cluster.run()
    except asyncio.CancelledError:  # Ctrl-C, SIGTERM or SIGHUP: all brokers are stopped
        if interrupts.received is not signal.SIGHUP:  # its terminal is closed: writing to it fails
            click.echo("kafkalite: all brokers are stopped", err=True)
    if cluster.incomplete:
        raise click.exceptions.Exit(EXIT_INCOMPLETE)


@command.command(
    epilog="""\b
Examples:
  kafkalite cluster status
  kafkalite cluster status --json --timeout 2
"""
)
@click.option(
    "--timeout",
    type=Seconds(min=0.1),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long each broker may take to answer.",
)
@cluster_options
@json_option
@command_runner
async def status(timeout: float, cluster: Cluster, as_json: bool) -> None:
    """Show the state of brokers and partitions.

    Any broker may be given. COORDINATION is the ZooKeeper or the coordination directory of a broker. A broker whose
    STATE is `cut off` does not reach it: it serves, but changes of topics, configs and in-sync replicas wait or fail.
    With `no right`, it does not show the client its state. `not registered`: it has replicas, but is down.
    IMBALANCE is the share of the partitions whose first replica the broker has that others lead. After a restart it is
    not 0 until the controller elects them again (leader.imbalance.check.interval.seconds). LAG is the largest
    number of records that one of its replicas is behind the leader. ISR-CHANGES counts the changes of in-sync replicas
    that wait for the controller. The exit code is 1 if the cluster is not complete: no controller, a broker that is
    silent, cut off or not registered, a partition without a leader or with a replica that is not in sync, a node of the
    tree with invalid contents or an invalid name, which the cluster leaves out.
    """
    async with open_client(cluster, Admin, environment=Environment()) as admin:
        found = await read_status(admin, timeout)
    if as_json:
        click.echo(json.dumps(status_object(found)))
    else:
        print_status(found)
    if found.problems:
        sys.exit(EXIT_INCOMPLETE)


def status_object(found: ClusterStatus) -> dict[str, object]:
    """The status as JSON."""
    return {
        "cluster": found.cluster_id,
        "controller": found.controller,
        "topics": found.topics,
        "partitions": found.partitions,
        "brokers": [each._asdict() for each in found.brokers],
        "not_registered": found.not_registered,
        "without_leader": [each._asdict() for each in found.leaderless],
        **found.replicas._asdict(),
        "invalid_nodes": [each._asdict() for each in found.invalid_nodes],
        "invalid_node_count": found.invalid_node_count,
        "transaction_version": found.transaction_version,
        "problems": found.problems,
    }


def state_of(broker: BrokerStatus) -> str:
    """The column STATE: `cut off` serves, but does not reach its coordination; `no right` does not show its state."""
    if not broker.answers:
        return "silent"
    if broker.denied:
        return "no right"
    return "answers" if broker.outage_s is None else "cut off"


def replica_cells(broker: BrokerStatus) -> tuple[object, ...]:
    """A broker in the order of REPLICA_COLUMNS."""
    return f"{broker.imbalance}%", broker.replica_lag, broker.pending_isr_changes


def not_preferred_line(replicas: ReplicaCounts) -> str:
    """The line about partitions not led by their first replica; names the election where it has effect."""
    text = f"{replicas.not_preferred} partition(s) are not led by their first replica"
    absent = replicas.not_preferred - replicas.electable
    if not absent:
        return f"{text}, as after a restart of its broker: `kafkalite topic elect-leaders` elects it"
    text = f"{text}, which is down or not in sync in {absent} of them"
    return f"{text}; `kafkalite topic elect-leaders` elects the others" if replicas.electable else text


def print_status(found: ClusterStatus) -> None:
    """Print tables and the faults."""
    controller = "none" if found.controller is None else f"broker {found.controller}"
    click.echo(f"cluster {found.cluster_id}, controller: {controller}")
    click.echo(f"{found.topics} topic(s), {found.partitions} partition(s), {len(found.leaderless)} without a leader")
    click.echo(f"transaction.version {found.transaction_version}")
    if found.replicas.not_preferred:
        click.echo(not_preferred_line(found.replicas))
    rows = [
        (*each[:4], "yes" if each.controller else "no", state_of(each), *replica_cells(each), each.coordination)
        for each in found.brokers
    ]
    rows += [(each, *(None,) * 3, "no", "not registered", *(None,) * 4) for each in found.not_registered]
    print_rows(STATUS_COLUMNS, rows, False)
    if found.leaderless:
        print_rows(LEADERLESS_COLUMNS, found.leaderless[:LEADERLESS_MAX], False)
        if len(found.leaderless) > LEADERLESS_MAX:
            click.echo(f"and {len(found.leaderless) - LEADERLESS_MAX} more; --json prints all")
    if found.invalid_nodes:
        print_rows(NODE_COLUMNS, [tuple(map(one_line, each)) for each in found.invalid_nodes[:NODES_MAX]], False)
        if found.invalid_node_count > NODES_MAX:
            click.echo(f"and {found.invalid_node_count - NODES_MAX} more; --json prints the first 1,000")
    for each in found.problems:
        click.echo(f"kafkalite: {each}", err=True)


@command.command(
    epilog="""\b
Examples:
  kafkalite cluster adopt --data ./data --zookeeper zk1:2181,zk2:2181/kafka
  kafkalite serve --data ./data --set zookeeper.connect=zk1:2181,zk2:2181/kafka

\b
  kafkalite cluster adopt --data ./data --coordination ./coordination
  kafkalite serve --data ./data --set kafkalite.coordination.directory=./coordination
"""
)
@click.option(
    "-d", "--data", required=True, type=click.Path(exists=True, file_okay=False), help="Log directory of the broker."
)
@click.option("--zookeeper", metavar="SERVERS", help="As in zookeeper.connect: HOST:PORT,HOST:PORT/CHROOT.")
@click.option("--coordination", metavar="DIR", help="Directory that the brokers of this machine share, instead.")
@zookeeper_config_option
@servers_timeout_option
@command_runner
async def adopt(data: str, zookeeper: str | None, coordination: str | None, config: str | None, timeout: float) -> None:
    """Make a broker that ran alone the first one of a cluster.

    Its topics, configs and ids are written into ZooKeeper, or into the directory that the brokers of one machine share.
    Records and committed offsets stay where they are. The broker must be stopped, and the tree must be empty. An
    interrupted command can be repeated. Afterwards the broker starts only with the matching setting.
    """
    from kafkalite.cli.cluster.adopt import adopt_tree

    if (zookeeper is None) == (coordination is None):
        fail("give either --zookeeper or --coordination: where the cluster has its tree")
    if config is not None and zookeeper is None:
        fail("--zookeeper-config is for --zookeeper: the tree of --coordination has no TLS and no identities")
    adopted = await adopt_tree(data, zookeeper, coordination, config, timeout)
    setting = f"zookeeper.connect={zookeeper}" if zookeeper else f"kafkalite.coordination.directory={coordination}"
    topics = f"{adopted.topics} topic{'' if adopted.topics == 1 else 's'}"
    click.echo(f"cluster {adopted.cluster_id} with {topics}: {adopted.written} nodes written")
    for path, key in adopted.passwords:
        text = "not written: passwords have no effect in this version, and the tree is in clear text"
        click.echo(f"kafkalite: {path}: {key} is {text}", err=True)
    given = "" if config is None else f" --config {config}"
    click.echo(f"next: kafkalite serve{given} --data {data} --set {setting}")


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
        await require_brokers(admin, *brokers)
        outcomes = await admin.cluster.log_directories(*brokers)
    directories = sorted(
        (broker, path, each) for broker, found in outcomes.results.items() for path, each in found.items()
    )
    if partitions:
        rows = [row for broker, path, each in directories for row in partition_rows(broker, path, each)]
        if not as_json:
            rows = [(*row[:-1], "yes" if row[-1] else "no") for row in rows]
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
