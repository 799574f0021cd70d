"""Describes topics: their partitions, with offsets and sizes on request, and their configs."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click
from kafkalite_sdk import Admin, TopicPartition
from kafkalite_sdk.admin import Config, ConfigSource, OpenTransaction, Resource
from kafkalite_sdk.admin.topic_types import PartitionDescription, TopicDescription

from kafkalite.cli.client_options import column_key, fail_for, print_rows
from kafkalite.cli.failure import PartitionSubject
from kafkalite.cli.positions import COMMITTED, EARLIEST, LATEST, UNCOMMITTED
from kafkalite.cli.records.partition_reader import partitions_of
from kafkalite.cli.transaction.descriptions import open_transaction_text
from kafkalite.errors import AuthorizationError, KafkaError, error_for, with_right

# The column names of kafka-topics --describe.
PARTITION_COLUMNS = ("Partition", "Leader", "LeaderEpoch", "Replicas", "Isr", "OfflineReplicas")
OFFSET_COLUMNS = ("LogStartOffset", "LogEndOffset", "LastStableOffset", "Size")
NO_LEADER = -1
OFFSETS_S = 10.0  # for the offsets of partitions: those without a leader have none
READ_CONFIGS = "describe-configs"  # Describe is not enough


class PartitionBounds(NamedTuple):
    """The bounds of a partition; None = unknown.

    Attributes:
        start, end: offsets of committed records, so `end` is the high watermark.
        stable: the last stable offset; below `end` there is an open transaction.
        size: of the largest replica, in bytes.
        oldest: the open transaction that begins at `stable`; None = there is none, or it is not known.
    """

    start: int | None
    end: int | None
    stable: int | None
    size: int | None
    oldest: OpenTransaction | None = None


Bounds = Mapping[TopicPartition, PartitionBounds]
Errors = Mapping[str, KafkaError]
"""Why offsets or sizes are unknown, by partition or broker."""


class DescribedTopic(NamedTuple):
    """A topic with its configs; bounds None = not requested, `all_configs` = defaults are included."""

    topic: TopicDescription
    configs: Mapping[str, Config]
    bounds: Bounds | None
    all_configs: bool


class DescribedTopics(NamedTuple):
    """Topics; `unreached`: why offsets or sizes are unknown, by partition or broker."""

    topics: list[DescribedTopic]
    unreached: Errors


def with_topic_right(error: KafkaError, topic: str, operation: str) -> KafkaError:
    """Return an error of one request of a command; that of a missing right names the operation of this request."""
    if not isinstance(error, AuthorizationError):
        return error
    return error_for(error.code, with_right(error.code, error.message or error.code.message, operation, topic))


async def describe_topics(admin: Admin, names: Sequence[str], *, offsets: bool, all_configs: bool) -> DescribedTopics:
    """Describe topics; ends the command if one does not exist.

    Arguments:
        admin: of the cluster.
        names: of the topics.
        offsets: the offsets and sizes of partitions are included.
        all_configs: configs with other sources than the topic are included.
    """
    found = await admin.topics.describe(*names)
    fail_for(found.errors)
    outcomes = await admin.configs.describe(*map(Resource.topic, found))
    denied = {each.name: with_topic_right(error, each.name, READ_CONFIGS) for each, error in outcomes.errors.items()}
    fail_for(denied)
    bounds: Bounds | None = None
    unreached: Errors = {}
    if offsets:
        bounds, unreached = await bounds_of(admin, partitions_of(found.values()))
    topics = [
        DescribedTopic(
            topic,
            {
                name: each
                for name, each in outcomes[Resource.topic(topic.name)].items()
                if all_configs or each.source == ConfigSource.TOPIC
            },
            bounds,
            all_configs,
        )
        for topic in found.values()
    ]
    return DescribedTopics(topics, unreached)


async def bounds_of(admin: Admin, partitions: Sequence[TopicPartition]) -> tuple[Bounds, Errors]:
    """The offsets and sizes of partitions; those of partitions without a leader are unknown."""
    read = [(EARLIEST, UNCOMMITTED), (LATEST, UNCOMMITTED), (LATEST, COMMITTED)]
    offsets = await asyncio.gather(
        *(
            admin.partitions.offsets(dict.fromkeys(partitions, each), isolation_level=level, timeout=OFFSETS_S)
            for each, level in read
        )
    )
    starts, ends, stables = ({each: listed.offset for each, listed in one.results.items()} for one in offsets)
    errors: dict[str, KafkaError] = {
        PartitionSubject.of(each): error for one in offsets for each, error in one.errors.items()
    }
    directories = await admin.cluster.log_directories(partitions=partitions)
    errors |= {f"broker {broker}": error for broker, error in directories.errors.items()}
    sizes: dict[TopicPartition, int] = {}
    for replica, each in (
        item for paths in directories.results.values() for path in paths.values() for item in path.replicas.items()
    ):
        sizes[replica] = max(each.size, sizes.get(replica, 0))
    unstable = [each for each, stable in stables.items() if stable < ends.get(each, stable)]
    oldest, unknown = await oldest_transactions(admin, unstable)
    bounds = {
        each: PartitionBounds(starts.get(each), ends.get(each), stables.get(each), sizes.get(each), oldest.get(each))
        for each in partitions
    }
    return bounds, errors | unknown


async def oldest_transactions(
    admin: Admin, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, OpenTransaction], dict[str, KafkaError]]:
    """The first open transaction of each partition, and why others are unknown, by partition."""
    if not partitions:
        return {}, {}
    try:
        found = await admin.transactions.find_open(partitions, timeout=OFFSETS_S)
    except KafkaError as error:
        return {}, {str(each): error for each in partitions}
    oldest = {each: transactions[0] for each, transactions in found.results.items() if transactions}
    return oldest, {str(each): with_topic_right(error, each.topic, "read") for each, error in found.errors.items()}


def print_topic(found: DescribedTopic, as_json: bool) -> None:
    """Print a topic as text, or as one JSON object."""
    topic, configs, bounds = found.topic, found.configs, found.bounds or {}
    columns = PARTITION_COLUMNS if found.bounds is None else (*PARTITION_COLUMNS, *OFFSET_COLUMNS)
    rows = [partition_row(topic.name, each, found.bounds) for each in topic.partitions]
    if as_json:
        about: dict[str, Any] = {"topic": topic.name, "topic_id": topic.topic_id}
        about["configs"] = {name: each.value for name, each in configs.items()}
        if found.all_configs:
            about["config_sources"] = {name: each.source.name for name, each in configs.items()}
        about["partitions"] = [dict(zip(map(column_key, columns), row, strict=True)) for row in rows]
        for shown in about["partitions"] if bounds else ():
            shown["oldest_transaction"] = transaction_object(bounds[TopicPartition(topic.name, shown["partition"])])
        click.echo(json.dumps(about))
        return
    head = f"Topic: {topic.name}  TopicId: {topic.topic_id}"
    click.echo(f"{head}  PartitionCount: {len(rows)}  ReplicationFactor: {topic.replication_factor}")
    for name, each in configs.items():
        source = f"  ({each.source.name})" if found.all_configs else ""
        click.echo(f"  {name}={'' if each.value is None else each.value}{source}")
    print_rows(columns, rows, as_json=False)
    for partition, found_bounds in bounds.items():
        if partition.topic == topic.name and found_bounds.oldest is not None:
            click.echo(f"{partition}: {open_transaction_text(found_bounds.oldest)}")


def transaction_object(bounds: PartitionBounds) -> dict[str, Any] | None:
    """The oldest open transaction as JSON; None = there is none, or it is not known."""
    oldest = bounds.oldest
    if oldest is None:
        return None
    names = ("producer_id", "producer_epoch", "start_offset", "last_timestamp_ms", "transactional_id", "state")
    return {**{name: getattr(oldest, name) for name in names}, "hanging": oldest.is_hanging}


def partition_row(topic: str, each: PartitionDescription, bounds: Bounds | None) -> tuple[object, ...]:
    """A partition in the order of PARTITION_COLUMNS, with OFFSET_COLUMNS where they were requested."""
    leader = NO_LEADER if each.leader is None else each.leader
    row = (each.partition, leader, each.leader_epoch, each.replicas, each.isr, each.offline_replicas)
    return row if bounds is None else (*row, *bounds[TopicPartition(topic, each.partition)][:4])
