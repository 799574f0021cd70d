"""Compares the replicas of partitions, one partition after another.

The compared offsets are those that all replicas have committed at the start: between the highest log start and the
lowest high watermark.
"""

import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import click
from kafkalite_sdk import Admin, TopicPartition
from kafkalite_sdk.admin import Resource
from kafkalite_sdk.admin.topic_types import PartitionDescription
from kafkalite_sdk.rpc import Connection

from kafkalite._speedups.records.validator import BatchError
from kafkalite.cli.client_options import Cluster, fail_for
from kafkalite.cli.connection import connect, open_client
from kafkalite.cli.positions import parse_topics
from kafkalite.cli.verify.batch_comparison import BatchComparison, Difference
from kafkalite.cli.verify.key_comparison import KeyTable, compare_tables
from kafkalite.cli.verify.replica_reads import Data, ReplicaReads, parse_batches, stored_batch
from kafkalite.errors import KafkaConnectionError, KafkaError

POLICY = "cleanup.policy"
DIFFERENCES_MAX = 20  # of a partition; the others are counted


@dataclass(slots=True)
class PartitionResult:
    """The result of one partition.

    Attributes:
        partition: the partition.
        brokers: that were compared.
        compacted: whether the last values of keys were compared, else all batches.
        start, end: the compared offsets.
        compared: number of batches or keys.
        differences: the first ones.
        difference_count: their number.
        unread: why replicas were not compared, by broker id.
    """

    partition: TopicPartition
    brokers: list[int]
    compacted: bool
    start: int = 0
    end: int = 0
    compared: int = 0
    differences: list[Difference] = field(default_factory=list)
    difference_count: int = 0
    unread: dict[int, KafkaError] = field(default_factory=dict)

    def add(self, differences: Iterable[Difference]) -> None:
        """Count differences, and keep the first ones."""
        for each in differences:
            self.difference_count += 1
            if len(self.differences) < DIFFERENCES_MAX:
                self.differences.append(each)

    def fail(self, broker: int, error: KafkaError) -> None:
        """A replica cannot be read."""
        self.brokers.remove(broker)
        self.unread[broker] = error


async def verify_topics(cluster: Cluster, texts: Sequence[str]) -> list[PartitionResult]:
    """Compare the partitions that are named, or those of all topics; those with one replica are left out.

    Arguments:
        cluster: its addresses.
        texts: topics as `orders` or `orders:0,2`.

    Raises KafkaError. Ends the command if a topic does not exist.
    """
    async with connect(cluster) as admin, open_client(cluster, Connection) as connection:
        chosen = await replicated_partitions(admin, texts)
        compacted = await compacted_topics(admin, {each.topic for each, _ in chosen})
        with click.progressbar(chosen, label="comparing", file=sys.stderr, hidden=not sys.stderr.isatty()) as shown:
            return [await verify(connection, each, about, each.topic in compacted) for each, about in shown]


async def replicated_partitions(
    admin: Admin, texts: Sequence[str]
) -> list[tuple[TopicPartition, PartitionDescription]]:
    """The chosen partitions with several replicas."""
    wanted = parse_topics(texts or [each.name for each in await admin.topics.list()])
    described = await admin.topics.describe(*wanted)
    fail_for(described.errors)
    return [
        (TopicPartition(name, each.partition), each)
        for name, numbers in wanted.items()
        for each in described[name].partitions
        if len(each.replicas) > 1 and (numbers is None or each.partition in numbers)
    ]


async def compacted_topics(admin: Admin, topics: Collection[str]) -> set[str]:
    """The topics with compaction."""
    outcomes = await admin.configs.describe(*map(Resource.topic, topics), names=(POLICY,)) if topics else None
    if outcomes is None:
        return set()
    fail_for({resource.name: error for resource, error in outcomes.errors.items()})
    return {each.name for each, configs in outcomes.results.items() if "compact" in (configs[POLICY].value or "")}


