"""Describes groups: their members, committed offsets and lag, as a table or as JSON."""

from collections.abc import Iterable
from typing import Any

import click
from kafkalite_sdk import Admin, TopicPartition
from kafkalite_sdk.admin import GroupDescription, GroupLag, GroupMember, PartitionLag

from kafkalite.cli.client_options import column_key, fail_for, print_rows
from kafkalite.cli.failure import PartitionSubject
from kafkalite.errors import KafkaError, KafkaErrorCode

# The columns of kafka-consumer-groups --describe in its order; ours is the last one.
LAG_COLUMNS = (
    *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
    *("CONSUMER-ID", "HOST", "CLIENT-ID", "LAG-SECONDS"),
)


# If a partition has an open transaction, or a transaction an offset of the group.
TRANSACTION_COLUMNS = ("LAST-STABLE-OFFSET", "STABLE-LAG", "PENDING-OFFSET")
SUMMARY_COLUMNS = ("GROUP", "TYPE", "STATE", "MEMBERS", "PARTITIONS", "LAG", "LAG-MAX", "LAG-SECONDS-MAX")


async def describe_group(admin: Admin, group: str) -> GroupDescription:
    """The group with its members; ends the command if the group does not exist."""
    found = await admin.groups.describe(group)
    fail_for(found.errors)
    return found[group]


def print_group(found: GroupLag, as_json: bool) -> None:
    """Print a group with its lag."""
    if as_json:
        import json

        click.echo(json.dumps(as_object(found)))
        return
    click.echo(said_of(found.group))
    name = found.group.group
    table = [lag_row(name, *each) for each in found.partitions.items()]
    table += [(name, *(None,) * 5, *member_cells(each), None) for each in found.group.members if not each.assignment]
    if any(map(has_transaction, found.partitions.values())):
        cells = [transaction_cells(each) for each in found.partitions.values()]
        cells += [(None,) * 3] * (len(table) - len(cells))
        print_rows(
            (*LAG_COLUMNS, *TRANSACTION_COLUMNS),
            [(*row, *more) for row, more in zip(table, cells, strict=True)],
            as_json=False,
        )
    elif table:
        print_rows(LAG_COLUMNS, table, as_json=False)
    else:
        click.echo("the group has no committed offsets")


def print_summary(groups: Iterable[GroupLag], as_json: bool) -> None:
    """Print a row for each group."""
    print_rows(SUMMARY_COLUMNS, [summary_row(each) for each in groups], as_json)


def unknown_lags(groups: Iterable[GroupLag]) -> dict[str, KafkaError]:
    """The partitions whose leaders have not answered, so that the lag is unknown; not those of deleted topics."""
    return {
        PartitionSubject.of(partition): lag.error
        for found in groups
        for partition, lag in found.partitions.items()
        if lag.error is not None and lag.error.code != KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


def summary_row(found: GroupLag) -> tuple[object, ...]:
    """A group in the order of SUMMARY_COLUMNS; the lag is that of partitions whose lag is known."""
    group, partitions = found.group, found.partitions.values()
    lag_max = max((each.lag for each in partitions if each.lag is not None), default=None)
    age_max_s = max((each.age_s for each in partitions if each.age_s is not None), default=None)
    sizes = (len(group.members), len(partitions))
    return (group.group, group.type, group.state, *sizes, found.total, lag_max, age_max_s)


def said_of(group: GroupDescription) -> str:
    """A group in one line of text."""
    assignor = f", assignor {group.assignor}" if group.assignor else ""
    return f"{group.group}: type {group.type}, state {group.state}, {len(group.members)} member(s){assignor}"


def lag_row(group: str, topic_partition: TopicPartition, each: PartitionLag) -> tuple[object, ...]:
    """The row of a partition, in the order of LAG_COLUMNS."""
    offset = None if each.committed is None else each.committed.offset
    return (group, *topic_partition, offset, each.log_end, each.lag, *member_cells(each.member), each.age_s)


def has_transaction(each: PartitionLag) -> bool:
    """Whether a transaction is open in the partition, or has committed an offset of it."""
    is_open = each.stable_end is not None and each.log_end is not None and each.stable_end < each.log_end
    return is_open or bool(each.is_pending)


def transaction_cells(each: PartitionLag) -> tuple[object, ...]:
    """The last stable offset, the lag to it, and whether an open transaction has committed an offset."""
    pending = None if each.is_pending is None else "yes" if each.is_pending else "no"
    return (each.stable_end, each.stable_lag, pending)


def member_cells(member: GroupMember | None) -> tuple[str | None, str | None, str | None]:
    """CONSUMER-ID, HOST and CLIENT-ID of a partition's owner, or of none."""
    return (None, None, None) if member is None else (member.member_id, member.host, member.client_id)


def as_object(found: GroupLag) -> dict[str, Any]:
    """The group as one JSON object."""
    group = found.group
    keys = [column_key(column) for column in LAG_COLUMNS[1:]]
    partitions = [dict(zip(keys, lag_row(group.group, *each)[1:], strict=True)) for each in found.partitions.items()]
    for each, lag in zip(partitions, found.partitions.values(), strict=True):
        each |= {"last_stable_offset": lag.stable_end, "stable_lag": lag.stable_lag, "pending_offset": lag.is_pending}
    return {
        "group": group.group,
        "type": group.type,
        "state": group.state,
        "assignor": group.assignor,
        "members": [member_object(each) for each in group.members],
        "partitions": partitions,
    }


def member_object(member: GroupMember) -> dict[str, Any]:
    """A member as JSON."""
    return {
        "consumer_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "assignment": [list(each) for each in member.assignment],
    }
