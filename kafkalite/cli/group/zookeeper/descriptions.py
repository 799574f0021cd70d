"""Lists and describes groups in ZooKeeper: offsets of both storages, lag and owners (Kafka's ConsumerOffsetChecker).

CURRENT-OFFSET is the larger one of both storages, as consumers with dual commit use it; STORAGE says where it is.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import click
from kafkalite_sdk.zk.groups import ZooKeeperGroup

from kafkalite.cli.client_options import (
    Cluster,
    column_key,
    explain_error,
    join_names,
    next_steps,
    print_rows,
    shorten_errors,
)
from kafkalite.cli.failure import fail
from kafkalite.cli.group.zookeeper.connection import BrokerOffsets, open_groups, read_brokers
from kafkalite.cli.group.zookeeper.options import Tree
from kafkalite.model import TopicPartition

LIST_COLUMNS = ("GROUP", "STORAGE", "CONSUMERS", "TOPICS", "PARTITIONS")
COLUMNS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "OWNER", "STORAGE")
SUMMARY_COLUMNS = ("GROUP", "STORAGE", "CONSUMERS", "PARTITIONS", "LAG", "LAG-MAX")
ZOOKEEPER, BROKER, BOTH = "zookeeper", "broker", "both"


class PartitionRow(NamedTuple):
    """A partition of a group; None = unknown or none."""

    partition: TopicPartition
    zookeeper: int | None
    broker: int | None
    log_end: int | None
    owner: str | None

    @property
    def current(self) -> int | None:
        """The larger offset of both storages."""
        return max((each for each in (self.zookeeper, self.broker) if each is not None), default=None)

    @property
    def lag(self) -> int | None:
        """Records from the offset to the end; negative if the offset is beyond the end."""
        return None if self.current is None or self.log_end is None else self.log_end - self.current

    @property
    def storage(self) -> str | None:
        """Where the current offset is."""
        if self.current is None:
            return None
        if self.zookeeper == self.broker:
            return BOTH
        return ZOOKEEPER if self.zookeeper == self.current else BROKER


def rows_of(group: ZooKeeperGroup, brokers: BrokerOffsets) -> list[PartitionRow]:
    """The partitions of a group with an offset or an owner, in order."""
    committed = brokers.committed.get(group.group, {})
    rows = []
    for each in sorted({*group.offsets, *group.owners, *committed}):
        stored, kept, owner = group.offsets.get(each), committed.get(each), group.owners.get(each)
        rows.append(
            PartitionRow(
                each,
                None if stored is None else stored.offset,
                None if kept is None else kept.offset,
                brokers.ends.get(each),
                None if owner is None else str(owner.stream),
            )
        )
    return rows


def storage_of(rows: Collection[PartitionRow]) -> str | None:
    """Where a group has offsets; None without any."""
    stored = any(each.zookeeper is not None for each in rows)
    committed = any(each.broker is not None for each in rows)
    return BOTH if stored and committed else ZOOKEEPER if stored else BROKER if committed else None


async def list_groups(tree: Tree, cluster: Cluster, as_json: bool) -> None:
    """Print all groups below /consumers."""
    async with open_groups(tree) as groups:
        found = [await groups.read(name) for name in await groups.names()]
        brokers = await read_brokers(groups, cluster, found)
    table = []
    for each in found:
        rows = rows_of(each, brokers)
        topics = {row.partition.topic for row in rows}
        table.append((each.group, storage_of(rows), len(each.consumers), len(topics), len(rows)))
    print_rows(LIST_COLUMNS, table, as_json)
    report_unknown(found, brokers)


async def describe_groups(names: Sequence[str], tree: Tree, cluster: Cluster, *, summary: bool, as_json: bool) -> None:
    """Print the partitions of groups, or a row for each group.

    Arguments:
        names: ids of the groups.
        tree: where they are.
        cluster: the brokers with the logs.
        summary: a row for each group.
        as_json: print JSON.
    """
    async with open_groups(tree) as groups:
        found = [await groups.read(name) for name in dict.fromkeys(names)]
        brokers = await read_brokers(groups, cluster, found)
    described = [(each, rows_of(each, brokers)) for each in found]
    if summary:
        print_rows(SUMMARY_COLUMNS, [summary_row(*each) for each in described], as_json)
    else:
        for each in described:
            print_group(*each, as_json)
    report_unknown(found, brokers)


def summary_row(group: ZooKeeperGroup, rows: Sequence[PartitionRow]) -> tuple[object, ...]:
    """A group in the order of SUMMARY_COLUMNS; the lag is that of partitions whose lag is known."""
    lags = [each.lag for each in rows if each.lag is not None]
    total = sum(lags) if lags else None
    return (group.group, storage_of(rows), len(group.consumers), len(rows), total, max(lags, default=None))


def print_group(group: ZooKeeperGroup, rows: Sequence[PartitionRow], as_json: bool) -> None:
    """Print one group."""
    if as_json:
        click.echo(json.dumps(as_object(group, rows)))
        return
    click.echo(f"{group.group}: storage {storage_of(rows) or 'none'}, {len(group.consumers)} registered consumer(s)")
    if rows:
        print_rows(COLUMNS, [(group.group, *cells(each)) for each in rows], as_json=False)
    else:
        click.echo("the group has no offsets and no owners of partitions")


def cells(row: PartitionRow) -> tuple[object, ...]:
    """A partition in the order of COLUMNS, without the group."""
    return (*row.partition, row.current, row.log_end, row.lag, row.owner, row.storage)


def as_object(group: ZooKeeperGroup, rows: Sequence[PartitionRow]) -> dict[str, Any]:
    """A group as one JSON object."""
    keys = [column_key(column) for column in COLUMNS[1:]]
    return {
        "group": group.group,
        "storage": storage_of(rows),
        "consumers": [
            {"consumer_id": name, "pattern": each.subscription.pattern, "streams": dict(each.subscription.subscription)}
            for name, each in group.consumers.items()
        ],
        "partitions": [
            dict(zip(keys, cells(each), strict=True))
            | {"zookeeper_offset": each.zookeeper, "broker_offset": each.broker}
            for each in rows
        ],
        "broker_partition_offsets": list(group.old_offsets),
    }


def report_unknown(found: Sequence[ZooKeeperGroup], brokers: BrokerOffsets) -> None:
    """End the command if a part of what was printed is unknown; says which offsets of Kafka before 0.8 are left out."""
    old = [path for each in found for path in each.old_offsets]
    if old:
        click.echo(
            f"kafkalite: offsets of Kafka before 0.8 (BROKER-PARTITION) are left out: {join_names(old)}", err=True
        )
    if texts := [*invalid_nodes(found), *unknown_offsets(brokers)]:
        fail(shorten_errors(texts) + next_steps(each.code for each in brokers.errors.values() if each.code is not None))


def invalid_nodes(found: Sequence[ZooKeeperGroup]) -> Iterator[str]:
    """The nodes of groups that cannot be read, with the reasons."""
    for each in found:
        yield from (f"{path}: {reason}" for path, reason in each.problems.items())


def unknown_offsets(brokers: BrokerOffsets) -> Iterator[str]:
    """The reasons why offsets of brokers are unknown, each with its subjects."""
    subjects: dict[str, list[str]] = {}
    for subject, error in brokers.errors.items():
        subjects.setdefault(explain_error(error, subject).removeprefix(f"{subject}: "), []).append(subject)
    for reason, names in subjects.items():
        yield f"the broker's offsets of {join_names(names)} are unknown: {reason}"