async def verify(
    connection: Connection, partition: TopicPartition, about: PartitionDescription, compacted: bool
) -> PartitionResult:
    """Compare the replicas of one partition.

    Arguments:
        connection: of the cluster.
        partition, about: the partition.
        compacted: whether its replicas compact their logs.
    """
    ordered = sorted(about.replicas, key=lambda each: each != about.leader)
    found = PartitionResult(partition, ordered, compacted)
    for broker in set(ordered) - set(connection.brokers):
        found.fail(broker, KafkaConnectionError(f"broker {broker} does not run"))
    reads = ReplicaReads(connection, partition)
    first = await read(reads, found, dict.fromkeys(found.brokers, 0))
    if len(found.brokers) < 2:
        return found
    found.start = max(data.log_start_offset for data in first.values())
    found.end = max(found.start, min(data.high_watermark for data in first.values()))
    await (verify_keys if compacted else verify_batches)(reads, found)
    return found


async def read(reads: ReplicaReads, found: PartitionResult, offsets: dict[int, int]) -> dict[int, Data]:
    """Read replicas; those that cannot be read are not compared any more."""
    responses: dict[int, Data] = {}
    for broker, each in (await reads.read(offsets)).items():
        if isinstance(each, KafkaError):
            found.fail(broker, each)
        else:
            responses[broker] = each
    return responses


async def verify_batches(reads: ReplicaReads, found: PartitionResult) -> None:
    """Compare all batches."""
    comparison = BatchComparison(found.brokers, found.start, found.end)
    while wanted := comparison.next_reads():
        responses = await read(reads, found, wanted)
        for broker in wanted:
            if broker not in responses or not add_batches(comparison, broker, responses[broker], found):
                comparison.drop(broker)
        found.add(comparison.differences())
    found.add(comparison.differences())
    found.start, found.end, found.compared = comparison.start, comparison.end, comparison.compared


def add_batches(comparison: BatchComparison, broker: int, data: Data, found: PartitionResult) -> bool:
    """Add the batches in a response; returns False if they cannot be parsed."""
    if data.error_code:
        comparison.raise_start(broker, data.log_start_offset)
        return True
    try:
        batches = [stored_batch(each) for each in parse_batches(data)]
    except BatchError as error:
        found.add([Difference(comparison.start, broker, f"a batch cannot be parsed: {error}")])
        return False
    comparison.add(broker, batches, data.high_watermark, data.log_start_offset)
    return True


async def verify_keys(reads: ReplicaReads, found: PartitionResult) -> None:
    """Compare the last value of each key."""
    tables: dict[int, KeyTable] = {}
    for broker in list(found.brokers):
        table = KeyTable(found.end)
        if await read_table(reads, found, broker, table):
            tables[broker] = table
    found.add(compare_tables(tables, found.start))
    found.compared = max((len(each.values) for each in tables.values()), default=0)


async def read_table(reads: ReplicaReads, found: PartitionResult, broker: int, table: KeyTable) -> bool:
    """Read all records of a replica, also those above the compared offsets; returns False if that is not possible.

    `found.start` rises with the log start of the replica.
    """
    offset, high_watermark = 0, found.end
    while offset < high_watermark:
        data = (await read(reads, found, {broker: offset})).get(broker)
        if data is None:
            return False
        found.start, high_watermark = max(found.start, data.log_start_offset), data.high_watermark
        if data.error_code and data.log_start_offset > offset:
            offset = data.log_start_offset
            continue
        try:
            read_to = add_records(data, table)
        except BatchError as error:
            found.add([Difference(offset, broker, f"a batch cannot be read: {error}")])
            return False
        if read_to is None:
            break
        offset = read_to
    return True


def add_records(data: Data, table: KeyTable) -> int | None:
    """Add the records in a response; returns the offset behind them, None without any. Raises BatchError."""
    end: int | None = None
    for batch in parse_batches(data):
        batch.check_crc()
        for record in () if batch.control else batch:
            table.add(record.offset, record.key, record.value, record.headers)
        end = batch.last_offset + 1
    return end
