"""Ends transactions: shows what would end, asks, and ends it.

No connection is open while the command asks. Before the marker is written, the transaction is read again: one that has
ended meanwhile, or another one, is not aborted.
"""

import click
from kafkalite_sdk import Admin, TopicPartition
from kafkalite_sdk.admin import OpenTransaction, TransactionDescription

from kafkalite.cli.client_options import NEXT_STEPS, Cluster, command_runner, fail_for
from kafkalite.cli.connection import connect
from kafkalite.cli.failure import PartitionSubject, confirm, fail
from kafkalite.cli.positions import chosen_partitions, parse_topics
from kafkalite.cli.transaction.descriptions import description_text, open_transaction_text
from kafkalite.errors import KafkaError, KafkaErrorCode

ABORT_STEPS: dict[int, str] = NEXT_STEPS | {
    KafkaErrorCode.INVALID_PRODUCER_EPOCH: "the producer has begun again meanwhile; see what is open now",
    KafkaErrorCode.TRANSACTION_COORDINATOR_FENCED: "a coordinator has written a marker meanwhile; see what is open now",
    KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED: "it needs ClusterAction on the cluster",
}


def abort_transaction(text: str, start_offset: int | None, cluster: Cluster, *, force: bool, yes: bool) -> None:
    """Abort the transaction in one partition.

    Arguments:
        text: TOPIC:PARTITION.
        start_offset: of the transaction; None = the only open one.
        cluster: addresses and settings.
        force: also one that a coordinator has.
        yes: do not ask.
    """
    chosen: list[OpenTransaction] = []
    find_transaction(text, start_offset, cluster, chosen)
    (transaction,) = chosen
    click.echo(f"{transaction.partition}: {open_transaction_text(transaction)}")
    if not transaction.is_hanging and not force:
        step = f"`kafkalite transaction terminate {transaction.transactional_id}` aborts it in all partitions"
        fail(f"{transaction.partition}: the coordinator ends this transaction; {step}; --force aborts it here alone")
    confirm(f"Abort it in {transaction.partition}?", yes=yes)
    write_marker(transaction, cluster)
    click.echo(f"aborted the transaction from offset {transaction.start_offset} on in {transaction.partition}")


@command_runner
async def find_transaction(
    text: str, start_offset: int | None, cluster: Cluster, chosen: list[OpenTransaction]
) -> None:
    """Append the open transaction to `chosen`; ends the command if it is not unique or does not exist.

    Arguments:
        text: TOPIC:PARTITION.
        start_offset: of the transaction; None = the only open one.
        cluster: addresses and settings.
        chosen: receives it.
    """
    wanted = parse_topics([text])
    ((topic, numbers),) = wanted.items()
    if numbers is None or len(numbers) != 1:
        fail(f"{text!r} does not name one partition; write TOPIC:PARTITION, for example {topic}:0")
    async with connect(cluster) as admin:
        (partition,) = await chosen_partitions(admin, wanted)
        chosen.append(choose(await open_in(admin, partition), partition, start_offset))


async def open_in(admin: Admin, partition: TopicPartition) -> tuple[OpenTransaction, ...]:
    """Return the open transactions of a partition."""
    found = await admin.transactions.find_open([partition])
    fail_for({PartitionSubject.of(each): error for each, error in found.errors.items()})
    return found[partition]


def choose(
    transactions: tuple[OpenTransaction, ...], partition: TopicPartition, start_offset: int | None
) -> OpenTransaction:
    """Return the transaction that begins at an offset, or the only one; ends the command if there is none."""
    matching = [each for each in transactions if start_offset is None or each.start_offset == start_offset]
    begins = ", ".join(str(each.start_offset) for each in transactions)
    if not transactions:
        fail(f"{partition} has no open transaction")
    if not matching:
        fail(f"{partition} has no open transaction from offset {start_offset} on; open ones begin at {begins}")
    if len(matching) > 1:
        fail(f"{partition} has {len(transactions)} open transactions; give --start-offset, one of {begins}")
    return matching[0]


@command_runner
async def write_marker(transaction: OpenTransaction, cluster: Cluster) -> None:
    """Abort a transaction that is still open; ends the command if it is not."""
    partition = transaction.partition
    async with connect(cluster) as admin:
        now = [each for each in await open_in(admin, partition) if each.start_offset == transaction.start_offset]
        if not now or now[0].producer_id != transaction.producer_id:
            fail(f"{partition}: the transaction from offset {transaction.start_offset} on has ended meanwhile")
        if now[0].is_hanging != transaction.is_hanging:
            fail(f"{partition}: its coordinator knows the transaction now; repeat the command to see it")
        try:
            await admin.transactions.abort(now[0])
        except KafkaError as error:
            fail_for({PartitionSubject.of(partition): error}, steps=ABORT_STEPS)


def terminate_transaction(transactional_id: str, cluster: Cluster, *, yes: bool) -> None:
    """Fence the producer of a transactional id, and abort its transaction.

    Arguments:
        transactional_id: of the producer.
        cluster: addresses and settings.
        yes: do not ask.
    """
    described: list[TransactionDescription] = []
    describe_transaction(transactional_id, cluster, described)
    (transaction,) = described
    click.echo(description_text(transaction))
    ends = "abort its transaction" if transaction.is_open else "fence its producer, which has no open transaction"
    confirm(f"Terminate {transactional_id}: {ends}?", yes=yes)
    fence(transactional_id, cluster)


@command_runner
async def describe_transaction(
    transactional_id: str, cluster: Cluster, described: list[TransactionDescription]
) -> None:
    """Append the transaction to `described`; ends the command if the transactional id does not exist."""
    async with connect(cluster) as admin:
        found = await admin.transactions.describe(transactional_id)
    fail_for(found.errors)
    described.append(found[transactional_id])


@command_runner
async def fence(transactional_id: str, cluster: Cluster) -> None:
    """Fence the producer, and print the producer id and epoch from which on."""
    async with connect(cluster) as admin:
        try:
            fenced = await admin.transactions.terminate(transactional_id)
        except KafkaError as error:
            fail_for({transactional_id: error})
    fencing = f"producer {fenced.producer_id} is fenced below epoch {fenced.producer_epoch}"
    click.echo(f"terminated {transactional_id}: {fencing}")
