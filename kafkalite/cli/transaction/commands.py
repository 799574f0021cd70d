"""`kafkalite transaction`: list, describe, find hanging ones, abort and terminate transactions."""

import click

from kafkalite.cli.client_options import (
    Cluster,
    Seconds,
    Several,
    cluster_options,
    command_runner,
    fail_for,
    fail_for_unknown,
    json_option,
    names_option,
    print_rows,
    some_topics_option,
)
from kafkalite.cli.completion import complete_topics, complete_transactional_ids
from kafkalite.cli.connection import connect
from kafkalite.cli.failure import PartitionSubject
from kafkalite.cli.positions import chosen_partitions, parse_topics

LIST_COLUMNS = ("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE")
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")
ANSWER_S = 15.0  # for the answers of the coordinators and leaders
MAX_TIMEOUT_S = 900.0  # transaction.max.timeout.ms by default

topics_option = some_topics_option(
    "Only transactions with a partition of this topic, or with one of these; may be repeated.",
    complete_topics,
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@click.group(
    epilog="""\b
Examples:
  kafkalite transaction list
  kafkalite transaction list --state Ongoing --older-than 60
  kafkalite transaction describe billing-1
  kafkalite transaction find-hanging
  kafkalite transaction abort orders:0 --start-offset 42
  kafkalite transaction terminate billing-1
"""
)
def command() -> None:
    """List, describe, abort and terminate transactions."""


@command.command(
    name="list",
    epilog="""\b
Examples:
  kafkalite transaction list
  kafkalite transaction list --state Ongoing --state PrepareCommit --json
  kafkalite transaction list --pattern 'billing-.*'
  kafkalite transaction list --older-than 60 --topic orders:0,2
""",
)
@names_option("--state", "states", STATES, "List only transactions in this state")
@click.option(
    "--producer-id",
    "producer_ids",
    multiple=True,
    type=click.IntRange(0, 2**63 - 1),
    metavar="ID",
    help="List only transactions of this producer id; may be repeated.",
)
@click.option("--pattern", help="Regular expression (RE2) that the whole transactional id matches.")
@click.option(
    "--older-than",
    "age_s",
    type=Seconds(min=0),
    metavar="SECONDS",
    help="List only open transactions that began more than so many seconds ago.",
)
@topics_option
@cluster_options
@json_option
@command_runner
async def list_(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    pattern: str | None,
    age_s: float | None,
    topics: tuple[str, ...],
    cluster: Cluster,
    as_json: bool,
) -> None:
    """List transactional ids and their states.

    A transaction in a prepared state is decided, and waits for markers in its partitions.
    """
    from kafkalite.cli.transaction.filters import Filters, list_transactions

    wanted = parse_topics(topics)
    filters = Filters(states, producer_ids, pattern, age_s)
    async with connect(cluster) as admin:
        partitions = frozenset(await chosen_partitions(admin, wanted)) if wanted else None
        found = await list_transactions(admin, filters, partitions, timeout=ANSWER_S)
    rows = [(each.transactional_id, each.coordinator, each.producer_id, each.state) for each in found.transactions]
    print_rows(LIST_COLUMNS, rows, as_json)
    fail_for_unknown(found.unknown, "the list of transactions")


@command.command(
    epilog="""\b
Examples:
  kafkalite transaction describe billing-1
  kafkalite transaction describe billing-1 billing-2 --json
"""
)
@click.argument(
    "transactional_ids",
    cls=Several,
    nargs=-1,
    required=True,
    metavar="TRANSACTIONAL-ID...",
    shell_complete=complete_transactional_ids,
)
@cluster_options
@json_option
@command_runner
async def describe(transactional_ids: tuple[str, ...], cluster: Cluster, as_json: bool) -> None:
    """Show producer, age and partitions of transactions.

    In a prepared state, PARTITIONS are those without a marker.
    """
    from kafkalite.cli.transaction.descriptions import print_transactions

    async with connect(cluster) as admin:
        found = await admin.transactions.describe(*transactional_ids, timeout=ANSWER_S)
    print_transactions(list(found.results.values()), as_json)
    fail_for(found.errors)


@command.command(
    name="find-hanging",
    epilog="""\b
Examples:
  kafkalite transaction find-hanging
  kafkalite transaction find-hanging --topic orders:0 --older-than 0
  kafkalite transaction find-hanging --broker 2 --json
""",
)
@topics_option
@click.option("--broker", type=click.IntRange(min=0), metavar="ID", help="Only partitions with a replica on it.")
@click.option(
    "--older-than",
    "age_s",
    type=Seconds(min=0),
    default=MAX_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="Only transactions without a batch for so many seconds; the default is that of transaction.max.timeout.ms.",
)
@cluster_options
@json_option
@command_runner
async def find_hanging(
    topics: tuple[str, ...], broker: int | None, age_s: float, cluster: Cluster, as_json: bool
) -> None:
    """Find transactions that no coordinator will end.

    Readers of committed records stop at START-OFFSET of the first one. All partitions are searched unless --topic or
    --broker selects some. The exit code is 0 also if some are found.
    """
    from kafkalite.cli.connection import require_brokers
    from kafkalite.cli.transaction.descriptions import print_hanging
    from kafkalite.cli.transaction.filters import searched_partitions

    wanted = parse_topics(topics)
    async with connect(cluster) as admin:
        if broker is not None:
            await require_brokers(admin, broker)
        partitions = await searched_partitions(admin, wanted, broker)
        found = await admin.transactions.find_hanging(partitions, older_than_ms=int(age_s * 1000))
    print_hanging([each for transactions in found.results.values() for each in transactions], as_json)
    fail_for_unknown(
        {PartitionSubject.of(each): error for each, error in found.errors.items()}, "the list of open transactions"
    )


@command.command(
    epilog="""\b
Examples:
  kafkalite transaction abort orders:0
  kafkalite transaction abort orders:0 --start-offset 42 --yes
"""
)
@click.argument("partition", metavar="TOPIC:PARTITION", shell_complete=complete_topics)
@click.option(
    "--start-offset",
    type=click.IntRange(0, 2**63 - 1),
    metavar="OFFSET",
    help="First offset of the transaction. Default: the only open one.",
)
@click.option(
    "--force", is_flag=True, help="Also if a coordinator has the transaction: other partitions may be committed."
)
@yes_option
@cluster_options
def abort(partition: str, start_offset: int | None, force: bool, yes: bool, cluster: Cluster) -> None:
    """Abort a hanging transaction in one partition.

    Shows the transaction, asks, and writes an abort marker into this partition alone. A transaction that its
    coordinator has not forgotten ends with `terminate`, in all of its partitions.
    """
    from kafkalite.cli.transaction.ending import abort_transaction

    abort_transaction(partition, start_offset, cluster, force=force, yes=yes)


@command.command(
    epilog="""\b
Examples:
  kafkalite transaction terminate billing-1
  kafkalite transaction terminate billing-1 --yes
"""
)
@click.argument("transactional_id", metavar="TRANSACTIONAL-ID", shell_complete=complete_transactional_ids)
@yes_option
@cluster_options
def terminate(transactional_id: str, yes: bool, cluster: Cluster) -> None:
    """Fence a producer and abort its transaction.

    Shows the transaction and asks. The producer fails with its next request; a new one with this id can begin at once.
    """
    from kafkalite.cli.transaction.ending import terminate_transaction

    terminate_transaction(transactional_id, cluster, yes=yes)
